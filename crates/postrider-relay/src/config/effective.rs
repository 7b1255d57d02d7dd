//! What holds for one route, when all that is inherited is taken into account.

use std::time::Duration;

use postrider::store::Defaults;
use serde::Serialize;

use super::{
    Config, Overrides, Route, Source, Span,
    route::{DeadHeads, Longest},
};

/// What is built in for a source: what a relay takes for its own tables, or what the system has whose table it is.
#[derive(Debug, Clone)]
pub(crate) struct BuiltIn {
    pub(crate) defaults: Defaults,
    pub(crate) dead_heads: DeadHeads,
}

impl BuiltIn {
    /// For Postrider's own tables: of every setting the usual, but for the two in which a relay differs from a library.
    pub(crate) fn own() -> Self {
        Self {
            defaults: Defaults {
                poll_max: Duration::from_secs(1),
                claim_batch: 500,
                max_attempts: 10,
                retry: postrider::Backoff::default(),
            },
            dead_heads: DeadHeads::Block,
        }
    }

    /// For the table of a system with these defaults. No key waits behind a dead event there: there is no room to say so.
    pub(crate) fn of_system(defaults: Defaults) -> Self {
        Self { defaults, dead_heads: DeadHeads::Skip }
    }
}

/// What holds for one route.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Effective {
    /// The sink's own limit, if nothing is said.
    pub(crate) batch: Option<usize>,
    pub(crate) pace: Option<Span>,
    pub(crate) attempts: u32,
    pub(crate) backoff: EffectiveBackoff,
    pub(crate) unavailable_for: Span,
    pub(crate) dead_heads: DeadHeads,
}

/// How long a failed event waits, with nothing left open.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct EffectiveBackoff {
    pub(crate) enabled: bool,
    pub(crate) delay: Span,
    pub(crate) multiplier: f64,
    pub(crate) max: Longest,
    pub(crate) jitter: bool,
}

impl Effective {
    /// What holds for a route: what it says itself, else its source, else the file, else what is built in.
    pub(crate) fn of(config: &Config, source: &Source, route: &Route, built_in: &BuiltIn) -> Self {
        let said = [&route.overrides(), &source.defaults, &config.defaults];
        Self {
            batch: first(&said, |level| level.batch),
            pace: first(&said, |level| level.pace),
            attempts: first(&said, |level| level.attempts).unwrap_or(built_in.defaults.max_attempts),
            backoff: EffectiveBackoff::of(&said, &built_in.defaults),
            unavailable_for: first(&said, |level| level.unavailable_for)
                .unwrap_or(Span(postrider::Settings::default().unavailable_for)),
            dead_heads: first(&said, |level| level.dead_heads).unwrap_or(built_in.dead_heads),
        }
    }
}

impl EffectiveBackoff {
    fn of(said: &[&Overrides], defaults: &Defaults) -> Self {
        let usual = defaults.retry.terms();
        Self {
            enabled: first(said, |level| level.backoff.as_ref()?.enabled).unwrap_or(true),
            delay: first(said, |level| level.backoff.as_ref()?.delay).unwrap_or(Span(usual.base)),
            multiplier: first(said, |level| level.backoff.as_ref()?.multiplier).unwrap_or(usual.multiplier),
            max: first(said, |level| level.backoff.as_ref()?.max)
                .unwrap_or_else(|| usual.max.map_or(Longest::None, |max| Longest::Wait(Span(max)))),
            jitter: first(said, |level| level.backoff.as_ref()?.jitter).unwrap_or(usual.jitter),
        }
    }
}

/// What the innermost level says that says anything.
fn first<T>(levels: &[&Overrides], of: impl Fn(&Overrides) -> Option<T>) -> Option<T> {
    levels.iter().find_map(|level| of(level))
}
