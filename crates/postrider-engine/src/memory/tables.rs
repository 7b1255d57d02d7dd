//! All that is stored, and the moves that keep rows and sets in step.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use postrider_core::{
    EventId, Timestamp,
    store::{HeldKey, HoldReason, Lane, Lease, Orphans, Seq, Subject},
};

use super::{
    hash::FixedMap,
    lane::{LaneTable, Owner},
    row::{Kept, Row, Status},
    rows::Rows,
};

/// Most events of one key that a claim lets come back, unless a test wants fewer.
const RETURNING_OF_A_KEY_MAX: usize = 16;
/// Most rows that one claim reads, unless a test wants fewer: parking a hundred thousand followers must not keep the lock for long.
const SCANNED_ROWS_MAX: usize = 10_000;

#[derive(Clone)]
pub(super) struct Tables {
    /// Events that are not delivered.
    pub(super) rows: Rows,
    /// Dead ones among them.
    pub(super) dead: BTreeSet<Seq>,
    /// Delivered ones that are kept, the oldest first.
    pub(super) done: BTreeMap<(Timestamp, Seq), Kept>,
    pub(super) done_ids: FixedMap<EventId, Timestamp>,
    /// What transactions wrote beside their events.
    pub(super) business: BTreeMap<String, String>,
    /// The first seq of each open transaction: whatever it wrote, no claim has met.
    open: BTreeMap<u64, Seq>,
    /// Instances, and until when they are believed to be there.
    pub(super) members: BTreeMap<String, Owner>,
    /// What an operator has told to wait.
    pub(super) pauses: BTreeMap<Subject, (Timestamp, String)>,
    /// Most events of one key that a claim lets come back.
    pub(super) returning_of_a_key_max: usize,
    /// Most rows that one claim reads.
    pub(super) scanned_rows_max: usize,
    /// Keys of rows that were deleted behind the store's back.
    orphans: BTreeSet<(Lane, Arc<str>)>,
    lanes: Vec<LaneTable>,
    last_seq: Seq,
    /// Counts what became visible.
    commits: u64,
}

impl Tables {
    pub(super) fn new(lanes: u32) -> Self {
        Self {
            rows: Rows::default(),
            dead: BTreeSet::new(),
            done: BTreeMap::new(),
            done_ids: FixedMap::default(),
            business: BTreeMap::new(),
            open: BTreeMap::new(),
            members: BTreeMap::new(),
            pauses: BTreeMap::new(),
            returning_of_a_key_max: RETURNING_OF_A_KEY_MAX,
            scanned_rows_max: SCANNED_ROWS_MAX,
            orphans: BTreeSet::new(),
            commits: 0,
            lanes: (0..lanes).map(|_| LaneTable::default()).collect(),
            last_seq: 0,
        }
    }

