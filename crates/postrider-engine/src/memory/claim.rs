//! Claiming: what is due, in order, and what is met on the way.
//!
//! A claim reads three streams: returning rows, waiting rows that are due, and fresh ones. Each is merged over the lanes,
//! the oldest first, so that no lane waits for another's backlog. The first two together have half of the limit, fresh
//! rows the rest of it, and whatever one of them leaves goes to the others.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    ops::Bound::{Excluded, Included, Unbounded},
    sync::Arc,
};

use postrider_core::{
    Timestamp,
    store::{Claim, Claimed, ClaimedEvent, Lane, LaneClaim, Position, Seq},
};

use super::{
    hash::FixedSet,
    lane::LaneTable,
    row::{Row, Status},
    tables::Tables,
};

/// Most keys that one claim lets come back.
const RETURNING_KEYS_MAX: usize = 256;
/// Most events of one of them.
const RETURNING_OF_A_KEY_MAX: usize = 16;
/// Most rows that one claim walks over: parking a hundred thousand followers must not keep the lock for long.
const MET_ROWS_MAX: usize = 10_000;

pub(super) fn claim(tables: &mut Tables, claim: &Claim, now: Timestamp) -> Claimed {
    let (held, lost): (Vec<_>, Vec<_>) = claim.lanes.iter().partition(|lane| tables.is_held(&lane.lease));
    let mut reading = Reading {
        lanes: held.into_iter().map(LaneReading::new).collect(),
        tables,
        claim,
        now,
        events: Vec::new(),
        taken: FixedSet::default(),
        bytes: 0,
        met: 0,
    };
    reading.park_again();
    let (mut returning, mut more) = reading.returning();

    let (half, half_bytes) = (claim.limit.div_ceil(2), claim.bytes / 2);
    reading.take_returning(&mut returning, half.div_ceil(2), half_bytes);
    reading.take_waiting(half, half_bytes);
    reading.take_returning(&mut returning, half, half_bytes);
    more |= reading.take_fresh();
    more |= reading.take_waiting(claim.limit, claim.bytes);
    reading.take_returning(&mut returning, claim.limit, claim.bytes);
    more |= !returning.is_empty();

    reading.finish(more, lost.into_iter().map(|lane| lane.lease.lane).collect())
}

/// How far a claim has come in one lane.
struct LaneReading {
    lane: Lane,
    from: Position,
    again: VecDeque<Seq>,
    /// The last fresh row that was met.
    seq: Seq,
    /// The last waiting row that was met.
    due: (Timestamp, Seq),
    fresh_ended: bool,
    waiting_ended: bool,
}

impl LaneReading {
    fn new(claim: &LaneClaim) -> Self {
        let mut again = claim.again.clone();
        again.sort_unstable();
        again.dedup();
        Self {
            lane: claim.lease.lane,
            from: claim.from,
            again: again.into(),
            seq: claim.from.seq,
            due: (claim.from.due_at, claim.from.due_seq),
            fresh_ended: false,
            waiting_ended: false,
        }
    }

    /// The next row to look at as fresh: first those to be looked at once more, which lie below all others.
    fn next_fresh(&self, lane: &LaneTable) -> Option<Seq> {
        self.again
            .front()
            .copied()
            .or_else(|| lane.fresh.range((Excluded(self.seq), Unbounded)).next().copied())
    }

    fn meet_fresh(&mut self, seq: Seq) {
        if self.again.front() == Some(&seq) {
            self.again.pop_front();
        } else {
            self.seq = seq;
        }
    }

    fn next_waiting(&self, lane: &LaneTable, now: Timestamp) -> Option<(Timestamp, Seq)> {
        if self.due >= (now, Seq::MAX) {
            return None;
        }
        lane.waiting.range((Excluded(self.due), Included((now, Seq::MAX)))).next().copied()
    }
}

/// What is to be done with a row that a claim met.
enum Met {
    /// Nothing: it is in memory, gone, or not due.
    Pass,
    /// It is not due yet and no longer fresh.
    Wait,
    /// It stands behind the head of its key.
    Park,
    /// It can be delivered.
    Due(bool),
}

struct Reading<'a> {
    tables: &'a mut Tables,
    claim: &'a Claim,
    now: Timestamp,
    lanes: Vec<LaneReading>,
    events: Vec<ClaimedEvent>,
    taken: FixedSet<Seq>,
    bytes: usize,
    met: usize,
}

