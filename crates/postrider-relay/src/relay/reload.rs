//! The running relay, and what changes when its configuration is read again.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use tracing::{error, info, warn};

use super::{
    Running, States,
    build::{Instruments, Plan, end_limit, plan},
    state::SourceState,
};
use crate::{
    config::{self, Config, Operations},
    failure::Failure,
    operations::{Gauges, Lags},
    signal::Limit,
};

/// All sources of a relay.
pub(crate) struct Relay {
    file: PathBuf,
    pub(super) seen: Seen,
    config: Option<Arc<Config>>,
    running: BTreeMap<String, Running>,
    end_limit: Limit,
}

/// What operators see of a relay. Cloning it copies pointers.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) states: States,
    pub(crate) instruments: Instruments,
    pub(crate) gauges: Gauges,
    pub(crate) lags: Lags,
}

impl Relay {
    pub(super) fn new(
        file: PathBuf,
        operations: &Operations,
        instruments: Instruments,
        end_limit: Limit,
    ) -> Self {
        let gauges = Gauges::new(&operations.gauges);
        let seen = Seen { states: States::default(), instruments, gauges, lags: Lags::default() };
        Self { file, seen, config: None, running: BTreeMap::new(), end_limit }
    }

    /// Reads the configuration again. A mistake in it changes nothing. Files are opened anew, whatever it says: whoever moves them away
    /// asks for this.
    pub(super) async fn reload(&mut self) {
        self.running.values().for_each(Running::reopen_files);
        let applied = match config::load(&self.file) {
            Ok(config) => self.apply(config).await,
            Err(problems) => Err(Failure::configuration(problems)),
        };
        match applied {
            Ok(()) => info!("the configuration was read again"),
            Err(failure) => error!(%failure, "the new configuration is not used: the old one holds"),
        }
    }

    /// Makes what runs what the configuration says. Sources that nothing changes for are left alone; the others drain and start anew.
    pub(super) async fn apply(&mut self, config: Config) -> Result<(), Failure> {
        let config = Arc::new(config);
        // All plans first: if one of them cannot be made, nothing has been touched.
        let mut plans = BTreeMap::new();
        for (name, source) in &config.sources {
            if source.enabled {
                plans.insert(name.clone(), plan(&config, name, source, &self.seen.instruments)?);
            }
        }
        let old = self.config.replace(config.clone());
        // What is stopped now drains as the old one says.
        self.end_limit.set(end_limit(old.as_deref().into_iter().chain([&*config])));
        if old.as_ref().is_some_and(|old| (&old.operations, &old.log) != (&config.operations, &config.log)) {
            warn!("`operations` and `log` are read at the start only: restart the relay to change them");
        }
        let unchanged = |name: &String| old.as_ref().is_some_and(|old| old.says_the_same_of(name, &config));
        let stopping: Vec<_> = self.running.extract_if(.., |name, _| !unchanged(name)).collect();
        stopping.iter().for_each(|(_, running)| running.stop());
        for (name, running) in stopping {
            running.ended().await;
            self.seen.states.forget(&name);
        }
        for (name, source) in &config.sources {
            match plans.remove(name) {
                Some(plan) if !self.running.contains_key(name) => self.start(plan),
                Some(_) => {}
                None if !source.enabled => _ = self.seen.states.set(name, SourceState::Disabled),
                None => {}
            }
        }
        Ok(())
    }

    fn start(&mut self, plan: Plan) {
        self.seen.states.set(&plan.name, SourceState::Starting);
        let name = plan.name.clone();
        self.running.insert(name, Running::start(plan, self.seen.clone()));
    }

    /// Drains and ends all sources.
    pub(super) async fn stop(&mut self) {
        self.running.values().for_each(Running::stop);
        for (_, running) in std::mem::take(&mut self.running) {
            running.ended().await;
        }
    }
}
