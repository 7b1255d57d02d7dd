//! Remembers events that fail, since when and how often, where it is unknown whether they or their receiver are
//! the cause.
//!
//! The clocks run while this process does, and start anew after a restart.

use std::{collections::HashMap, time::Duration};

use postrider_core::EventId;
use tokio::time::Instant;

/// Most events that are remembered. Further ones have no clock, and wait for as long as it takes.
const EVENTS_MAX: usize = 10_000;

/// An event without a failure for this long is forgotten: it was delivered, or another instance has it.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

/// How often events are forgotten at most, since it means to look at all of them.
const TIDIED_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct FailingEvents {
    events: HashMap<EventId, Since>,
    /// When old events were last forgotten.
    tidied_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Since {
    first: Instant,
    last: Instant,
    times: u32,
    /// Whether it was only ever told to wait.
    only_deferred: bool,
    /// Since when it fails for unknown reasons, without an outage in between.
    unexplained: Option<Instant>,
    /// How many events its destination had taken when it last refused this one.
    taken: u64,
    /// Since when it is refused while others are taken, and how often.
    refused_alone: Option<(Instant, u32)>,
}

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// It is unknown whether the event or its receiver is the cause.
    Unexplained,
    /// The destination seemed to be down, after taking this many events.
    Refused(u64),
    /// The destination refused it and took another one meanwhile, after taking this many events.
    RefusedAlone(u64),
    /// The event was told to wait.
    Deferred,
    /// The event itself is the cause.
    Explained,
}

/// What is known of an event that failed once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FailureSummary {
    /// How long it has been failing.
    pub(crate) lasts: Duration,
    /// How often it has failed; many times if it cannot be remembered.
    pub(crate) times: u32,
    /// How long it has been failing for unknown reasons.
    pub(crate) unexplained: Duration,
    /// How long it has been refused while others were taken, and how often.
    pub(crate) refused_alone: (Duration, u32),
}

impl FailingEvents {
    /// Records a failure. If its destination fails for others too, the event was not refused alone.
    pub(crate) fn note(&mut self, id: &EventId, (kind, is_out): (FailureKind, bool), now: Instant) {
        if self.is_full() && !self.events.contains_key(id) {
            if self.tidied_at.is_none_or(|at| now.saturating_duration_since(at) >= TIDIED_EVERY) {
                self.tidied_at = Some(now);
                self.events.retain(|_, known| now.saturating_duration_since(known.last) < FORGOTTEN_AFTER);
            }
            if self.is_full() {
                return;
            }
        }
        let first = Since {
            first: now,
            last: now,
            times: 0,
            only_deferred: true,
            unexplained: None,
            taken: u64::MAX,
            refused_alone: None,
        };
        let known = self.events.entry(id.clone()).or_insert(first);
        if is_out {
            (known.unexplained, known.refused_alone) = (None, None);
        }
        (known.last, known.times) = (now, known.times.saturating_add(1));
        known.only_deferred &= kind == FailureKind::Deferred;
        known.unexplained = (kind == FailureKind::Unexplained).then(|| known.unexplained.unwrap_or(now));
        if let FailureKind::Refused(taken) | FailureKind::RefusedAlone(taken) = kind {
            // If nothing was taken in between or beside it, all were refused.
            if taken > known.taken || kind == FailureKind::RefusedAlone(taken) {
                let (since, times) = known.refused_alone.unwrap_or((now, 0));
                known.refused_alone = Some((since, times.saturating_add(1)));
            }
            known.taken = taken;
        }
    }

    /// Whether no event has failed lately.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether no more events can be remembered.
    fn is_full(&self) -> bool {
        self.events.len() >= EVENTS_MAX
    }

    /// Returns whether an event has failed in this process since its last delivery, and whether it was only
    /// told to wait.
    pub(crate) fn has(&self, id: &EventId) -> (bool, bool) {
        self.events.get(id).map_or((false, false), |known| (true, known.only_deferred))
    }

    /// Returns what is known of an event.
    pub(crate) fn of(&self, id: &EventId, now: Instant) -> FailureSummary {
        let since = |at: Instant| now.saturating_duration_since(at);
        let known = self.events.get(id);
        FailureSummary {
            lasts: known.map_or(Duration::ZERO, |known| since(known.first)),
            times: known.map_or(if self.is_full() { u32::MAX } else { 1 }, |known| known.times),
            unexplained: known.and_then(|known| known.unexplained).map_or(Duration::ZERO, since),
            refused_alone: known
                .and_then(|known| known.refused_alone)
                .map_or((Duration::ZERO, 0), |(at, times)| (since(at), times)),
        }
    }

