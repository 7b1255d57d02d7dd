//! Follows the database's clock, which cursors over waiting events depend on.

use std::time::Duration;

use postrider_core::Timestamp;
use tokio::time::Instant;

/// How far the database's clock may move away from ours between two claims. Beyond that it was set.
const TOLERANCE: Duration = Duration::from_secs(1);

/// The database's clock as it was last seen, and when that was here.
#[derive(Debug, Default)]
pub(super) struct DatabaseClock(Option<(Timestamp, Instant)>);

impl DatabaseClock {
    /// Returns the time on the database's clock, if it was ever seen.
    pub(super) fn now(&self) -> Option<Timestamp> {
        self.0.map(|(then, here)| then.plus(here.elapsed()))
    }

    /// Records the time that a claim saw. Returns whether the clock was set since the last one.
    pub(super) fn saw(&mut self, now: Timestamp) -> bool {
        let here = Instant::now();
        self.0
            .replace((now, here))
            .is_some_and(|(then, there)| now < then || now.since(then).abs_diff(here - there) > TOLERANCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_goes_with_ours_was_not_set() {
        let (mut clock, start) = (DatabaseClock::default(), Timestamp::from_micros(1_000_000_000));
        assert!(!clock.saw(start), "nothing was known before");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(clock.now(), Some(start.plus(Duration::from_secs(60))));
        assert!(!clock.saw(start.plus(Duration::from_secs(60))));
        assert!(clock.saw(start.plus(Duration::from_secs(70))), "forwards");
        assert!(clock.saw(start), "backwards");
    }
}
