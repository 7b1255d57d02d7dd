//! Claiming: reading what is due, in order.

use std::{fmt, sync::Arc, time::Duration};

use super::{Lane, Lease, Seq};
use crate::{Event, EventId, Timestamp};

/// How far the claims of one lane have come. Opaque to the engine, which keeps it between claims and goes back to
/// [`Position::START`] for a scan from the bottom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// The lane's own claims have met every event up to this `seq` that a claim which reads up to a place ([`LaneClaim::to`]) returns.
    /// A store that cannot leave out of such a claim what commits late keeps it below everything that may still appear.
    pub seq: Seq,
    /// Every event that could be seen and had at most this `seq` was met; not less than the first, and more where a
    /// transaction is still open; [`Seq::MAX`] if all that could be seen was met. What was parked beyond it stays there:
    /// something unmet may come before it.
    pub met: Seq,
    /// Waiting events were read up to this time...
    pub due_at: Timestamp,
    /// ...and this `seq` within it. Both go back to the start when the end was reached, unless rows were skipped.
    pub due_seq: Seq,
    /// What a store in which transactions can commit late keeps beside; others leave it alone.
    pub late: LateCommits,
}

impl Position {
    /// Before everything.
    pub const START: Self =
        Self { seq: 0, met: 0, due_at: Timestamp::EPOCH, due_seq: 0, late: LateCommits::START };

    /// Behind this event, and behind what waits for this time, in a lane whose own claims stand at `lane`. Nothing comes back from
    /// parking there: it was not met on the way.
    pub const fn at(seq: Seq, due_at: Timestamp, due_seq: Seq, lane: &Self) -> Self {
        Self { seq, met: 0, due_at, due_seq, late: LateCommits { front: seq, ..lane.late } }
    }

    /// How far fresh events were read.
    pub fn front(&self) -> Seq {
        let met = if self.met == Seq::MAX { 0 } else { self.met };
        self.seq.max(met).max(self.late.front)
    }

    /// Whether a claim that began at `was` and ended here got on, so that the next one meets something else.
    pub fn got_on_from(&self, was: &Self) -> bool {
        was.front() < self.front() || was.late.rescan != self.late.rescan
    }
}

/// How a store goes forward where transactions commit late, without reading again what it has met.
///
/// A transaction takes the numbers of its events when it inserts them and shows them when it commits, so events may appear behind the place
/// that a forward read has reached. They are told from those that were met by what a claim could see: a store numbers the moments
/// (snapshots, commits) that its claims have read at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LateCommits {
    /// The last event that the forward read has met.
    pub front: Seq,
    /// The number of a moment: what could be seen then and lies behind the forward read was met.
    pub seen: u64,
    /// The scan for late commits that is under way.
    pub rescan: Rescan,
}

impl LateCommits {
    /// Before everything.
    pub const START: Self = Self { front: 0, seen: 0, rescan: Rescan::NONE };
}

/// A scan behind the front that takes several claims. It goes on where the last of them ended, whatever that skipped on the way, so that it
/// meets nothing twice and comes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rescan {
    /// How far it has come.
    pub reached: Seq,
    /// The number of the moment that it began at; none is under way if it is 0. When it has come to the front, everything is met
    /// that could be seen then. What commits behind it meanwhile is left to the next scan.
    pub began: u64,
}

impl Rescan {
    /// No scan is under way.
    pub const NONE: Self = Self { reached: 0, began: 0 };

    /// Whether one is.
    pub fn is_under_way(&self) -> bool {
        self.began > 0
    }
}

/// One lane of a claim.
#[derive(Debug, Clone)]
pub struct LaneClaim {
    /// The lane and the token that it is held by.
    pub lease: Lease,
    /// Where the last claim ended.
    pub from: Position,
    /// Fresh events beyond this one are not looked at; [`Seq::MAX`] where there is no such end. A position that a claim with an end has
    /// reached is for claims with an end: another may begin at the bottom there.
    pub to: Seq,
    /// Events to look at once more, sorted, each once: they were met before, and given back. Some may be gone.
    pub again: Vec<Seq>,
}

