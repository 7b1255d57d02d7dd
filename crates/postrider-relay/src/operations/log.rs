//! Logs: to stderr, as lines for people or as JSON.

use std::io::{IsTerminal, Stderr, stderr};

use tracing_subscriber::{
    EnvFilter,
    filter::ParseError,
    fmt::{
        SubscriberBuilder,
        format::{DefaultFields, Format},
    },
};

use crate::{
    LOG_VARIABLE,
    config::{Log, LogFormat},
    failure::Failure,
};

/// What keeps payloads of events out of logs, whatever level is asked for: lapin warns of each message that no queue took with all of its
/// body, and traces frames with theirs. What became of an event is told by the engine, without its payload.
const NO_PAYLOADS: [&str; 3] = ["lapin::returned_messages=off", "lapin::frames=off", "lapin::channels=error"];

/// Begins to log as the configuration says; the environment has the last word on the level.
pub(crate) fn start(log: &Log) -> Result<(), Failure> {
    let builder = lines().with_env_filter(wanted("`log.level`", &log.level)?);
    let started = match log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    started.map_err(|error| Failure::usage(format!("cannot begin to log: {error}")))
}

/// Begins to log for a command that reads no configuration for it.
pub(crate) fn start_at(default: &str) -> Result<(), Failure> {
    let filter = wanted(LOG_VARIABLE, default)?;
    lines().with_env_filter(filter).init();
    Ok(())
}

/// Lines to stderr, in colours where somebody looks at it. If nobody reads it any more, nothing is said of that: telling stderr would fail
/// too, as a panic of whoever had something to log.
fn lines() -> SubscriberBuilder<DefaultFields, Format, EnvFilter, fn() -> Stderr> {
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && stderr().is_terminal();
    let stderr: fn() -> Stderr = stderr;
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::default())
        .with_writer(stderr)
        .with_ansi(colours)
        .log_internal_errors(false)
}

/// What the environment asks for, or else the default.
fn wanted(setting: &str, default: &str) -> Result<EnvFilter, Failure> {
    let wanted = std::env::var(LOG_VARIABLE).ok().filter(|wanted| !wanted.trim().is_empty());
    let setting = if wanted.is_some() { LOG_VARIABLE } else { setting };
    filter(wanted.as_deref().unwrap_or(default)).map_err(|error| {
        Failure::usage(format!("{setting} is not a filter: {error}"))
            .hint("give a level such as info, or a part and a level such as postrider_engine=debug")
    })
}

fn filter(text: &str) -> Result<EnvFilter, ParseError> {
    let filter = EnvFilter::builder().parse(text)?;
    NO_PAYLOADS.iter().try_fold(filter, |filter, directive| Ok(filter.add_directive(directive.parse()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_logs_payloads_is_off_whatever_is_asked_for() {
        for text in ["error", "trace", "lapin=trace", "warn,lapin::returned_messages=warn"] {
            let shown = filter(text).unwrap().to_string();
            for directive in NO_PAYLOADS {
                let (part, _) = directive.split_once('=').unwrap();
                assert!(shown.contains(directive) && shown.matches(part).count() == 1, "{text}: {shown}");
            }
        }
    }
}
