//! The effective settings of a route: its own, its source's, the file's and the built-in ones combined.

use std::time::Duration;

use postrider::store::Defaults;
use serde::Serialize;

use super::{
    Config, Overrides, Route, Source, Span,
    route::{Longest, OnDead},
};

/// The built-in settings of a source: the relay's for its own tables, or those of the system that owns an external table.
#[derive(Debug, Clone)]
pub(crate) struct BuiltIn {
    pub(crate) defaults: Defaults,
    pub(crate) on_dead: OnDead,
}

impl BuiltIn {
    /// For Postrider's own tables: the library's defaults, except for the two in which a relay differs.
    pub(crate) fn own() -> Self {
        Self {
            defaults: Defaults {
                poll_max: Duration::from_secs(1),
                claim_batch: 500,
                max_attempts: 10,
                retry: postrider::Backoff::default(),
            },
            on_dead: OnDead::Block,
        }
    }

    /// For the table of a system with these defaults. Such a table has no room for keys that wait behind a dead event.
    pub(crate) fn of_system(defaults: Defaults) -> Self {
        Self { defaults, on_dead: OnDead::Skip }
    }
}

/// The effective settings of a route.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Effective {
    /// `None`: the sink's own limit.
    pub(crate) batch: Option<usize>,
    pub(crate) pace: Option<Span>,
    pub(crate) attempts: u32,
    pub(crate) backoff: EffectiveBackoff,
    pub(crate) unavailable_for: Span,
    pub(crate) on_dead: OnDead,
}

/// The effective wait of a failed event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct EffectiveBackoff {
    pub(crate) enabled: bool,
    pub(crate) delay: Span,
    pub(crate) multiplier: f64,
    pub(crate) max: Longest,
    pub(crate) jitter: bool,
}

impl Effective {
    /// Combines the levels: the route, then its source, then the file, then what is built in.
    pub(crate) fn of(config: &Config, source: &Source, route: &Route, built_in: &BuiltIn) -> Self {
        let levels = [&route.overrides(), &source.defaults, &config.defaults];
        Self {
            batch: first(&levels, |level| level.batch),
            pace: first(&levels, |level| level.pace),
            attempts: first(&levels, |level| level.attempts).unwrap_or(built_in.defaults.max_attempts),
            backoff: EffectiveBackoff::of(&levels, &built_in.defaults),
            unavailable_for: first(&levels, |level| level.unavailable_for)
                .unwrap_or(Span(postrider::Settings::default().unavailable_for)),
            on_dead: first(&levels, |level| level.on_dead).unwrap_or(built_in.on_dead),
        }
    }
}

impl EffectiveBackoff {
    fn of(levels: &[&Overrides], defaults: &Defaults) -> Self {
        let usual = defaults.retry.terms();
        Self {
            enabled: first(levels, |level| level.backoff.as_ref()?.enabled).unwrap_or(true),
            delay: first(levels, |level| level.backoff.as_ref()?.delay).unwrap_or(Span(usual.base)),
            multiplier: first(levels, |level| level.backoff.as_ref()?.multiplier).unwrap_or(usual.multiplier),
            max: first(levels, |level| level.backoff.as_ref()?.max)
                .unwrap_or_else(|| usual.max.map_or(Longest::None, |max| Longest::Wait(Span(max)))),
            jitter: first(levels, |level| level.backoff.as_ref()?.jitter).unwrap_or(usual.jitter),
        }
    }
}

/// The value of the innermost level that sets it.
fn first<T>(levels: &[&Overrides], of: impl Fn(&Overrides) -> Option<T>) -> Option<T> {
    levels.iter().find_map(|level| of(level))
}
