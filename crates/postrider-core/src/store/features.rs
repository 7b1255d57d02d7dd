//! What a store can do, and how an outbox on it is set, as data.

use std::time::Duration;

use crate::Backoff;

/// What a store can do, as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// How many lanes it has.
    pub lanes: u32,
    /// Whether its clock is that of a server which all instances share. SQLite's is the host's.
    pub shared_clock: bool,
    /// Whether a transaction can commit behind one with larger `seq`. SQLite has one writer, so it cannot.
    pub late_commits: bool,
    /// What it has room for in its tables.
    pub keeps: Keeps,
}

/// What a store has room for in its tables. Tables of our own keep [`ALL`](Keeps::ALL) of it; those that somebody else designed may not.
///
/// ```
/// use postrider_core::store::Keeps;
/// let keeps = Keeps { errors: false, ..Keeps::ALL };
/// assert!(keeps.attempts && !keeps.errors);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keeps {
    /// Places in the order that outlive a lease, so that a claim goes on from a [`Position`](super::Position). Without them each claim looks
    /// at what is pending, and takes back what was returned before and is not in flight.
    pub places: bool,
    /// Who stands behind a held key, apart from the others.
    pub parked: bool,
    /// Keys that wait behind a dead event.
    pub on_dead: bool,
    /// A time before which a new event is not due.
    pub delays: bool,
    /// How often an event was tried.
    pub attempts: bool,
    /// Whether the attempt that made an event dead is counted too.
    pub last_attempt: bool,
    /// What went wrong when an event failed and is to be tried again.
    pub errors: bool,
    /// What went wrong when an event died.
    pub dead_errors: bool,
    /// Headers.
    pub headers: bool,
    /// The kind of thing that an event happened to.
    pub aggregates: bool,
    /// When an event was written.
    pub written_at: bool,
    /// Delivered events.
    pub delivered: bool,
    /// Those no longer than they are to be retained.
    pub retention: bool,
    /// What an operator has paused.
    pub pauses: bool,
}

impl Keeps {
    /// Everything.
    pub const ALL: Self = Self {
        places: true,
        parked: true,
        on_dead: true,
        delays: true,
        attempts: true,
        last_attempt: true,
        errors: true,
        dead_errors: true,
        headers: true,
        aggregates: true,
        written_at: true,
        delivered: true,
        retention: true,
        pauses: true,
    };
}

/// How an outbox on a store is set unless its user says otherwise: as the system is whose tables it delivers from.
#[derive(Debug, Clone, PartialEq)]
pub struct Defaults {
    /// Longest pause between two polls.
    pub poll_max: Duration,
    /// Most events of a claim.
    pub claim_batch: usize,
    /// How often an event is sent before it is dead.
    pub max_attempts: u32,
    /// How long a failed event waits.
    pub retry: Backoff,
}

/// When claims are taken for abandoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovery {
    /// How often they are looked for.
    pub every: Duration,
    /// How old a claim is by then.
    pub after: Duration,
}
