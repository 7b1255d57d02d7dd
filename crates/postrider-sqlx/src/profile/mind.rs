//! What the active instance keeps in memory: which rows it has, which of them wait, and which keys are held.
//!
//! A external outbox table has no column for an event's place in the order that fits into a number, so places are given out here, and mean
//! nothing to another instance.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use postrider_core::{
    GLOBAL_AGGREGATE, Timestamp,
    store::{HoldReason, Lease, RowSummary, Seq},
};

use super::{
    lane::LANE,
    shape::Shape,
    window::{Narrow, Window},
};

/// How many places of rows that were let go are remembered: the engine tries others first, and knows them by their places.
const LET_GO_MAX: usize = 20_000;

/// So many rows may wait or be under way before no fresh one is taken up any more.
pub(super) const ROWS_MAX: usize = 100_000;

/// Places up to this one are those of suspects.
pub(super) const SUSPECT_TO: Seq = 1 << 20;

/// A row that is in memory or waits.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) key: Option<Arc<str>>,
    /// How often it was tried when it was claimed.
    pub(super) attempts: u32,
    /// How often it was tried, as the table says now.
    pub(super) counted: u32,
    /// When it was claimed, as read back from the table.
    pub(super) stamp: Option<String>,
    pub(super) state: State,
    pub(super) shown: Shown,
}

/// What an admission is shown of a row, but for its place. It is kept, so that a row which waits and is not wanted need not be read again
/// to be skipped.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) event_type: String,
    pub(super) aggregate_type: String,
    /// Its key, also where that does not wait with it.
    pub(super) key: Option<Arc<str>>,
}

impl Shown {
    /// Of cells that may be empty.
    pub(super) fn new(
        shape: &Shape,
        event_type: Option<String>,
        aggregate_type: Option<String>,
        key: Option<Arc<str>>,
    ) -> Self {
        Self {
            event_type: event_type.unwrap_or_else(|| shape.profile.event_type.clone()),
            aggregate_type: aggregate_type.unwrap_or_else(|| GLOBAL_AGGREGATE.to_owned()),
            key,
        }
    }

    pub(super) fn summary(&self, seq: Seq, due_at: Option<Timestamp>) -> RowSummary<'_> {
        RowSummary {
            lane: LANE,
            seq,
            event_type: &self.event_type,
            aggregate_type: &self.aggregate_type,
            key: self.key.as_deref(),
            due_at,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Marked in the table, and given to the engine.
    Claimed,
    /// Not marked, and not due before this.
    Waiting(Timestamp),
}

/// Why and until when a row waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub(super) until: Timestamp,
    pub(super) attempts: u32,
    pub(super) reason: HoldReason,
    /// Whether its key waits with it.
    pub(super) holds: bool,
}

/// A key that waits for its head.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) head: Seq,
    pub(super) until: Timestamp,
    pub(super) reason: HoldReason,
}

/// What is known while a lease holds.
#[derive(Debug, Default)]
pub(super) struct Mind {
    pub(super) lease: Option<Lease>,
    pub(super) rows: BTreeMap<Seq, Row>,
    ids: HashMap<String, Seq>,
    pub(super) holds: HashMap<Arc<str>, Held>,
    /// Rows that may have been under way when the last owner ended.
    pub(super) suspects: HashSet<String>,
    /// Keys of rows that somebody claimed who is not us.
    pub(super) foreign: HashSet<String>,
    pub(super) window: Option<Window>,
    pub(super) windows_read: u64,
    /// Rows of a claim whose commit was not answered: they may be marked, and nobody has them.
    pub(super) uncertain: Vec<String>,
    /// How many claims in a row took nothing and had to leave rows.
    pub(super) left_in_a_row: u32,
    /// How many were recovered that nobody was told of yet.
    pub(super) recovered: u64,
    last: Seq,
    last_suspect: Seq,
}

impl Mind {
    /// Begins anew under a lease. No place is given out twice: the engine may still have rows of the lease before.
    pub(super) fn begin(&mut self, lease: Lease) {
        let (last, last_suspect) = (self.last.max(SUSPECT_TO), self.last_suspect);
        *self = Self { lease: Some(lease), last, last_suspect, ..Self::default() };
    }

    /// Whether a row is in memory or waits.
    pub(super) fn has(&self, id: &str) -> bool {
        self.ids.get(id).is_some_and(|seq| self.rows.contains_key(seq))
    }

    /// The row in memory that has this id.
    pub(super) fn row(&self, id: &str) -> Option<&Row> {
        self.rows.get(self.ids.get(id)?)
    }

    /// The last place that was given out.
    pub(super) fn last(&self) -> Seq {
        self.last
    }

    /// A number between the last place that was given out and the next.
    pub(super) fn step(&mut self) -> Seq {
        self.last += 1;
        self.last
    }

