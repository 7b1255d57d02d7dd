//! Keeps events away from a receiver or destination that is down.
//!
//! `closed → open (for a while) → probing (one event) → closed, or open for longer`.

use std::time::Duration;

use postrider_core::{Backoff, RetryPolicy, rng::Rng};
use tokio::time::Instant;

/// Longest pause: events must not wait long for a receiver that is back.
const LONGEST: Duration = Duration::from_secs(30);

/// A probe without an answer for this long may hang, and another probe is sent.
const PROBE_MAX: Duration = Duration::from_secs(10);

/// The pause grows after this many probes: the first ones may be events that fail on their own.
const ROUND: u32 = 8;

/// Longest pause while the health check passes.
const HEALTHY_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BreakerState {
    Closed,
    Open {
        until: Instant,
    },
    /// A probe is under way and should have been answered by then.
    Probing {
        until: Instant,
    },
}

/// Open for 200 ms at first, then longer with each round of probes, up to half a minute.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: BreakerState,
    /// How often in a row the receiver was unavailable.
    refusals: u32,
}

impl Breaker {
    pub(crate) const fn new() -> Self {
        Self { state: BreakerState::Closed, refusals: 0 }
    }

    /// Whether an event may be sent now.
    pub(crate) fn lets_through(&self, now: Instant) -> bool {
        match self.state {
            BreakerState::Closed => true,
            BreakerState::Open { until } | BreakerState::Probing { until } => now >= until,
        }
    }

    /// Returns when it lets a probe through, if it does not now.
    pub(crate) fn opens_at(&self, now: Instant) -> Option<Instant> {
        match self.state {
            BreakerState::Open { until } if until > now => Some(until),
            _ => None,
        }
    }

    /// Returns when another probe may go beside one that has no answer.
    pub(crate) fn next_probe_at(&self, now: Instant) -> Option<Instant> {
        match self.state {
            BreakerState::Probing { until } if until > now => Some(until),
            _ => None,
        }
    }

    /// Whether events may go in batches. A probe goes alone.
    pub(crate) fn is_closed(&self) -> bool {
        self.state == BreakerState::Closed
    }

    /// Records that an event is being sent.
    pub(crate) fn sending(&mut self, now: Instant) {
        if self.state != BreakerState::Closed {
            self.state = BreakerState::Probing { until: now + PROBE_MAX };
        }
    }

    /// Records that a probe was not sent after all.
    pub(crate) fn not_sent(&mut self, now: Instant) {
        if matches!(self.state, BreakerState::Probing { .. }) {
            self.state = BreakerState::Open { until: now };
        }
    }

    /// Records an answer, and closes.
    pub(crate) fn answered(&mut self) {
        *self = Self::new();
    }

    /// Opens and returns for how long. A refusal of what was under way when it opened changes nothing. While
    /// the health check passes, the pause stays short.
    pub(crate) fn refused(&mut self, healthy: bool, now: Instant, rng: &mut Rng) -> Duration {
        if let Some(until) = self.opens_at(now) {
            return until - now;
        }
        self.refusals = self.refusals.saturating_add(1);
        let longest = if healthy { HEALTHY_MAX } else { LONGEST };
        let round = self.refusals.div_ceil(ROUND);
        let pause = Backoff::default().delay(round, "", rng).min(longest);
        self.state = BreakerState::Open { until: now + pause };
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_open_breaker_lets_one_probe_through_after_its_pause_and_closes_on_an_answer() {
        let (mut breaker, mut rng) = (Breaker::new(), Rng::seeded(1));
        let pause = breaker.refused(false, Instant::now(), &mut rng);
        assert!(!breaker.lets_through(Instant::now()));
        tokio::time::advance(pause).await;
        assert!(breaker.lets_through(Instant::now()));
        breaker.sending(Instant::now());
        assert!(!breaker.lets_through(Instant::now()), "a second probe at once");
        breaker.answered();
        assert!(breaker.lets_through(Instant::now()) && breaker.is_closed());
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_of_what_was_already_under_way_do_not_keep_it_open_for_longer() {
        let (mut breaker, mut rng) = (Breaker::new(), Rng::seeded(1));
        let pause = breaker.refused(false, Instant::now(), &mut rng);
        assert!((0..10).all(|_| breaker.refused(false, Instant::now(), &mut rng) == pause));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_short_while_the_health_check_passes() {
        let (mut breaker, mut rng) = (Breaker::new(), Rng::seeded(1));
        for _ in 0..20 {
            let pause = breaker.refused(true, Instant::now(), &mut rng);
            assert!(pause <= HEALTHY_MAX, "{pause:?}");
            tokio::time::advance(pause).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_was_not_sent_can_be_made_again() {
        let (mut breaker, mut rng) = (Breaker::new(), Rng::seeded(1));
        tokio::time::advance(breaker.refused(false, Instant::now(), &mut rng)).await;
        breaker.sending(Instant::now());
        breaker.not_sent(Instant::now());
        assert!(breaker.lets_through(Instant::now()) && !breaker.is_closed());
    }
}
