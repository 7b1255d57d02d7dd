//! Claiming: what is due, in order, and what is met on the way.
//!
//! A claim reads three streams: returning rows, waiting rows that are due, and fresh ones. Each is merged over the lanes,
//! the oldest first, so that no lane waits for another's backlog. The first two together have half of what a claim may
//! return and walk over, fresh rows the rest of it, and whatever one of them leaves goes to the others.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    sync::Arc,
};

use postrider_core::{
    Timestamp,
    store::{Claim, Claimed, ClaimedEvent, HoldReason, Lane, LaneClaim, Seq},
};

use super::{
    faults::Faults,
    hash::FixedSet,
    lane::Held,
    row::{Row, Status, id_of},
    seqs::seqs_of,
    streams::{Fresh, Waiting},
    tables::Tables,
};

/// Most keys that one claim lets come back.
const RETURNING_KEYS_MAX: usize = 256;
/// What room is made for from the start.
const BATCH_USUAL: usize = 512;

pub(super) fn claim(tables: &mut Tables, claim: &Claim, now: Timestamp, faults: &Faults) -> Claimed {
    let (lanes, lost): (Vec<_>, Vec<_>) = claim.lanes.iter().partition(|lane| tables.is_held(&lane.lease));
    let rows_max = tables.scanned_rows_max;
    let mut fresh = Fresh::new(&lanes, tables);
    let mut reading = Reading {
        waiting: lanes.iter().map(|lane| Waiting::new(lane, now)).collect(),
        lanes,
        tables,
        faults,
        claim,
        now,
        locked: Vec::new(),
        stuck: FixedSet::default(),
        events: Vec::with_capacity(claim.limit.min(BATCH_USUAL)),
        asked: FixedSet::default(),
        asks_twice: !fresh.again().is_empty(),
        bytes: 0,
        met: 0,
    };
    reading.park_again(&fresh);
    let (mut returning, mut more) = reading.returning();

    let whole = Share { events: claim.limit, bytes: claim.bytes, met: rows_max };
    let half = Share { events: whole.events.div_ceil(2), bytes: whole.bytes / 2, met: whole.met / 2 };
    let quarter = Share { events: half.events.div_ceil(2), ..half };
    reading.take_returning(&mut returning, quarter);
    reading.take_waiting(half);
    reading.take_returning(&mut returning, half);
    more |= reading.take_fresh(&mut fresh, whole) || fresh.ends_at_a_front();
    more |= reading.take_waiting(whole);
    reading.take_returning(&mut returning, whole);
    more |= !returning.is_empty();

    let lost = lost.into_iter().map(|lane| lane.lease.lane).collect();
    reading.finish(&fresh, more, lost)
}

/// How far one stream may go, with what those before it have used.
#[derive(Clone, Copy)]
struct Share {
    events: usize,
    bytes: usize,
    met: usize,
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

/// What became of a row that can be delivered.
#[derive(PartialEq, Eq)]
enum Offered {
    Taken,
    Refused,
    /// It did not fit, and nobody was asked.
    Left,
}

struct Reading<'a> {
    tables: &'a mut Tables,
    faults: &'a Faults,
    claim: &'a Claim,
    now: Timestamp,
    /// What was to be written and somebody else has locked: it has to be met again.
    locked: Vec<(Lane, Seq)>,
    /// Keys of such rows that something else of the key must not overtake in this claim.
    stuck: FixedSet<(Lane, Arc<str>)>,
    lanes: Vec<&'a LaneClaim>,
    waiting: Vec<Waiting>,
    events: Vec<ClaimedEvent>,
    /// Rows that are not to be asked about once more, where this claim can meet a row twice.
    asked: FixedSet<Seq>,
    asks_twice: bool,
    bytes: usize,
    met: usize,
}