impl LaneClaim {
    /// Everything of a lane that comes after a position.
    pub fn after(lease: Lease, from: Position) -> Self {
        Self { lease, from, to: Seq::MAX, again: Vec::new() }
    }
}

/// A row as a claim meets it, before its payload is read.
#[derive(Debug, Clone, Copy)]
pub struct RowSummary<'a> {
    /// Its lane.
    pub lane: Lane,
    /// Its place in the order.
    pub seq: Seq,
    /// The event type, as it stands in the table.
    pub event_type: &'a str,
    /// The aggregate type, as it stands in the table.
    pub aggregate_type: &'a str,
    /// The key that orders it.
    pub key: Option<&'a str>,
    /// Its place among those that wait, where it will be met again; none for an event that is fresh.
    pub due_at: Option<Timestamp>,
}

/// Says which of the rows that a claim meets are wanted now: what goes to a receiver that is down, or has more than its share of
/// memory already, is not.
///
/// A store asks for each row that it would return otherwise, once in a claim, and for the rows of one key in their order. One that
/// is not wanted is *skipped*: it is not returned, the position moves on, and the claim does not say `more` because of it. If it
/// was parked behind a key that comes back, it is unparked, so that anyone who goes back to it finds it among the others: a claim that reads up
/// to a place ([`LaneClaim::to`]) takes an unparked event of such a key for due, unless one that the engine does not have is parked before
/// it. Other claims park it.
pub trait Admission: fmt::Debug + Send + Sync {
    /// Whether this row is wanted.
    fn admits(&self, row: &RowSummary<'_>) -> bool;
}

/// What to read.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The lanes to read, in lane order.
    pub lanes: Vec<LaneClaim>,
    /// Events that the engine has in memory, sorted; they are not wanted again.
    pub in_flight: Vec<Seq>,
    /// Most events to return.
    pub limit: usize,
    /// Most bytes to return, as [`Event::weight_bytes`] counts them; the first event comes whatever its size.
    pub bytes: usize,
    /// Which rows are wanted; none if all are. With one, the position among waiting events does not go back to the start at their
    /// end: a million that were skipped are not met again by every claim.
    pub admission: Option<Arc<dyn Admission>>,
}

impl Claim {
    /// At most so many events of these lanes, whatever they weigh.
    pub fn new(lanes: Vec<LaneClaim>, limit: usize) -> Self {
        Self { lanes, in_flight: Vec::new(), limit, bytes: usize::MAX, admission: None }
    }
}

/// A row that is no event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable {
    /// Its id.
    pub id: EventId,
    /// Its type, as far as that can be read.
    pub event_type: String,
    /// Its key, as the database computes it.
    pub key: Option<Arc<str>>,
    /// Why it is none.
    pub reason: String,
}

/// One event that was claimed.
#[derive(Debug, Clone)]
pub struct ClaimedEvent {
    /// Its lane.
    pub lane: Lane,
    /// Its place in the order.
    pub seq: Seq,
    /// How often it was tried.
    pub attempts: u32,
    /// Whether its key is held because of it, or because others stand behind it.
    pub held: bool,
    /// When it was inserted, on the database's clock.
    pub created_at: Timestamp,
    /// The event, or why the row is none.
    pub event: Result<Event, Undecodable>,
}

impl ClaimedEvent {
    /// Its id, whether or not it could be decoded.
    pub fn id(&self) -> &EventId {
        self.event.as_ref().map_or_else(|row| &row.id, Event::id)
    }
}

/// What a claim returned.
#[derive(Debug, Clone, Default)]
pub struct Claimed {
    /// Due events; within a lane and key in the order of `seq`.
    pub events: Vec<ClaimedEvent>,
    /// Where each lane's next claim begins.
    pub positions: Vec<(Lane, Position)>,
    /// Events that were met but neither returned nor parked: look at them once more.
    pub again: Vec<(Lane, Seq)>,
    /// Lanes that turned out to be somebody else's.
    pub lost: Vec<Lane>,
    /// Whether more is due now than was returned.
    pub more: bool,
    /// How long until the next waiting event is due.
    pub next_due: Option<Duration>,
    /// Events that were made due again since the last claim, because the instance that had claimed them is gone.
    pub recovered: u64,
    /// The database's clock when it read.
    pub now: Timestamp,
}
