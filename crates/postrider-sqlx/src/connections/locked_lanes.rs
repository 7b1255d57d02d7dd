//! Lanes of ours that another session has locked.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use postrider_core::store::Lane;

/// How long settles go around locks from the beginning after a lane was found locked: the quick way would wait for it each time.
const AROUND_FOR: Duration = Duration::from_secs(5);

/// When a lane of ours was last found locked.
#[derive(Debug, Default)]
pub(crate) struct LockedLanes(Mutex<Option<Instant>>);

impl LockedLanes {
    /// Whether one may still be.
    pub(crate) fn are_likely(&self) -> bool {
        let found = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        found.is_some_and(|found| found.elapsed() < AROUND_FOR)
    }

    /// Notes those that were. Where none was nothing is known of lanes that nobody asked for, so what was found before stays so for its time.
    pub(crate) fn note(&self, locked: &[Lane]) {
        if !locked.is_empty() {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_that_are_not_locked_do_not_make_those_forgotten_that_are() {
        let lanes = LockedLanes::default();
        assert!(!lanes.are_likely());
        lanes.note(&[3]);
        lanes.note(&[]);
        assert!(lanes.are_likely());
    }
}
