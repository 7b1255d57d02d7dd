//! A relay inside another program's process, for measurements: its configuration's only source, with the caller's store and metrics.

use std::{path::Path, sync::Arc};

use postrider::{Metrics, Outbox, Store};

use super::{Instruments, outbox_of, plans};
use crate::{
    config::{self, Config},
    failure::Failure,
};

/// A relay that was configured but does not deliver yet.
#[derive(Debug)]
pub struct InProcess(Config);

impl InProcess {
    /// Reads and checks a configuration, as `postrider run` does.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        config::load(path).map(Self).map_err(Failure::configuration)
    }

    /// Starts to deliver from `store` to the sinks of the first source that is enabled. `metrics` replaces the relay's own.
    pub async fn start(&self, store: Arc<dyn Store>, metrics: Arc<dyn Metrics>) -> Result<Outbox, Failure> {
        let plans = plans(self.0.clone(), &Instruments::idle()?)?;
        let mut plan =
            plans.into_iter().next().ok_or_else(|| Failure::usage("the configuration enables no source"))?;
        plan.metrics = metrics;
        Ok(outbox_of(&plan, store).start().await?)
    }
}
