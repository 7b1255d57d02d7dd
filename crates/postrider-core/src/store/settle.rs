//! Settling: writing outcomes back under the fence.

use std::{sync::Arc, time::Duration};

use super::{HoldReason, Lane, Seq};
use crate::EventId;

/// What is to become of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// Its lane.
    pub lane: Lane,
    /// Its place in the order...
    pub seq: Seq,
    /// ...and its id. A row is named by both: a database that lost its last transactions gives their numbers to other events. A row of
    /// this `seq` with another id is left alone, which is no error.
    pub event_id: EventId,
    /// The key that waits behind it, where order is kept.
    pub key: Option<Arc<str>>,
    /// Whether a hold stands on the key already, as the claim said.
    pub held: bool,
    /// The change.
    pub change: Change,
}

/// A change of one event's state. Attempts are absolute, so that repeating a settle changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Delivered; its key is freed.
    Done,
    /// Wait, and be tried again; its key is held until then.
    Wait {
        /// How long from now, on the database's clock.
        after: Duration,
        /// How often it has been tried.
        attempts: u32,
        /// What went wrong, where something did.
        error: Option<String>,
        /// Why its key waits.
        reason: HoldReason,
    },
    /// An attempt is about to begin that may end with the process: counted beforehand, and nothing else is changed. What
    /// is settled afterwards has the last word.
    Attempt {
        /// How often it has been tried, this time included.
        attempts: u32,
    },
    /// Not to be tried again until an operator says so.
    Dead {
        /// How often it was tried.
        attempts: u32,
        /// What went wrong.
        error: String,
        /// Whether its key is held until then; otherwise it is freed.
        block: bool,
    },
}

/// What became of a settle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// Events whose state was changed. Those that had this state already are not counted.
    pub applied: u64,
    /// Lanes whose lease is no longer held. If there are any, nothing was written.
    pub lost: Vec<Lane>,
    /// Events whose rows are locked by somebody else, or that there was no time for. Nothing was written of them, and all others were written.
    pub locked: Vec<Seq>,
}
