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
pub(crate) struct FailingEvents {
    events: HashMap<EventId, Since>,
    /// When those that had not failed for long were last forgotten.
    tidied_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Since {
    first: Instant,
    last: Instant,
    times: u32,
    /// All that was said of it is that it has to wait.
    only_deferred: bool,
    /// Since when it has failed without a reason that anybody knows, and without an outage in between.
    unexplained: Option<Instant>,
    /// How many events its destination had taken when it refused this one last.
    taken: u64,
    /// Since when it has been refused while others were taken, and how often.
    alone: Option<(Instant, u32)>,
}

/// What a failure was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// Nobody knows whether the event or its receiver is the reason.
    Unexplained,
    /// The destination seemed to be down, and had taken so many events by then.
    Refused(u64),
    /// The destination refused it and took another one meanwhile. It had taken so many events by then.
    RefusedAlone(u64),
    /// The event was told to wait.
    PutOff,
    /// The event failed by itself.
    Explained,
}

/// What is known of an event that has failed once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FailureSummary {
    /// For how long it has been failing.
    pub(crate) lasts: Duration,
    /// How often it has; as if it were often where that cannot be remembered.
    pub(crate) times: u32,
    /// For how long it has been failing without a reason that anybody knows.
    pub(crate) unexplained: Duration,
    /// For how long it has been refused while others were taken, and how often.
    pub(crate) alone: (Duration, u32),
}

impl FailingEvents {
    /// An event has failed once more. Where its destination is out for others too, it was not refused alone.
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
            alone: None,
        };
        let known = self.events.entry(id.clone()).or_insert(first);
        if is_out {
            (known.unexplained, known.alone) = (None, None);
        }
        (known.last, known.times) = (now, known.times.saturating_add(1));
        known.only_deferred &= kind == FailureKind::PutOff;
        known.unexplained = (kind == FailureKind::Unexplained).then(|| known.unexplained.unwrap_or(now));
        if let FailureKind::Refused(taken) | FailureKind::RefusedAlone(taken) = kind {
            // Where nothing was taken in between or beside it, all were refused.
            if taken > known.taken || kind == FailureKind::RefusedAlone(taken) {
                let (since, times) = known.alone.unwrap_or((now, 0));
                known.alone = Some((since, times.saturating_add(1)));
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

    /// Whether an event has failed in this process, and not been delivered since; and whether it was only told to wait.
    pub(crate) fn has(&self, id: &EventId) -> (bool, bool) {
        self.events.get(id).map_or((false, false), |known| (true, known.only_deferred))
    }

    /// What is known of an event that has failed.
    pub(crate) fn of(&self, id: &EventId, now: Instant) -> FailureSummary {
        let since = |at: Instant| now.saturating_duration_since(at);
        let known = self.events.get(id);
        FailureSummary {
            lasts: known.map_or(Duration::ZERO, |known| since(known.first)),
            times: known.map_or(if self.is_full() { u32::MAX } else { 1 }, |known| known.times),
            unexplained: known.and_then(|known| known.unexplained).map_or(Duration::ZERO, since),
            alone: known
                .and_then(|known| known.alone)
                .map_or((Duration::ZERO, 0), |(at, times)| (since(at), times)),
        }
    }

    /// It was delivered, or is dead.
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
        failing.note(&id(0), (FailureKind::PutOff, false), now);
        assert_eq!(failing.has(&id(0)), (true, true));
        failing.note(&id(0), (FailureKind::Explained, false), now);
        failing.note(&id(0), (FailureKind::PutOff, false), now);
        assert_eq!(failing.has(&id(0)), (true, false));
    }

    #[test]
    fn an_event_is_refused_alone_only_while_others_are_taken_between_its_refusals() {
        let (mut failing, now) = (FailingEvents::default(), Instant::now());
        for (minute, taken) in [(0, 5), (1, 6), (2, 9)] {
            failing.note(&id(0), (FailureKind::Refused(taken), false), now + minute * MINUTE);
        }
        assert_eq!(failing.of(&id(0), now + 2 * MINUTE).alone, (MINUTE, 2));
        failing.note(&id(0), (FailureKind::Refused(9), false), now + 3 * MINUTE);
        assert_eq!(failing.of(&id(0), now + 3 * MINUTE).alone, (2 * MINUTE, 2), "all were refused this time");
    }

    #[test]
    fn an_event_that_was_refused_with_others_begins_anew() {
        let (mut failing, now) = (FailingEvents::default(), Instant::now());
        for (minute, taken) in [(0, 5), (1, 6)] {
            failing.note(&id(0), (FailureKind::RefusedAlone(taken), false), now + minute * MINUTE);
        }
        assert_eq!(failing.of(&id(0), now + MINUTE).alone, (MINUTE, 2));
        failing.note(&id(0), (FailureKind::Refused(6), true), now + 2 * MINUTE);
        assert_eq!(failing.of(&id(0), now + 2 * MINUTE).alone, (Duration::ZERO, 0));
        failing.note(&id(0), (FailureKind::RefusedAlone(7), false), now + 3 * MINUTE);
        assert_eq!(failing.of(&id(0), now + 4 * MINUTE).alone, (MINUTE, 1));
    }

    #[test]
    fn what_is_taken_beside_an_event_that_is_refused_counts_once() {
        let (mut failing, now) = (FailingEvents::default(), Instant::now());
        failing.note(&id(0), (FailureKind::RefusedAlone(5), false), now);
        assert_eq!(failing.of(&id(0), now + MINUTE).alone, (MINUTE, 1), "the first refusal starts the clock");
        failing.note(&id(0), (FailureKind::Refused(5), false), now + MINUTE);
        assert_eq!(failing.of(&id(0), now + MINUTE).alone, (MINUTE, 1), "nothing was taken since");
    }
}
