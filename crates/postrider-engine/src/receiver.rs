//! What is known of one receiver: whether it is there, and how much is being sent to it.
//!
//! A handler in this process is always there, unless it says that it is not. An outside system may be down in many ways, and an attempt
//! that failed counts only if it was shown to be alive since the attempt began: an event of another key was delivered, or its health
//! check passed. Everything else is an outage, which costs no event an attempt.

use std::time::Duration;

use postrider_core::{BatchOrder, Outcome, SinkTraits, rng::Rng};
use tokio::time::Instant;

use crate::{
    breaker::Breaker,
    broken::{self, Variant},
};

/// So many keys in a row that failed, with nothing delivered in between, are an outage.
const FAILING_KEYS: usize = 5;

/// What an outcome means for the event that it was said of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ruling {
    /// It stands as it was said.
    Stands,
    /// A failed attempt, and it counts.
    Counts,
    /// A failed attempt that may have been the receiver's fault: it does not count. So many in a row were.
    Excused(u32),
    /// The receiver is down for so long at least; whether that is news.
    Down { pause: Duration, news: bool },
}

pub(crate) struct Receiver {
    breaker: Breaker,
    in_process: bool,
    /// Most events in one batch.
    pub(crate) batch_max: usize,
    /// Most events of one key in one batch.
    pub(crate) key_max: usize,
    /// Sends under way, and most of them at a time, if it says so.
    pub(crate) busy: usize,
    pub(crate) concurrent: Option<usize>,
    /// Least time for each event, and when the next may be sent for that reason.
    spacing: Duration,
    not_before: Option<Instant>,
    /// Whether what was sent last was a suspect.
    pub(crate) suspect_went_last: bool,
    /// Counts what was delivered.
    delivered: u64,
    /// The key of the last event that was delivered, and the count at the last one of another key.
    last_key: u64,
    others_until: u64,
    /// Keys that failed since something was delivered, and how often.
    failing: Vec<u64>,
    failures: u32,
    /// How many events it was sent the last time, one after the other, and how long that took.
    pace: (usize, Duration),
}

impl Receiver {
    pub(crate) fn new(traits: SinkTraits) -> Self {
        Self {
            breaker: Breaker::new(),
            in_process: traits.in_process,
            batch_max: traits.batch_max.max(1),
            key_max: match traits.order {
                BatchOrder::Prefix => traits.key_max.clamp(1, traits.batch_max.max(1)),
                BatchOrder::Independent => 1,
            },
            busy: 0,
            concurrent: traits.concurrent.map(|most| most.max(1)),
            spacing: traits.spacing,
            not_before: None,
            suspect_went_last: false,
            delivered: 0,
            last_key: 0,
            others_until: 0,
            failing: Vec::new(),
            failures: 0,
            pace: (0, Duration::ZERO),
        }
    }

    pub(crate) fn is_in_process(&self) -> bool {
        self.in_process
    }

    /// Whether nothing is known against it.
    pub(crate) fn is_up(&self) -> bool {
        self.breaker.is_closed()
    }

    /// Whether something may be sent now.
    pub(crate) fn lets_through(&self, now: Instant) -> bool {
        self.breaker.lets_through(now) && self.not_before.is_none_or(|at| at <= now)
    }

    /// When it will let something through, if it does not now.
    pub(crate) fn opens_at(&self, now: Instant) -> Option<Instant> {
        let rate = self.not_before.filter(|at| *at > now);
        self.breaker.opens_at(now).max(rate)
    }

    /// So many events are about to be sent: the next ones have to leave room for them.
    pub(crate) fn spaced(&mut self, events: usize, now: Instant) {
        if !self.spacing.is_zero() {
            let room = self.spacing.saturating_mul(u32::try_from(events).unwrap_or(u32::MAX));
            self.not_before = Some(self.not_before.map_or(now, |at| at.max(now)) + room);
        }
    }

    /// Something is being sent. Gives the moment to name when its outcome is ruled on.
    pub(crate) fn sending(&mut self) -> u64 {
        self.busy += 1;
        self.suspect_went_last = false;
        self.breaker.sending();
        self.delivered
    }

    /// What was to be sent has ended, one way or another. A probe that nobody has ruled on by now was never sent.
    pub(crate) fn ended(&mut self, probe: bool, now: Instant) {
        self.busy = self.busy.saturating_sub(1);
        if probe {
            self.breaker.not_sent(now);
        }
    }

