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
    /// Whether the database itself waited before it answered, so that the next peek may follow at once.
    pub waited: bool,
}

/// How long a database [may wait](super::Store::peek_from) before it answers a peek.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeekWait {
    /// The last number that is known. The answer comes as soon as another one is found.
    pub known: Seq,
    /// How long to wait before each look at the number.
    pub every: Duration,
    /// When to answer at the latest, whether it moved or not.
    pub longest: Duration,
}
