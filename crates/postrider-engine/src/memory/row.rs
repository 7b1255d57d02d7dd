//! One row of the event table.

use std::sync::Arc;

use postrider_core::{
    Event, EventId, GLOBAL_AGGREGATE, Timestamp,
    event::limits::EVENT_FLAT_BYTES,
    store::{Lane, RowSummary, Seq, Undecodable},
};

use super::hash::lane_of;

/// The status of a row that is not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    New,
    Waiting,
    Dead,
}

impl Status {
    /// The number that a SQL store keeps.
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::New => 0,
            Self::Waiting => 2,
            Self::Dead => 3,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) content: Result<Event, Box<Undecodable>>,
    /// Kept here, because an event that nobody has read for a while is far from the processor.
    pub(super) weight_bytes: usize,
    pub(super) lane: Lane,
    pub(super) status: Status,
    pub(super) parked: bool,
    pub(super) attempts: u32,
    pub(super) available_at: Timestamp,
    pub(super) created_at: Timestamp,
    /// The number of the commit that made it visible.
    pub(super) commit: u64,
    pub(super) last_error: Option<Box<str>>,
}

/// What is kept of a delivered one.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) content: Result<Event, Box<Undecodable>>,
    pub(super) attempts: u32,
    pub(super) created_at: Timestamp,
}

impl From<Row> for Kept {
    fn from(row: Row) -> Self {
        Self { content: row.content, attempts: row.attempts, created_at: row.created_at }
    }
}

/// The id of what is in a row.
pub(super) fn id_of(content: &Result<Event, Box<Undecodable>>) -> &EventId {
    match content {
        Ok(event) => event.id(),
        Err(undecodable) => &undecodable.id,
    }
}

/// What it happened to.
pub(super) fn aggregate_type_of(content: &Result<Event, Box<Undecodable>>) -> &str {
    content.as_ref().map_or(GLOBAL_AGGREGATE, Event::aggregate_type)
}

/// Its key.
pub(super) fn key_of(content: &Result<Event, Box<Undecodable>>) -> Option<&Arc<str>> {
    match content {
        Ok(event) => event.shared_key(),
        Err(undecodable) => undecodable.key.as_ref(),
    }
}

/// Its type.
pub(super) fn type_of(content: &Result<Event, Box<Undecodable>>) -> &str {
    match content {
        Ok(event) => event.event_type(),
        Err(undecodable) => &undecodable.event_type,
    }
}

impl Row {
    /// A new row, which is due at once.
    pub(super) fn new(content: Result<Event, Box<Undecodable>>, lanes: u32, now: Timestamp) -> Self {
        let mut row = Self {
            weight_bytes: content.as_ref().map_or(EVENT_FLAT_BYTES, Event::weight_bytes),
            content,
            lane: 0,
            status: Status::New,
            parked: false,
            attempts: 0,
            available_at: now,
            created_at: now,
            commit: 0,
            last_error: None,
        };
        row.lane = lane_of(row.key().map_or(row.id().as_str(), Arc::as_ref), lanes);
        row
    }

    pub(super) fn id(&self) -> &EventId {
        id_of(&self.content)
    }

    pub(super) fn key(&self) -> Option<&Arc<str>> {
        key_of(&self.content)
    }

    pub(super) fn event_type(&self) -> &str {
        type_of(&self.content)
    }

    pub(super) fn aggregate_type(&self) -> &str {
        aggregate_type_of(&self.content)
    }

    /// What is seen of it before it is read.
    pub(super) fn summary(&self, seq: Seq) -> RowSummary<'_> {
        RowSummary {
            lane: self.lane,
            seq,
            event_type: self.event_type(),
            aggregate_type: self.aggregate_type(),
            key: self.key().map(Arc::as_ref),
            // However it was met: it is among those that wait that somebody will find it again.
            due_at: (self.status == Status::Waiting).then_some(self.available_at),
        }
    }

    /// When it is due; none if it was written to be delivered at once.
    pub(super) fn due_at(&self) -> Option<Timestamp> {
        let was_delayed = self.status != Status::New || self.available_at > self.created_at;
        was_delayed.then_some(self.available_at)
    }
}
