//! Lanes of ours that another session has locked.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

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

    /// Notes whether one was.
    pub(crate) fn note(&self, any: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = any.then(Instant::now);
    }
}