impl Reading<'_> {
    /// Parks the followers among what is to be looked at once more, before anything comes back: they may be the first of
    /// what does.
    fn park_again(&mut self, fresh: &Fresh) {
        for (seq, _) in fresh.again() {
            if !self.is_in_flight(*seq) && matches!(self.judge(*seq), Met::Park) && !self.park(*seq) {
                self.get_stuck(*seq);
            }
        }
    }

    /// The rows that come back, in order, at most as many as are wanted; and whether there are more. Takes away the holds
    /// that nothing is left behind of.
    fn returning(&mut self) -> (VecDeque<Seq>, bool) {
        let mut keys: Vec<(Seq, Lane, Seq, Arc<str>)> = Vec::new();
        for LaneClaim { lease, from, .. } in &self.lanes {
            let Some(lane) = self.tables.lane(lease.lane) else { continue };
            let of_lane = lane.returning().take(RETURNING_KEYS_MAX + 1);
            keys.extend(of_lane.map(|(head, key)| (*head, lease.lane, from.met, Arc::clone(key))));
        }
        keys.sort_unstable();
        let more_keys = keys.len() > RETURNING_KEYS_MAX;
        let (mut rows, mut left, of_a_key) = (VecDeque::new(), false, self.tables.returning_of_a_key_max);
        for (_, number, met, key) in keys.into_iter().take(RETURNING_KEYS_MAX) {
            if rows.len() > self.claim.limit {
                left = true;
                break;
            }
            let is_stuck = self.stuck.contains(&(number, Arc::clone(&key)));
            let Some(lane) = self.tables.lane_mut(number) else { continue };
            if lane.parked_count(&key) == 0 {
                if !lane.locked {
                    lane.drop_hold(&key);
                }
                continue;
            }
            // What could not be parked comes before what is.
            if is_stuck {
                continue;
            }
            // Beyond what was met something unparked of the key may come first.
            let wanted = |seq: &Seq| *seq <= met && self.claim.in_flight.binary_search(seq).is_err();
            let before = rows.len();
            rows.extend(lane.parked_of(&key).take(of_a_key).filter(wanted));
            // What stands behind rows that are all in memory already is not due: the next settle makes it so.
            left |= rows.len() > before && lane.parked_count(&key) > of_a_key;
        }
        left |= more_keys && !rows.is_empty();
        (rows, left)
    }

    fn take_returning(&mut self, rows: &mut VecDeque<Seq>, share: Share) {
        while let Some(seq) = rows.front().copied().filter(|_| self.met < share.met) {
            match self.offer(seq, true, share) {
                Offered::Taken => {}
                Offered::Refused => self.unpark(seq),
                Offered::Left => break,
            }
            self.met += 1;
            rows.pop_front();
        }
    }

    /// Takes due waiting rows, the longest due first. Says whether some are left.
    fn take_waiting(&mut self, share: Share) -> bool {
        let mut heads = BinaryHeap::new();
        for (place, waiting) in self.waiting.iter_mut().enumerate() {
            heads.extend(waiting.next(self.tables).map(|due| Reverse((due, place))));
        }
        while let Some(Reverse((due, place))) = heads.pop() {
            let (_, seq) = due;
            if self.met >= share.met {
                return true;
            }
            match self.judge(seq) {
                _ if self.is_in_flight(seq) => {}
                Met::Due(held) => {
                    if self.offer(seq, held, share) == Offered::Left {
                        return true;
                    }
                }
                Met::Park => _ = self.park(seq),
                Met::Wait | Met::Pass => {}
            }
            self.met += 1;
            let Some(waiting) = self.waiting.get_mut(place) else { continue };
            waiting.last = due;
            heads.extend(waiting.next(self.tables).map(|due| Reverse((due, place))));
        }
        false
    }

    /// Takes fresh rows in order. Says whether some are left.
    fn take_fresh(&mut self, fresh: &mut Fresh, share: Share) -> bool {
        while let Some((number, bits)) = fresh.next_chunk(self.tables, &self.claim.in_flight) {
            for seq in seqs_of(number, bits) {
                if self.tables.rows.get(seq).is_some_and(|row| fresh.skips(seq, row)) {
                    continue;
                }
                if self.met >= share.met {
                    fresh.stop_before(seq);
                    return true;
                }
                match self.judge(seq) {
                    Met::Due(held) => {
                        if self.offer(seq, held, share) == Offered::Left {
                            fresh.stop_before(seq);
                            return true;
                        }
                    }
                    Met::Park => _ = self.park(seq),
                    Met::Wait => _ = self.write(seq, |row| row.status = Status::Waiting),
                    Met::Pass => {}
                }
                self.met += 1;
            }
        }
        false
    }

    fn is_in_flight(&self, seq: Seq) -> bool {
        self.claim.in_flight.binary_search(&seq).is_ok()
    }

    fn judge(&self, seq: Seq) -> Met {
        let asked = self.asked.contains(&seq);
        let Some(row) = self.tables.rows.get(seq).filter(|row| !asked && !row.parked) else {
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
            Some(hold) if hold.seq == seq || self.is_let_out(row, seq, hold) => Met::Due(true),
            Some(_) => Met::Park,
        }
    }

    /// What the row's key is held by.
    fn hold_of(&self, row: &Row) -> Option<Held> {
        let lane = self.tables.lane(row.lane).filter(|lane| lane.held_keys() > 0)?;
        lane.hold_of(row.key()?)
    }

    /// Whether this is a walk, and the row was unparked for it: nothing that is not in memory is parked before it.
    fn is_let_out(&self, row: &Row, seq: Seq, hold: Held) -> bool {
        let walks = hold.reason == HoldReason::Returning && self.lanes.iter().any(|lane| lane.to < Seq::MAX);
        let Some((lane, key)) = self.tables.lane(row.lane).zip(row.key()).filter(|_| walks) else {
            return false;
        };
        lane.parked_of(key).find(|seq| !self.is_in_flight(*seq)).is_none_or(|parked| seq < parked)
    }

    /// Parks a row, unless somebody else has locked it.
    fn park(&mut self, seq: Seq) -> bool {
        self.write(seq, |row| row.parked = true)
    }

    /// Changes a row. One that somebody else has locked is left as it is, to be met again.
    fn write(&mut self, seq: Seq, change: impl FnOnce(&mut Row)) -> bool {
        let Some(lane) = self.locked_in(seq) else {
            self.tables.change(seq, change);
            return true;
        };
        self.locked.push((lane, seq));
        false
    }

    /// The lane of a row that somebody else has locked, or whose lane.
    fn locked_in(&self, seq: Seq) -> Option<Lane> {
        let row = self.tables.rows.get(seq)?;
        let is_locked = || self.faults.is_locked(id_of(&row.content));
        (is_locked() || self.tables.lane(row.lane).is_some_and(|lane| lane.locked)).then_some(row.lane)
    }

    /// Nothing else of this row's key is written or comes back in this claim.
    fn get_stuck(&mut self, seq: Seq) {
        self.stuck.extend(self.key_of_lane(seq));
    }

    fn key_of_lane(&self, seq: Seq) -> Option<(Lane, Arc<str>)> {
        let row = self.tables.rows.get(seq)?;
        Some((row.lane, Arc::clone(row.key()?)))
    }

    /// Lets a row that came back and was not wanted lie among the others, where it is not met by this claim. One that is locked stays parked, and
    /// so do the later ones of its key: unparked, they would be read before it.
    fn unpark(&mut self, seq: Seq) {
        if self.locked_in(seq).is_some() {
            self.get_stuck(seq);
        }
        if self.key_of_lane(seq).is_none_or(|key| !self.stuck.contains(&key)) {
            self.tables.unpark(seq);
        }
        self.asked.insert(seq);
    }

    /// Returns a row to the engine, if it fits and is wanted. The first one always fits.
    fn offer(&mut self, seq: Seq, held: bool, share: Share) -> Offered {
        let Some(row) = self.tables.rows.get(seq) else { return Offered::Refused };
        let bytes = self.bytes.saturating_add(row.weight_bytes);
        if self.events.len() >= share.events || (bytes > share.bytes && !self.events.is_empty()) {
            return Offered::Left;
        }
        if self.asks_twice {
            self.asked.insert(seq);
        }
        if let Some(admission) = &self.claim.admission
            && !admission.admits(&row.glance(seq))
        {
            return Offered::Refused;
        }
        self.bytes = bytes;
        self.events.push(ClaimedEvent {
            lane: row.lane,
            seq,
            attempts: row.attempts,
            held,
            created_at: row.created_at,
            event: row.content.clone().map_err(|undecodable| *undecodable),
        });
        Offered::Taken
    }

    fn finish(mut self, fresh: &Fresh, more: bool, lost: Vec<Lane>) -> Claimed {
        self.events.sort_unstable_by_key(|event| event.seq);
        // Back to the start only when all lanes are through: a lane that went back alone would return its rows, which the
        // engine has, over and over in front of the longer ones. And not where rows may have been passed over.
        let round = self.claim.admission.is_none() && self.waiting.iter().all(|waiting| waiting.ended);
        let position = |(lane, waiting): (&&LaneClaim, &Waiting)| {
            let (due_at, due_seq) = if round { (Timestamp::EPOCH, 0) } else { waiting.last };
            (lane.lease.lane, fresh.position(lane, self.tables, due_at, due_seq))
        };
        let mut again = fresh.left_of_again();
        again.append(&mut self.locked);
        again.sort_unstable();
        again.dedup();
        Claimed {
            positions: self.lanes.iter().zip(&self.waiting).map(position).collect(),
            again,
            lost,
            more,
            next_due: self.waiting.iter().filter_map(|waiting| waiting.next_due(self.tables)).min(),
            recovered: 0,
            now: self.now,
            events: self.events,
        }
    }
}
