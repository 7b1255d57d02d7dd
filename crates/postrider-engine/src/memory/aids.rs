//! What only tests want to see or do.

use std::sync::Arc;

use postrider_core::{
    EventId, Timestamp,
    store::{Lane, Lease, Seq, Token, Undecodable},
};

use super::{MemoryStore, lane::LaneTable, row::Row};

/// One row of the event table, as a SQL store would keep it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawRow {
    /// Its place in the order.
    pub seq: Seq,
    /// Its id.
    pub id: EventId,
    /// Its key.
    pub key: Option<String>,
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
    /// Lets at most so many events of one key come back by each claim, at least one, so that a test need not write as many as fill a claim.
    pub fn return_at_most(&self, events: usize) {
        self.shared.lock().returning_of_a_key_max = events.max(1);
    }

    /// Lets a claim read at most so many rows, at least one, so that a test need not write as many as fill one.
    pub fn scan_at_most(&self, rows: usize) {
        self.shared.lock().scanned_rows_max = rows.max(1);
    }

    /// Commits a row that decodes to no event, and gives its id.
    pub fn insert_undecodable(&self, event_type: &str, reason: &str) -> EventId {
        let id = EventId::ulid();
        let now = self.now();
        let tx = self.begin();
        let mut tables = self.shared.lock();
        let (event_type, reason) = (event_type.to_owned(), reason.to_owned());
        let undecodable = Undecodable { id: id.clone(), event_type, key: None, reason };
        let row = Row::new(Err(Box::new(undecodable)), tables.lane_count(), now);
        let seq = tables.draw_seq(tx.number());
        tables.add(seq, row);
        drop(tables);
        id
    }

    /// Deletes the row of an event, as a `DELETE` in somebody's terminal would: the hold that it heads stays.
    pub fn delete_row(&self, id: &EventId) {
        let mut tables = self.shared.lock();
        let seq = tables.seq_of(id.as_str());
        let row = seq.and_then(|seq| tables.remove(seq));
        if let Some((key, lane)) = row.and_then(|row| Some((Arc::clone(row.key()?), row.lane))) {
            tables.suspect_orphan(lane, key);
        }
    }

    /// The leases that hold at present, also those whose time is over.
    pub fn leases(&self) -> Vec<Lease> {
        let mut tables = self.shared.lock();
        let lease = |(number, lane): (Lane, &mut LaneTable)| {
            lane.nonce.map(|nonce| Lease { lane: number, token: Token { epoch: lane.epoch, nonce } })
        };
        tables.lanes_mut().filter_map(lease).collect()
    }

    /// Has a session of somebody else's lock the row of a lane, or let go of it.
    pub fn lock_lane(&self, lane: Lane, locked: bool) {
        self.shared.lock().lane_mut(lane).into_iter().for_each(|lane| lane.locked = locked);
    }

    /// Forgets which keys of these lanes wait, as if only the last owner had known.
    pub fn forget_holds(&self, lanes: &[Lane]) {
        let mut tables = self.shared.lock();
        let of_lanes = |(seq, row): (Seq, &Row)| {
            let key = row.key().cloned().filter(|_| lanes.contains(&row.lane));
            key.map(|key| (seq, row.lane, key))
        };
        let rows: Vec<(Seq, Lane, Arc<str>)> = tables.rows.iter().filter_map(of_lanes).collect();
        for (seq, lane, key) in rows {
            tables.change(seq, |row| row.parked = false);
            tables.lane_mut(lane).into_iter().for_each(|lane| lane.drop_hold(&key));
        }
    }

    /// Every row that is not delivered, in order.
    pub fn rows(&self) -> Vec<RawRow> {
        let raw = |(seq, row): (Seq, &Row)| RawRow {
            seq,
            id: row.id().clone(),
            key: row.key().map(|key| key.as_ref().to_owned()),
            lane: row.lane,
            status: row.status.number(),
            attempts: row.attempts,
            parked: row.parked,
            available_at: row.available_at,
            last_error: row.last_error.as_deref().map(str::to_owned),
        };
        self.shared.lock().rows.iter().map(raw).collect()
    }
}
