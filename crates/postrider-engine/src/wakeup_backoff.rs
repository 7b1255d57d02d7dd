//! Decides how soon a claim follows a wake-up that may be for nothing: a `NOTIFY` of another process, a commit
//! here, a peek that moved.
//!
//! A claim answers all wake-ups before it. If it brings nothing, the next one waits a moment, and longer after
//! each such claim: thousands of notifications become a few claims.

use std::time::Duration;

use tokio::time::Instant;

/// Shortest time between claims that bring little. A claim costs the database about the same whether it brings
/// one event or fifty: at thousands of commits a second, a claim for each would take more from the writers than
/// the deliveries do.
pub(crate) const GATHER: Duration = Duration::from_millis(5);

/// Longest wait after claims in vain.
const GATHER_MAX: Duration = Duration::from_millis(50);

/// This many claims in vain have the shortest wait: where several instances share the lanes, most wake-ups are
/// for another one.
const QUICK: u32 = 4;

/// Claims in vain are forgotten after this long without a wake-up.
const FORGOTTEN_AFTER: Duration = Duration::from_millis(200);

/// What recent wake-ups brought.
#[derive(Debug)]
pub(crate) struct WakeupBackoff {
    in_vain: u32,
    last: Instant,
}

impl WakeupBackoff {
    pub(crate) fn new(now: Instant) -> Self {
        Self { in_vain: 0, last: now }
    }

    /// Records a claim that began at this moment, whether a wake-up caused it, and how many events it brought.
    pub(crate) fn claimed(&mut self, began: Instant, woken: bool, taken: usize) {
        if taken > 0 || began - self.last > FORGOTTEN_AFTER {
            self.in_vain = 0;
        }
        if woken {
            self.last = began;
            self.in_vain = if taken > 0 { 0 } else { self.in_vain.saturating_add(1) };
        }
    }

    /// Whether wake-ups bring nothing so often that no claim hurries for them.
    pub(crate) fn is_in_vain(&self) -> bool {
        self.in_vain > QUICK
    }

    /// Returns the moment before which no wake-up is followed.
    pub(crate) fn not_before(&self) -> Instant {
        let wait = match self.in_vain {
            0 => Duration::ZERO,
            claims => (GATHER * 2_u32.saturating_pow(claims.saturating_sub(QUICK))).min(GATHER_MAX),
        };
        self.last + wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn the_wait_grows_with_claims_in_vain_and_ends_with_an_event() {
        let mut now = Instant::now();
        let mut gather = WakeupBackoff::new(now);
        let mut waits = Vec::new();
        for _ in 0..10 {
            gather.claimed(now, true, 0);
            waits.push((gather.not_before() - now).as_millis());
            now = gather.not_before();
        }
        assert_eq!(waits, [5, 5, 5, 5, 10, 20, 40, 50, 50, 50]);
        gather.claimed(now, true, 1);
        assert_eq!(gather.not_before(), now);
    }

    #[test]
    fn a_poll_in_vain_delays_no_wake_up() {
        let now = Instant::now();
        let mut gather = WakeupBackoff::new(now);
        gather.claimed(now + ms(40), false, 0);
        assert!(gather.not_before() <= now + ms(40));
    }

    #[test]
    fn claims_in_vain_are_forgotten_after_a_while() {
        let now = Instant::now();
        let mut gather = WakeupBackoff::new(now);
        (0..20).for_each(|_| gather.claimed(now, true, 0));
        let later = now + ms(500);
        gather.claimed(later, true, 0);
        assert_eq!(gather.not_before() - later, GATHER);
    }
}
