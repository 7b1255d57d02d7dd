//! What holds for one route, when all that is inherited is taken into account.

use std::time::Duration;

use serde::Serialize;

use super::{
    Config, Overrides, Route, Source, Span,
    route::{DeadHeads, Longest},
};

/// What holds for one route.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Effective {
    /// The sink's own limit, if nothing is said.
    pub(crate) batch: Option<usize>,
    pub(crate) pace: Option<Span>,
    pub(crate) attempts: u32,
    pub(crate) backoff: EffectiveBackoff,
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
    pub(crate) fn of(config: &Config, source: &Source, route: &Route, built_in: &Overrides) -> Self {
        let said = [&route.overrides(), &source.defaults, &config.defaults, built_in];
        let backoffs = || said.iter().filter_map(|level| level.backoff.as_ref());
        let of_backoff = EffectiveBackoff {
            enabled: backoffs().find_map(|level| level.enabled).unwrap_or(true),
            delay: backoffs().find_map(|level| level.delay).unwrap_or(Span(Duration::from_millis(200))),
            multiplier: backoffs().find_map(|level| level.multiplier).unwrap_or(2.0),
            max: backoffs()
                .find_map(|level| level.max)
                .unwrap_or(Longest::Wait(Span(Duration::from_secs(60)))),
            jitter: backoffs().find_map(|level| level.jitter).unwrap_or(true),
        };
        Self {
            batch: said.iter().find_map(|level| level.batch),
            pace: said.iter().find_map(|level| level.pace),
            attempts: said.iter().find_map(|level| level.attempts).unwrap_or(10),
            backoff: of_backoff,
            dead_heads: said.iter().find_map(|level| level.dead_heads).unwrap_or(DeadHeads::Block),
        }
    }
}
