//! Defines what workers take to do.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::Item;
use crate::{destination::DestinationId, routes::ReceiverId, slots::RouteSlot};

/// Events that a worker has taken to send, all to the same receiver.
#[derive(Debug)]
pub(crate) struct Assignment {
    /// None if no route wants them.
    pub(crate) receiver: Option<ReceiverId>,
    /// How many events the receiver had delivered by then.
    pub(crate) since: u64,
    pub(crate) items: VecDeque<Item>,
    /// The moment after which none of them is sent.
    pub(crate) until: Option<Instant>,
    /// When they were taken, and how many that were not put back.
    pub(super) taken_at: Instant,
    pub(super) taken: usize,
    /// How often something had been paused by then.
    pub(crate) pauses_begun: u64,
    pub(super) slot: RouteSlot,
    /// The destination of the first one, and whether the send has ended.
    pub(super) destination: Option<DestinationId>,
    pub(super) sent: bool,
    /// Whether one of them failed before.
    pub(super) failed: bool,
    /// Whether it probes the receiver, or a destination of it.
    pub(super) probe: bool,
    pub(super) probed: Option<Option<DestinationId>>,
}

impl Assignment {
    /// How many were taken and not put back.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// When they were taken.
    pub(crate) fn taken_at(&self) -> Instant {
        self.taken_at
    }
}

/// What a worker does next.
pub(crate) enum NextWork {
    /// Sends these.
    Send(Assignment),
    /// Sends this one, which may have crashed a process before: its attempt is written first.
    Suspect(Assignment),
    /// Waits until something changes or this moment comes.
    Wait(Option<Instant>),
}
