//! Logs of a relay: to stderr, as lines for people or as JSON.

use tracing_subscriber::EnvFilter;

use crate::{
    LOG_VARIABLE,
    config::{Log, LogFormat},
    failure::Failure,
};

/// Begins to log as the configuration says; the environment has the last word on the level.
pub(crate) fn start(log: &Log) -> Result<(), Failure> {
    let wanted = std::env::var(LOG_VARIABLE).ok().filter(|wanted| !wanted.trim().is_empty());
    let level = wanted.as_deref().unwrap_or(&log.level);
    let filter = EnvFilter::builder().parse(level).map_err(|error| {
        Failure::usage(format!("`log.level` is not a filter: {error}"))
            .hint("give a level such as info, or a part and a level such as postrider_engine=debug")
    })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    started.map_err(|error| Failure::usage(format!("cannot begin to log: {error}")))
}