impl Reading<'_> {
    /// Parks the followers among what is to be looked at once more, before anything comes back: they may be the first of
    /// what does.
    fn park_again(&mut self) {
        let again: Vec<Seq> = self.lanes.iter().flat_map(|reading| reading.again.iter().copied()).collect();
        for seq in again {
            if matches!(self.judge(seq), Met::Park) {
                self.park(seq);
            }
        }
    }

    /// The rows that come back, in order, at most as many as are wanted; and whether there are more. Takes away the holds
    /// that nothing is left behind of.
    fn returning(&mut self) -> (VecDeque<(Lane, Seq)>, bool) {
        let mut keys: Vec<(Seq, Lane, Arc<str>)> = Vec::new();
        for reading in &self.lanes {
            let Some(lane) = self.tables.lane(reading.lane) else { continue };
            let of_lane = lane.returning().take(RETURNING_KEYS_MAX + 1);
            keys.extend(of_lane.map(|(seq, key)| (*seq, reading.lane, Arc::clone(key))));
        }
        keys.sort_unstable();
        let more_keys = keys.len() > RETURNING_KEYS_MAX;
        let (mut rows, mut left) = (VecDeque::new(), false);
        for (_, number, key) in keys.into_iter().take(RETURNING_KEYS_MAX) {
            // Beyond what was met something unparked of the key may come first.
            let met = self
                .lanes
                .iter()
                .find(|reading| reading.lane == number)
                .map_or(0, |reading| reading.from.met);
            let Some(lane) = self.tables.lane_mut(number) else { continue };
            if lane.parked_count(&key) == 0 {
                lane.drop_hold(&key);
                continue;
            }
            let wanted = |seq: &Seq| *seq <= met && self.claim.in_flight.binary_search(seq).is_err();
            let before = rows.len();
            rows.extend(
                lane.parked_of(&key).take(RETURNING_OF_A_KEY_MAX).filter(wanted).map(|seq| (number, seq)),
            );
            // What stands behind rows that are all in memory already is not due: the next settle makes it so.
            left |= rows.len() > before && lane.parked_count(&key) > RETURNING_OF_A_KEY_MAX;
            if rows.len() > self.claim.limit {
                break;
            }
        }
        left |= more_keys && !rows.is_empty();
        (rows, left)
    }

    fn take_returning(&mut self, rows: &mut VecDeque<(Lane, Seq)>, limit: usize, bytes: usize) {
        while let Some((_, seq)) = rows.front().copied() {
            if !self.take(seq, true, limit, bytes) {
                break;
            }
            rows.pop_front();
        }
    }

    /// Takes due waiting rows, the longest due first. Says whether some are left.
    fn take_waiting(&mut self, limit: usize, bytes: usize) -> bool {
        let mut heads = BinaryHeap::new();
        for place in 0..self.lanes.len() {
            self.push_waiting(&mut heads, place);
        }
        while let Some(Reverse((due, place))) = heads.pop() {
            let seq = due.1;
            match self.judge(seq) {
                Met::Due(held) => {
                    if !self.take(seq, held, limit, bytes) {
                        return true;
                    }
                }
                Met::Park => self.park(seq),
                Met::Wait | Met::Pass => {}
            }
            if let Some(reading) = self.lanes.get_mut(place) {
                reading.due = due;
            }
            self.push_waiting(&mut heads, place);
        }
        false
    }

    fn push_waiting(&mut self, heads: &mut BinaryHeap<Reverse<((Timestamp, Seq), usize)>>, place: usize) {
        let Some(reading) = self.lanes.get_mut(place) else { return };
        let next = self.tables.lane(reading.lane).and_then(|lane| reading.next_waiting(lane, self.now));
        reading.waiting_ended = next.is_none();
        heads.extend(next.map(|due| Reverse((due, place))));
    }

    /// Takes fresh rows in order. Says whether some are left.
    fn take_fresh(&mut self) -> bool {
        let mut heads = BinaryHeap::new();
        for place in 0..self.lanes.len() {
            self.push_fresh(&mut heads, place);
        }
        while let Some(Reverse((seq, place))) = heads.pop() {
            match self.judge(seq) {
                Met::Due(held) => {
                    if !self.take(seq, held, self.claim.limit, self.claim.bytes) {
                        return true;
                    }
                }
                Met::Park => self.park(seq),
                Met::Wait => self.tables.change(seq, |row| row.status = Status::Waiting),
                Met::Pass => {}
            }
            if let Some(reading) = self.lanes.get_mut(place) {
                reading.meet_fresh(seq);
            }
            self.met += 1;
            self.push_fresh(&mut heads, place);
            if self.met >= MET_ROWS_MAX && !heads.is_empty() {
                return true;
            }
        }
        false
    }

    fn push_fresh(&mut self, heads: &mut BinaryHeap<Reverse<(Seq, usize)>>, place: usize) {
        let Some(reading) = self.lanes.get_mut(place) else { return };
        let next = self.tables.lane(reading.lane).and_then(|lane| reading.next_fresh(lane));
        reading.fresh_ended = next.is_none();
        heads.extend(next.map(|seq| Reverse((seq, place))));
    }

    fn judge(&self, seq: Seq) -> Met {
        let wanted = self.claim.in_flight.binary_search(&seq).is_err() && !self.taken.contains(&seq);
        let Some(row) = self.tables.rows.get(&seq).filter(|row| wanted && !row.parked) else {
            return Met::Pass;
        };
        // Time goes before the hold: a row that was parked before its time would come back before its time.
        match row.status {
            Status::Dead => return Met::Pass,
            Status::New if row.is_early(self.now) => return Met::Wait,
            Status::Waiting if row.is_early(self.now) => return Met::Pass,
            Status::New | Status::Waiting => {}
        }
        match self.hold_of(row) {
            None => Met::Due(false),
            Some(head) if head == seq => Met::Due(true),
            Some(_) => Met::Park,
        }
    }

    /// The head that the row's key waits for.
    fn hold_of(&self, row: &Row) -> Option<Seq> {
        Some(self.tables.lane(row.lane)?.hold_of(row.key()?)?.seq)
    }

    fn park(&mut self, seq: Seq) {
        self.tables.change(seq, |row| row.parked = true);
    }

    /// Returns a row to the engine, if it fits. The first one always does.
    fn take(&mut self, seq: Seq, held: bool, limit: usize, bytes: usize) -> bool {
        let Some(row) = self.tables.rows.get(&seq) else { return true };
        let weight_bytes = row.weight_bytes();
        let fits = self.events.is_empty() || self.bytes.saturating_add(weight_bytes) <= bytes;
        if self.events.len() >= limit || !fits {
            return false;
        }
        self.bytes += weight_bytes;
        self.taken.insert(seq);
        self.events.push(ClaimedEvent {
            lane: row.lane,
            seq,
            attempts: row.attempts,
            held,
            created_at: row.created_at,
            event: row.content.clone().map_err(|broken| broken.undecodable),
        });
        true
    }

    fn finish(mut self, more: bool, lost: Vec<Lane>) -> Claimed {
        self.events.sort_unstable_by_key(|event| event.seq);
        let (ceiling, last_seq) = (self.tables.ceiling(), self.tables.last_seq());
        // Back to the start only when all lanes are through: a lane that went back alone would return its rows, which the
        // engine has, over and over in front of the longer ones.
        let waiting_ended = self.lanes.iter().all(|reading| reading.waiting_ended);
        let position = |reading: &LaneReading| {
            let walked = if reading.fresh_ended { last_seq } else { reading.seq };
            let (seq, met) = (walked.min(ceiling), walked.max(reading.from.met));
            let (due_at, due_seq) = if waiting_ended { (Timestamp::EPOCH, 0) } else { reading.due };
            (reading.lane, Position { seq: seq.max(reading.from.seq), met, due_at, due_seq, ..reading.from })
        };
        let next_due = self.lanes.iter().filter_map(|reading| {
            let later = self
                .tables
                .lane(reading.lane)?
                .waiting
                .range((Excluded((self.now, Seq::MAX)), Unbounded))
                .next();
            later.map(|(at, _)| at.since(self.now))
        });
        let again =
            self.lanes.iter().flat_map(|reading| reading.again.iter().map(|seq| (reading.lane, *seq)));
        Claimed {
            positions: self.lanes.iter().map(position).collect(),
            again: again.collect(),
            lost,
            more,
            next_due: next_due.min(),
            now: self.now,
            events: self.events,
        }
    }
}
