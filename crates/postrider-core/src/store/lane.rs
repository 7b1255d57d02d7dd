//! Lanes and the right to deliver them.

use std::time::Duration;

use super::Seq;
use crate::rng::Rng;

/// A hash bucket of keys, the unit of ownership.
pub type Lane = u32;

/// The fencing token of a lease. Each acquisition raises the epoch by one and draws a random nonce, so that no two
/// leases of a lane ever share a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    /// Raised by one each time the lane is taken.
    pub epoch: u64,
    /// Random; tells apart two who believe in the same epoch, for example after a restored backup.
    pub nonce: u64,
}

/// The right to deliver one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The lane.
    pub lane: Lane,
    /// What proves the right.
    pub token: Token,
}

/// Longest lease that anybody may ask for.
pub const LEASE_MAX: Duration = Duration::from_secs(3600);

/// A wish for lanes.
#[derive(Debug, Clone)]
pub struct LeaseRequest {
    /// The name of the instance; for people to read, never a token.
    pub owner: String,
    /// How long the lease holds on the database's clock.
    pub ttl: Duration,
    /// Where nonces are drawn from.
    pub nonces: Rng,
    /// Most lanes to take.
    pub most: usize,
}

impl LeaseRequest {
    /// The nonces of this request, one for each lane that is taken. They fit into a signed 64-bit column.
    pub fn nonces(&self) -> impl Iterator<Item = u64> {
        let mut rng = self.nonces.clone();
        std::iter::repeat_with(move || rng.next_u64() >> 1)
    }
}

/// A lane that was taken just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcquiredLane {
    /// The lane and the token that it is held by.
    pub lease: Lease,
    /// Its last owner did not give it back: events up to this one may have been under way when it ended. Zero if it did.
    pub suspect_to: Seq,
}

/// What became of a wish for lanes.
#[derive(Debug, Clone, Default)]
pub struct Leased {
    /// The lanes that were taken just now.
    pub taken: Vec<AcquiredLane>,
    /// How long until the next lane that somebody else holds could be taken.
    pub next_expiry: Option<Duration>,
    /// How many lanes are free and could not be taken, because another session has locked their rows.
    pub locked: usize,
}

impl Leased {
    /// The leases of the lanes that were taken.
    pub fn leases(&self) -> Vec<Lease> {
        self.taken.iter().map(|taken| taken.lease).collect()
    }
}

/// What became of marks. A lane that is in neither list has its mark.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marked {
    /// The lanes that are no longer held.
    pub lost: Vec<Lane>,
    /// Lanes that could not be marked, because another session has locked their rows: nothing new of them may be sent yet.
    pub locked: Vec<Lane>,
}

/// What became of a renewal. A lane that is in neither list is lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renewed {
    /// The lanes that are held for longer now.
    pub held: Vec<Lane>,
    /// Lanes that are held and could not be renewed, because another session has locked their rows. They are as they were.
    pub locked: Vec<Lane>,
}