    /// Whether so much is in memory that nothing fresh may be added.
    pub(super) fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX
    }

    /// Whether a row of the window can be claimed: nobody has it, and its key does not wait.
    pub(super) fn is_free(&self, row: &Narrow) -> bool {
        !self.rows.contains_key(&row.seq)
            && row.key().is_none_or(|key| !self.holds.contains_key(key) && !self.foreign.contains(&**key))
    }

    /// Gives the rows of a window their places. A place is never before that of a row which comes earlier in the same key.
    pub(super) fn number(&mut self, rows: &mut [Narrow]) {
        let suspects = std::mem::take(&mut self.suspects);
        // A row before a suspect of the same key goes before it, so it counts as one.
        let mut suspect_keys: HashSet<Arc<str>> = HashSet::new();
        let mut is_suspect: Vec<bool> = rows
            .iter()
            .rev()
            .map(|row| {
                let found = suspects.contains(&row.id);
                suspect_keys.extend(row.key().cloned().filter(|_| found));
                found || row.key().is_some_and(|key| suspect_keys.contains(key))
            })
            .collect();
        is_suspect.reverse();
        let mut fresh_keys: HashSet<Arc<str>> = HashSet::new();
        let remembers = !self.ids.is_empty();
        for (row, is_suspect) in rows.iter_mut().zip(is_suspect) {
            let known = self.ids.get(&row.id).copied();
            let known = known.filter(|seq| {
                self.rows.contains_key(seq) || row.key().is_none_or(|key| !fresh_keys.contains(key))
            });
            row.seq = known.unwrap_or_else(|| self.next(is_suspect));
            if remembers && known.is_none() {
                fresh_keys.extend(row.key().cloned());
            }
        }
    }

    fn next(&mut self, is_suspect: bool) -> Seq {
        let place = if is_suspect && self.last_suspect < SUSPECT_TO {
            &mut self.last_suspect
        } else {
            &mut self.last
        };
        *place += 1;
        *place
    }

    /// Takes a row up that has no place yet.
    pub(super) fn add(&mut self, row: Row) -> Seq {
        let seq = self.next(false);
        self.insert(seq, row);
        seq
    }

    /// Takes a row up.
    pub(super) fn insert(&mut self, seq: Seq, row: Row) {
        self.ids.insert(row.id.clone(), seq);
        self.rows.insert(seq, row);
    }

    /// Forgets a row. Its key is freed if it was the head.
    pub(super) fn remove(&mut self, seq: Seq) {
        let Some(row) = self.rows.remove(&seq) else { return };
        self.ids.remove(&row.id);
        if let Some(key) = &row.key
            && self.holds.get(key).is_some_and(|held| held.head == seq)
        {
            self.holds.remove(key);
        }
    }

    /// A row waits until a time, and its key with it if that is held. It is kept if the table cannot say so, or for its key.
    pub(super) fn wait(&mut self, seq: Seq, wait: Wait, told: bool) {
        let Wait { until, attempts, reason, holds } = wait;
        let Some(row) = self.rows.get_mut(&seq) else { return };
        if !holds {
            row.key = None;
        }
        row.state = State::Waiting(until);
        (row.attempts, row.counted, row.stamp) = (attempts, attempts, None);
        match row.key.clone() {
            Some(key) => {
                self.holds.insert(key, Held { head: seq, until, reason });
            }
            None if told => self.remove(seq),
            None => {}
        }
    }

    /// Every time that is kept becomes this much older.
    pub(super) fn grow_older(&mut self, by: Duration) {
        for row in self.rows.values_mut() {
            if let State::Waiting(until) = &mut row.state {
                *until = until.minus(by);
            }
        }
        self.holds.values_mut().for_each(|held| held.until = held.until.minus(by));
        self.window = None;
    }

    pub(super) fn is_head(&self, seq: Seq) -> bool {
        self.waited_until(seq).is_some()
    }

    /// Until when a row waited that its key is held by.
    fn waited_until(&self, seq: Seq) -> Option<Timestamp> {
        let key = self.rows.get(&seq)?.key.as_ref()?;
        self.holds.get(key).filter(|held| held.head == seq).map(|held| held.until)
    }

    /// Rows that the engine was given and has no more, sorted by place.
    pub(super) fn given_back(&self, in_flight: &[Seq]) -> Vec<Seq> {
        let claimed = self.rows.iter().filter(|(_, row)| row.state == State::Claimed);
        claimed.map(|(seq, _)| *seq).filter(|seq| in_flight.binary_search(seq).is_err()).collect()
    }

    /// The engine has a row no more, and its mark is gone. A head stays one; a suspect stays one.
    pub(super) fn let_go(&mut self, seq: Seq) {
        if let Some(until) = self.waited_until(seq) {
            if let Some(row) = self.rows.get_mut(&seq) {
                (row.state, row.stamp) = (State::Waiting(until), None);
            }
            return;
        }
        let Some(id) = self.rows.get(&seq).map(|row| row.id.clone()) else { return };
        self.remove(seq);
        if self.ids.len() >= self.rows.len() + LET_GO_MAX {
            // All or none: a row must not be remembered behind an earlier one of its key that is not.
            self.ids = self.rows.iter().map(|(seq, row)| (row.id.clone(), *seq)).collect();
        }
        self.ids.insert(id, seq);
    }
}