    /// Forgets an event that was delivered or is dead.
    pub(crate) fn forget(&mut self, id: &EventId) {
        if !self.events.is_empty() {
            self.events.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn id(n: usize) -> EventId {
        EventId::from(format!("event-{n}"))
    }

    #[test]
    fn the_number_of_clocks_is_bounded_and_what_has_not_failed_for_long_gives_its_place_to_others() {
        let (mut failing, now) = (FailingEvents::default(), Instant::now());
        (0..20_000).for_each(|n| failing.note(&id(n), (FailureKind::Explained, false), now));
        assert_eq!(failing.events.len(), EVENTS_MAX);
        failing.note(&id(30_000), (FailureKind::Explained, false), now + FORGOTTEN_AFTER);
        assert_eq!(failing.events.len(), 1);
        failing.forget(&id(30_000));
        assert!(failing.events.is_empty());
    }

    #[test]
    fn an_outage_ends_the_clock_of_what_nobody_can_explain() {
        let (mut failing, now) = (FailingEvents::default(), Instant::now());
        failing.note(&id(0), (FailureKind::Unexplained, false), now);
        failing.note(&id(0), (FailureKind::Unexplained, false), now + MINUTE);
        assert_eq!(failing.of(&id(0), now + MINUTE).unexplained, MINUTE);
        failing.note(&id(0), (FailureKind::Refused(0), false), now + 2 * MINUTE);
        failing.note(&id(0), (FailureKind::Unexplained, false), now + 3 * MINUTE);
        let failure = failing.of(&id(0), now + 3 * MINUTE);
        assert_eq!((failure.unexplained, failure.lasts, failure.times), (Duration::ZERO, 3 * MINUTE, 4));
    }

    #[test]
    fn what_was_only_told_to_wait_has_not_failed_by_itself() {
        let (mut failing, now) = (FailingEvents::default(), Instant::now());
        assert_eq!(failing.has(&id(0)), (false, false));
        failing.note(&id(0), (FailureKind::Deferred, false), now);
        assert_eq!(failing.has(&id(0)), (true, true));
        failing.note(&id(0), (FailureKind::Explained, false), now);
        failing.note(&id(0), (FailureKind::Deferred, false), now);
        assert_eq!(failing.has(&id(0)), (true, false));
    }

    #[test]
    fn an_event_is_refused_alone_only_while_others_are_taken_between_its_refusals() {
        let (mut failing, now) = (FailingEvents::default(), Instant::now());
        for (minute, taken) in [(0, 5), (1, 6), (2, 9)] {
            failing.note(&id(0), (FailureKind::Refused(taken), false), now + minute * MINUTE);
        }
        assert_eq!(failing.of(&id(0), now + 2 * MINUTE).refused_alone, (MINUTE, 2));
        failing.note(&id(0), (FailureKind::Refused(9), false), now + 3 * MINUTE);
        assert_eq!(
            failing.of(&id(0), now + 3 * MINUTE).refused_alone,
            (2 * MINUTE, 2),
            "all were refused this time"
        );
    }

    #[test]
    fn an_event_that_was_refused_with_others_begins_anew() {
        let (mut failing, now) = (FailingEvents::default(), Instant::now());
        for (minute, taken) in [(0, 5), (1, 6)] {
            failing.note(&id(0), (FailureKind::RefusedAlone(taken), false), now + minute * MINUTE);
        }
        assert_eq!(failing.of(&id(0), now + MINUTE).refused_alone, (MINUTE, 2));
        failing.note(&id(0), (FailureKind::Refused(6), true), now + 2 * MINUTE);
        assert_eq!(failing.of(&id(0), now + 2 * MINUTE).refused_alone, (Duration::ZERO, 0));
        failing.note(&id(0), (FailureKind::RefusedAlone(7), false), now + 3 * MINUTE);
        assert_eq!(failing.of(&id(0), now + 4 * MINUTE).refused_alone, (MINUTE, 1));
    }

    #[test]
    fn what_is_taken_beside_an_event_that_is_refused_counts_once() {
        let (mut failing, now) = (FailingEvents::default(), Instant::now());
        failing.note(&id(0), (FailureKind::RefusedAlone(5), false), now);
        assert_eq!(
            failing.of(&id(0), now + MINUTE).refused_alone,
            (MINUTE, 1),
            "the first refusal starts the clock"
        );
        failing.note(&id(0), (FailureKind::Refused(5), false), now + MINUTE);
        assert_eq!(failing.of(&id(0), now + MINUTE).refused_alone, (MINUTE, 1), "nothing was taken since");
    }
}