    pub(super) fn lane_count(&self) -> u32 {
        u32::try_from(self.lanes.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn lane(&self, lane: Lane) -> Option<&LaneTable> {
        self.lanes.get(usize::try_from(lane).ok()?)
    }

    pub(super) fn lane_mut(&mut self, lane: Lane) -> Option<&mut LaneTable> {
        self.lanes.get_mut(usize::try_from(lane).ok()?)
    }

    pub(super) fn lanes(&self) -> impl Iterator<Item = &LaneTable> {
        self.lanes.iter()
    }

    pub(super) fn lanes_mut(&mut self) -> impl Iterator<Item = (Lane, &mut LaneTable)> {
        (0..).zip(self.lanes.iter_mut())
    }

    /// Whether the lane is held by the token of this lease.
    pub(super) fn is_held(&self, lease: &Lease) -> bool {
        self.lane(lease.lane).is_some_and(|lane| lane.is_held_by(lease.token))
    }

    pub(super) fn seq_of(&self, id: &str) -> Option<Seq> {
        self.rows.find(id)
    }

    /// The next place in the order, drawn for a transaction that stays open.
    pub(super) fn draw_seq(&mut self, tx: u64) -> Seq {
        self.last_seq += 1;
        self.open.entry(tx).or_insert(self.last_seq);
        self.last_seq
    }

    /// Nothing comes from the transactions that were open any more.
    pub(super) fn close_all(&mut self) {
        self.open.clear();
    }

    /// Nothing more comes from this transaction.
    pub(super) fn close(&mut self, tx: u64) {
        self.open.remove(&tx);
    }

    /// The largest seq that was drawn.
    pub(super) fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// The largest seq below which no open transaction can still put anything.
    pub(super) fn ceiling(&self) -> Seq {
        self.open.values().min().map_or(self.last_seq, |first| first.saturating_sub(1))
    }

    /// The number of the last commit.
    pub(super) fn commits(&self) -> u64 {
        self.commits
    }

    /// Makes a row visible.
    pub(super) fn add(&mut self, seq: Seq, mut row: Row) {
        self.commits += 1;
        row.commit = self.commits;
        if let Some(lane) = self.lane_mut(row.lane) {
            lane.enter(seq, &row);
        }
        self.rows.insert(seq, row);
    }

    /// Changes a row, and moves it to the set that it then belongs to.
    pub(super) fn change(&mut self, seq: Seq, change: impl FnOnce(&mut Row)) {
        let Some(row) = self.rows.get_mut(seq) else { return };
        let Some(lane) = usize::try_from(row.lane).ok().and_then(|lane| self.lanes.get_mut(lane)) else {
            return;
        };
        lane.leave(seq, row);
        change(row);
        lane.enter(seq, row);
        if row.status == Status::Dead {
            self.dead.insert(seq);
        } else {
            self.dead.remove(&seq);
        }
    }

    /// Lets a row that is parked lie among the others again; the hold that it was the last one behind goes.
    pub(super) fn unpark(&mut self, seq: Seq) {
        self.change(seq, |row| row.parked = false);
        let Some(row) = self.rows.get(seq) else { return };
        let (Some(key), number) = (row.key().map(Arc::clone), row.lane) else { return };
        if let Some(lane) = self.lane_mut(number).filter(|lane| lane.parked_count(&key) == 0) {
            lane.drop_hold(&key);
        }
    }

    /// A row of this key was deleted behind the store's back: it may have been the head.
    pub(super) fn suspect_orphan(&mut self, lane: Lane, key: Arc<str>) {
        self.orphans.insert((lane, key));
    }

    /// Frees keys whose head is gone, among at most `limit` that lost a row.
    pub(super) fn free_orphans(&mut self, after: Option<&HeldKey>, limit: usize) -> Orphans {
        let from = match after {
            Some(HeldKey { lane, key }) => Bound::Excluded((*lane, Arc::from(key.as_str()))),
            None => Bound::Unbounded,
        };
        let page: Vec<_> = self.orphans.range((from, Bound::Unbounded)).take(limit).cloned().collect();
        let mut found = Orphans::default();
        for (number, key) in &page {
            let hold = self.lane(*number).and_then(|lane| lane.hold_of(key));
            let gone =
                hold.filter(|hold| hold.reason != HoldReason::Returning && self.rows.get(hold.seq).is_none());
            let Some(lane) = self.lane_mut(*number).filter(|lane| !lane.locked) else { continue };
            if let Some(hold) = gone {
                lane.set_returning(key, hold.seq);
                found.freed.push(HeldKey { lane: *number, key: key.to_string() });
            }
            self.orphans.remove(&(*number, Arc::clone(key)));
        }
        let last = page.last().filter(|_| page.len() >= limit);
        found.next = last.map(|(lane, key)| HeldKey { lane: *lane, key: key.to_string() });
        found
    }

    /// Deletes a row.
    pub(super) fn remove(&mut self, seq: Seq) -> Option<Row> {
        let row = self.rows.remove(seq)?;
        if let Some(lane) = self.lane_mut(row.lane) {
            lane.leave(seq, &row);
        }
        if row.status == Status::Dead {
            self.dead.remove(&seq);
        }
        Some(row)
    }
}