    /// So many events were sent one after the other, and took so long.
    pub(crate) fn note_pace(&mut self, events: usize, took: Duration) {
        if events > 0 {
            self.pace = (events, took);
        }
    }

    /// How many events it was sent in such a time, the last time. None if that is not known: a clock that stands still tells nothing.
    pub(crate) fn sent_within(&self, time: Duration) -> usize {
        let (events, took) = self.pace;
        let sent = (events as u128 * time.as_nanos()).checked_div(took.as_nanos()).unwrap_or(0);
        usize::try_from(sent).unwrap_or(usize::MAX)
    }

    /// Forgets everything but what it is.
    pub(crate) fn reset(&mut self) {
        (self.breaker, self.busy, self.not_before) = (Breaker::new(), 0, None);
    }

    /// An event of this key was delivered.
    pub(crate) fn note_delivered(&mut self, key: u64) {
        if key != self.last_key {
            self.others_until = self.delivered;
            self.last_key = key;
        }
        self.delivered += 1;
        self.answered();
    }

    fn answered(&mut self) {
        self.failing.clear();
        self.failures = 0;
        self.breaker.answered();
    }

    /// Whether an event of another key was delivered since.
    fn is_alive_for(&self, key: u64, since: u64) -> bool {
        let last_of_others = if key == self.last_key { self.others_until } else { self.delivered };
        last_of_others > since || broken::is(Variant::OutageCounts)
    }

    /// Whether only its health check can tell if this failure counts.
    pub(crate) fn has_to_be_asked(&self, outcome: &Outcome, key: u64, since: u64) -> bool {
        let failed = matches!(outcome, Outcome::Retry { .. } | Outcome::Unknown { .. });
        failed && !self.in_process && self.is_up() && !self.is_alive_for(key, since)
    }

    /// Rules on an outcome that is not `Delivered`. `healthy` says that the health check passed since.
    pub(crate) fn rule(
        &mut self,
        outcome: &Outcome,
        key: u64,
        since: u64,
        healthy: bool,
        now: Instant,
        rng: &mut Rng,
    ) -> Ruling {
        let alive = self.is_alive_for(key, since);
        match outcome {
            // One event that upsets a receiver which takes others is a failure of that event.
            Outcome::Unavailable { .. } if alive => Ruling::Counts,
            Outcome::Unavailable { .. } => self.down(now, rng),
            Outcome::Retry { .. } | Outcome::Unknown { .. } if self.in_process => {
                // A probe that nobody answered is no sign of life.
                if matches!(outcome, Outcome::Unknown { .. }) && !self.is_up() {
                    return self.down(now, rng);
                }
                self.answered();
                Ruling::Counts
            }
            Outcome::Retry { .. } | Outcome::Unknown { .. } if alive => Ruling::Counts,
            Outcome::Retry { .. } | Outcome::Unknown { .. } => {
                self.failures = self.failures.saturating_add(1);
                if !self.failing.contains(&key) {
                    self.failing.push(key);
                }
                if !self.is_up() || self.failing.len() >= FAILING_KEYS {
                    self.failing.clear();
                    return self.down(now, rng);
                }
                if healthy { Ruling::Counts } else { Ruling::Excused(self.failures) }
            }
            // What is put off for no time was not sent, because of what stands before it: nobody has answered.
            Outcome::Deferred { after } if after.is_zero() && !self.in_process => {
                if !self.is_up() {
                    self.breaker.refused(now, rng);
                }
                Ruling::Stands
            }
            _ => {
                self.answered();
                Ruling::Stands
            }
        }
    }

