//! The running relay, and how it changes when its configuration is read again.

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

/// The state of a relay that operators see. Cloning copies pointers.
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

    /// Reads the configuration again; an invalid one changes nothing. Always reopens the files of sinks, because log rotation asks for it
    /// with the same signal.
    pub(super) async fn reload(&mut self) {
        self.running.values().for_each(Running::reopen_files);
        let applied = match config::load(&self.file) {
            Ok(config) => self.apply(config).await,
            Err(problems) => Err(Failure::configuration(problems)),
        };
        match applied {
            Ok(()) => info!("configuration reloaded"),
            Err(failure) => error!(%failure, "configuration not reloaded: the old one stays in use"),
        }
    }

    /// Applies a configuration. Unchanged sources keep running; the others drain and start again.
    pub(super) async fn apply(&mut self, config: Config) -> Result<(), Failure> {
        let config = Arc::new(config);
        // Make all plans first: if one fails, nothing has changed.
        let mut plans = BTreeMap::new();
        for (name, source) in &config.sources {
            if source.enabled {
                plans.insert(name.clone(), plan(&config, name, source, &self.seen.instruments)?);
            }
        }
        let old = self.config.replace(config.clone());
        // A source that stops now drains as its old configuration says.
        self.end_limit.set(end_limit(old.as_deref().into_iter().chain([&*config])));
        if old.as_ref().is_some_and(|old| (&old.operations, &old.log) != (&config.operations, &config.log)) {
            warn!("`operations` and `log` are read only at the start: restart the relay to change them");
        }
        let unchanged = |name: &String| old.as_ref().is_some_and(|old| old.is_equal_for(name, &config));
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

    /// Drains and stops all sources.
    pub(super) async fn stop(&mut self) {
        self.running.values().for_each(Running::stop);
        for (_, running) in std::mem::take(&mut self.running) {
            running.ended().await;
        }
    }
}
