//! Whether the sequence that numbers events was set back: by `TRUNCATE … RESTART IDENTITY`, `ALTER SEQUENCE … RESTART` or `setval`, none of which
//! shows in the log, in the transactions or in the tables.
//!
//! New events then have numbers that claims have passed already, and would wait for the next scan from the bottom.

use std::{
    error::Error,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use postrider_core::store::Seq;

/// How often a claim asks. Where an engine peeks, peeks tell of it first.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The last number that the sequence is known to have given.
#[derive(Debug, Default)]
pub(super) struct Identity(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    last: Option<Seq>,
    asked_at: Option<Instant>,
    /// What the next claim has to tell.
    set_back: Option<SetBack>,
}

/// The sequence was set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SetBack {
    was: Seq,
    is: Seq,
}

impl fmt::Display for SetBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the last event had the number {}, and the sequence stands at {}", self.was, self.is)
    }
}

impl Error for SetBack {}

impl Identity {
    /// What is known before somebody asks: an answer is compared with that, since of two questions at a time the first may be answered last.
    pub(super) fn known(&self) -> Option<Seq> {
        self.lock().last
    }

    /// Whether a claim should ask. Anyone who is told so is the one who does.
    pub(super) fn is_time(&self) -> bool {
        let mut known = self.lock();
        let is_time = known.asked_at.is_none_or(|asked_at| asked_at.elapsed() >= ASK_EVERY);
        if is_time {
            known.asked_at = Some(Instant::now());
        }
        is_time
    }

    /// Notes the answer to a question that was asked when `before` was known.
    pub(super) fn told(&self, last: Seq, before: Option<Seq>) {
        let mut known = self.lock();
        match before.filter(|was| last < *was) {
            // Once: who asked at the same time is answered the same.
            Some(was) if known.last == before => {
                known.set_back = Some(SetBack { was, is: last });
                known.last = Some(last);
            }
            Some(_) => {}
            None => known.last = known.last.max(Some(last)),
        }
    }

    /// Whether it was set back since this was last asked.
    pub(super) fn take_set_back(&self) -> Option<SetBack> {
        self.lock().set_back.take()
    }

    /// The database went back in another way, which was told: what was known of the sequence says nothing any more.
    pub(super) fn forget(&self) {
        *self.lock() = Known::default();
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Nothing here can be left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_that_is_set_back_is_told_once() {
        let identity = Identity::default();
        for last in [3, 3, 7] {
            identity.told(last, identity.known());
        }
        assert_eq!(identity.take_set_back(), None);
        identity.told(1, identity.known());
        identity.told(2, identity.known());
        assert_eq!(identity.take_set_back(), Some(SetBack { was: 7, is: 1 }));
        assert_eq!(identity.take_set_back(), None);
    }

    #[test]
    fn an_answer_that_comes_late_is_no_step_back() {
        let identity = Identity::default();
        identity.told(3, None);
        let before = identity.known();
        identity.told(9, before);
        identity.told(5, before);
        assert_eq!((identity.take_set_back(), identity.known()), (None, Some(9)));
    }

    #[test]
    fn what_was_told_in_another_way_is_not_told_again() {
        let identity = Identity::default();
        identity.told(7, None);
        identity.forget();
        identity.told(1, identity.known());
        assert_eq!((identity.take_set_back(), identity.known()), (None, Some(1)));
    }

    #[test]
    fn a_claim_asks_now_and_then() {
        let identity = Identity::default();
        assert!(identity.is_time() && !identity.is_time());
    }
}