    fn down(&mut self, now: Instant, rng: &mut Rng) -> Ruling {
        let news = self.is_up();
        Ruling::Down { pause: self.breaker.refused(now, rng), news }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(receiver: &mut Receiver, outcome: &Outcome, key: u64, since: u64) -> Ruling {
        receiver.rule(outcome, key, since, false, Instant::now(), &mut Rng::seeded(1))
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_at_an_outside_system_counts_only_if_another_key_was_delivered_since() {
        let mut sink = Receiver::new(SinkTraits::SINK);
        let failed = Outcome::retry("500");
        sink.note_delivered(2);
        let since = sink.sending();
        assert_eq!(rule(&mut sink, &failed, 1, since), Ruling::Excused(1));
        sink.note_delivered(1);
        assert_eq!(rule(&mut sink, &failed, 1, since), Ruling::Excused(1), "its own key says nothing");
        sink.note_delivered(2);
        assert_eq!(rule(&mut sink, &failed, 1, since), Ruling::Counts);
        sink.note_delivered(1);
        assert_eq!(
            rule(&mut sink, &failed, 1, since),
            Ruling::Counts,
            "another key was delivered before its own"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_outside_system_was_not_sent_is_no_sign_of_life() {
        let mut sink = Receiver::new(SinkTraits::SINK);
        for key in 0..FAILING_KEYS as u64 {
            rule(&mut sink, &Outcome::unknown("no answer"), key, 0);
        }
        assert!(!sink.is_up());
        // The rest of a batch whose first events were not answered.
        assert_eq!(rule(&mut sink, &Outcome::deferred(Duration::ZERO), 99, 0), Ruling::Stands);
        assert!(!sink.is_up() && !sink.lets_through(Instant::now()));
        // A receiver that says when to come again has answered.
        assert_eq!(rule(&mut sink, &Outcome::deferred(Duration::from_secs(1)), 99, 0), Ruling::Stands);
        assert!(sink.is_up());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_several_keys_in_a_row_are_an_outage_and_those_of_one_key_are_not() {
        let mut sink = Receiver::new(SinkTraits::SINK);
        let unknown = Outcome::unknown("no answer");
        for n in 1..20 {
            assert_eq!(rule(&mut sink, &unknown, 1, 0), Ruling::Excused(n));
        }
        for key in 2..FAILING_KEYS as u64 {
            assert!(matches!(rule(&mut sink, &unknown, key, 0), Ruling::Excused(_)));
        }
        assert!(matches!(rule(&mut sink, &unknown, 99, 0), Ruling::Down { news: true, .. }));
        assert!(!sink.is_up());
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_is_refused_while_others_are_delivered_does_not_open_the_breaker() {
        for traits in [SinkTraits::SINK, SinkTraits::HANDLER] {
            let mut receiver = Receiver::new(traits);
            let (since, refused) = (receiver.sending(), Outcome::unavailable("503"));
            receiver.note_delivered(2);
            assert_eq!(rule(&mut receiver, &refused, 1, since), Ruling::Counts);
            assert!(receiver.is_up());
            let since = receiver.sending();
            assert!(matches!(rule(&mut receiver, &refused, 1, since), Ruling::Down { news: true, .. }));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_health_check_that_passed_makes_an_attempt_count_while_nothing_else_is_wrong() {
        let mut sink = Receiver::new(SinkTraits::SINK);
        let failed = Outcome::retry("500");
        assert!(sink.has_to_be_asked(&failed, 1, 0));
        let rng = &mut Rng::seeded(1);
        assert_eq!(sink.rule(&failed, 1, 0, true, Instant::now(), rng), Ruling::Counts);
        for key in 2..=FAILING_KEYS as u64 {
            sink.rule(&failed, key, 0, true, Instant::now(), rng);
        }
        assert!(!sink.is_up(), "it answers its health check and fails every event");
        assert!(!sink.has_to_be_asked(&failed, 1, 0));
    }

    #[test]
    fn a_receiver_is_as_quick_as_it_was_the_last_time() {
        let mut handler = Receiver::new(SinkTraits::HANDLER);
        let within = Duration::from_micros(50);
        assert_eq!(handler.sent_within(within), 0, "nothing is known");
        handler.note_pace(100, Duration::from_micros(25));
        assert_eq!(handler.sent_within(within), 200);
        handler.note_pace(0, Duration::from_secs(1));
        assert_eq!(handler.sent_within(within), 200, "nothing was sent");
        handler.note_pace(1, Duration::from_millis(1));
        assert_eq!(handler.sent_within(within), 0);
        handler.note_pace(5, Duration::ZERO);
        assert_eq!(handler.sent_within(within), 0, "the clock stood still");
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_in_this_process_is_always_alive() {
        let mut handler = Receiver::new(SinkTraits::HANDLER);
        for key in 0..50 {
            assert_eq!(rule(&mut handler, &Outcome::retry("no"), key, 0), Ruling::Counts);
        }
    }
}
