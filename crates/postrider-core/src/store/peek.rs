//! Peeks: whether something may have been written, without a claim.

use std::time::Duration;

use super::Seq;

/// What a [peek](super::Store::peek) found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peek {
    /// The largest `seq` that was drawn, for an event that is committed, may still commit, or never will. Once an event is committed, no
    /// later peek is below its `seq`, unless the database went back in time.
    pub last: Seq,
    /// How often a peek is worth its price on this store, at most.
    pub every: Duration,
}
