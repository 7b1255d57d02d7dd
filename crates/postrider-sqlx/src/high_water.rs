//! Whether a database went back in time, told by the numbers that it gives out: one that would give a number again that was given before has
//! lost transactions.
//!
//! What it cannot see: a database that has given out as many numbers again before it is asked, and one that lost transactions without a new
//! event among them. A settle names rows by their ids beside, and claims from the very bottom come once a minute, so neither loses anything.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use postrider_core::{StoreError, StoreErrorKind, store::Seq};

/// How often a database is asked.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The largest number that a database is known to have given out.
#[derive(Debug, Default)]
pub(crate) struct HighWater(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    last: Seq,
    asked: Option<Instant>,
}

impl HighWater {
    /// Whether it is time to ask.
    pub(crate) fn is_due(&self) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = known.asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY);
        if due {
            known.asked = Some(Instant::now());
        }
        due
    }

    /// Another database is asked from now on.
    #[cfg(feature = "sqlite")]
    pub(crate) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Known::default();
    }

    /// This is the last number now. An error, once, if it was a larger one before; `place` says where.
    pub(crate) fn rise(&self, last: Seq, place: &str) -> Result<(), StoreError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut known.last, last);
        if last >= before {
            return Ok(());
        }
        let what = format!("cannot claim events in {place}");
        let told =
            format!("the last event has the number {last}, and there was one with the number {before}");
        Err(StoreError::new(StoreErrorKind::WentBack, what, told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_falls_is_told_once() {
        let water = HighWater::default();
        assert!(water.rise(7, "x").is_ok() && water.rise(7, "x").is_ok() && water.rise(9, "x").is_ok());
        let told = water.rise(8, "x").unwrap_err();
        assert_eq!(told.kind(), StoreErrorKind::WentBack);
        assert!(water.rise(8, "x").is_ok());
        assert!(water.is_due() && !water.is_due());
    }
}
