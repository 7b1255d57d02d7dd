//! What only tests want to see or do.

use postrider_core::{
    EventId, Timestamp,
    store::{Lane, Seq, Undecodable},
};

use super::{
    MemoryStore,
    hash::lane_of,
    row::{Broken, Row, Status},
};

/// One row of the event table, as a SQL store would keep it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawRow {
    /// Its place in the order.
    pub seq: Seq,
    /// Its id.
    pub id: EventId,
    /// Its lane.
    pub lane: Lane,
    /// 0 new, 2 waiting, 3 dead.
    pub status: u8,
    /// How often it was tried.
    pub attempts: u32,
    /// Whether it stands behind the head of its key.
    pub parked: bool,
    /// When it is due.
    pub available_at: Timestamp,
    /// What went wrong last.
    pub last_error: Option<String>,
}

impl MemoryStore {
    /// Commits a row that decodes to no event, and gives its id.
    pub fn insert_undecodable(&self, event_type: &str, reason: &str) -> EventId {
        let id = EventId::ulid();
        let now = self.now();
        let tx = self.begin();
        let mut tables = self.shared.lock();
        let undecodable = Undecodable { id: id.clone(), key: None, reason: reason.to_owned() };
        let row = Row {
            content: Err(Box::new(Broken { event_type: event_type.to_owned(), undecodable })),
            lane: lane_of(id.as_str(), tables.lane_count()),
            status: Status::New,
            parked: false,
            attempts: 0,
            available_at: now,
            created_at: now,
            last_error: None,
        };
        let seq = tables.draw_seq(tx.number());
        tables.add(seq, row);
        drop(tables);
        id
    }

    /// Every row that is not delivered, in order.
    pub fn rows(&self) -> Vec<RawRow> {
        let raw = |(seq, row): (Seq, &Row)| RawRow {
            seq,
            id: row.id().clone(),
            lane: row.lane,
            status: row.status.number(),
            attempts: row.attempts,
            parked: row.parked,
            available_at: row.available_at,
            last_error: row.last_error.clone(),
        };
        self.shared.lock().rows.iter().map(raw).collect()
    }
}
