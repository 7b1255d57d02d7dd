//! Events that fail without anybody knowing whether they or their receiver are the reason: since when, and how often.
//!
//! The clock runs as long as this process does; after a restart it begins anew.

use std::{collections::HashMap, time::Duration};

use postrider_core::EventId;
use tokio::time::Instant;

/// Most events that are remembered. One more has no clock, and waits for as long as it takes.
const EVENTS_MAX: usize = 10_000;

/// One that has not failed for so long is forgotten: it was delivered, or given to somebody else.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

/// That is looked for no more often than this: it means to look at all of them.
const TIDIED_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Failing {
    events: HashMap<EventId, Since>,
    /// When those that had not failed for long were last forgotten.
    tidied_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Since {
    first: Instant,
    last: Instant,
    times: u32,
    /// How many events its receiver had delivered when it first failed.
    delivered: u64,
}

/// What is known of an event that has failed once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    /// For how long it has been failing.
    pub(crate) lasts: Duration,
    /// How often it has.
    pub(crate) times: u32,
    /// How many events its receiver had delivered when it first did.
    pub(crate) delivered: u64,
}

impl Failing {
    /// An event has failed once more, at a receiver that has delivered so many.
    pub(crate) fn note(&mut self, id: &EventId, delivered: u64, now: Instant) -> Failure {
        if self.events.len() >= EVENTS_MAX && !self.events.contains_key(id) {
            if self.tidied_at.is_none_or(|at| now.saturating_duration_since(at) >= TIDIED_EVERY) {
                self.tidied_at = Some(now);
                self.events.retain(|_, known| now.saturating_duration_since(known.last) < FORGOTTEN_AFTER);
            }
            if self.events.len() >= EVENTS_MAX {
                return Failure { lasts: Duration::ZERO, times: 1, delivered };
            }
        }
        let first = Since { first: now, last: now, times: 0, delivered };
        let known = self.events.entry(id.clone()).or_insert(first);
        (known.last, known.times) = (now, known.times.saturating_add(1));
        let lasts = now.saturating_duration_since(known.first);
        Failure { lasts, times: known.times, delivered: known.delivered }
    }

    /// What is known of an event that has failed.
    pub(crate) fn of(&self, id: &EventId, now: Instant) -> Failure {
        self.events.get(id).map_or(
            Failure { lasts: Duration::ZERO, times: 1, delivered: u64::MAX },
            |known| Failure {
                lasts: now.saturating_duration_since(known.first),
                times: known.times,
                delivered: known.delivered,
            },
        )
    }

    /// It was decided what becomes of it.
    pub(crate) fn forget(&mut self, id: &EventId) {
        if !self.events.is_empty() {
            self.events.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_an_event_runs_from_its_first_failure_and_the_number_of_clocks_is_bounded() {
        let (mut failing, now) = (Failing::default(), Instant::now());
        let id = |n: usize| EventId::from(format!("event-{n}"));
        let failure = |seconds, times| Failure { lasts: Duration::from_secs(seconds), times, delivered: 7 };
        assert_eq!(failing.note(&id(0), 7, now), failure(0, 1));
        let later = now + Duration::from_secs(60);
        assert_eq!(failing.note(&id(0), 9, later), failure(60, 2));
        (1..20_000).for_each(|n| _ = failing.note(&id(n), 0, later));
        assert_eq!(failing.events.len(), EVENTS_MAX);
        // What has not failed for long gives its place to others.
        let much_later = later + FORGOTTEN_AFTER;
        assert_eq!(failing.note(&id(30_000), 7, much_later), failure(0, 1));
        assert_eq!(failing.events.len(), 1);
        failing.forget(&id(30_000));
        assert!(failing.events.is_empty());
    }
}
