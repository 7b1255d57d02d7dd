//! The two lists that a claim reads on: fresh rows and waiting ones, each with how far it was read.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    ops::Bound::{Excluded, Included, Unbounded},
    time::Duration,
};

use postrider_core::{
    Timestamp,
    store::{Lane, LaneClaim, LateCommits, Position, Rescan, Seq},
};

use super::{
    row::Row,
    seqs::{bit, bits_to, chunk_of, first_of},
    tables::Tables,
};
use crate::mutations::{self, Mutation};

/// The fresh rows of all lanes of a claim, in one order.
///
/// A lane's own scan goes forward from its front. While transactions are open, rows may become visible behind it: these are told from
/// the ones that were met by the commit that made them visible. A scan behind the front that a claim cannot finish goes on in the next one from
/// where it ended, whatever it skipped on the way.
pub(super) struct Fresh {
    lanes: Vec<FreshLane>,
    /// The number of the last commit when the claim began.
    commits: u64,
    /// Whether any lane is read behind its front.
    reads_behind: bool,
    /// The next chunk to read.
    next: u64,
}

struct FreshLane {
    lane: Lane,
    from: Seq,
    /// What is visible up to here was met by the commit of this number.
    front: Seq,
    met_at: u64,
    /// A scan behind the front that goes on sees no more than its first claim did: what a transaction made visible since may have its
    /// first row behind the scan, and is for the next one.
    sees_to: u64,
    to: Seq,
}

impl Fresh {
    pub(super) fn new(lanes: &[&LaneClaim], tables: &Tables) -> Self {
        let lanes: Vec<FreshLane> = lanes.iter().map(|claim| FreshLane::of(claim)).collect();
        let reads_behind = lanes.iter().any(|lane| lane.from < lane.front);
        Self { lanes, commits: tables.commits(), reads_behind, next: 0 }
    }

    /// Whether a lane is read up to its front only, because a scan behind it goes on.
    pub(super) fn ends_at_a_front(&self) -> bool {
        self.lanes.iter().any(|lane| lane.to == lane.front)
    }

    /// Whether this row is none of this claim's: an earlier one has met it, or a later one will.
    pub(super) fn skips(&self, seq: Seq, row: &Row) -> bool {
        let of_lane = |lane: &FreshLane| {
            let unmet = row.commit > lane.met_at && row.commit <= lane.sees_to;
            lane.lane == row.lane && seq <= lane.front && !unmet
        };
        self.reads_behind && self.lanes.iter().any(of_lane)
    }

    /// Everything below this was read.
    pub(super) fn next_seq(&self) -> Seq {
        first_of(self.next)
    }

    /// The next rows that are not in memory, as the bits of a chunk.
    pub(super) fn next_chunk(&mut self, tables: &Tables, in_flight: &[Seq]) -> Option<(u64, u128)> {
        let mut found = None;
        let mut add = |number: u64, bits: u128| match &mut found {
            Some((first, all)) if *first == number => *all |= bits,
            Some((first, _)) if *first < number => {}
            _ => found = Some((number, bits)),
        };
        for lane in &self.lanes {
            let fresh =
                tables.lane(lane.lane).and_then(|table| table.fresh.chunk_from(lane.start(self.next)));
            if let Some((number, bits)) = fresh.filter(|(number, _)| *number <= chunk_of(lane.to)) {
                add(number, bits & bits_to(number, lane.to) & !bits_to(number, lane.from));
            }
        }
        let Some((number, mut bits)) = found else {
            self.next = u64::MAX;
            return None;
        };
        self.next = number + 1;
        let known = in_flight.partition_point(|seq| chunk_of(*seq) < number);
        for seq in in_flight.iter().skip(known).take_while(|seq| chunk_of(**seq) == number) {
            bits &= !bit(*seq);
        }
        Some((number, bits))
    }

    /// Where the next claim of a lane begins, if this one has met everything up to `met`.
    pub(super) fn position(
        &self,
        claim: &LaneClaim,
        tables: &Tables,
        met: Seq,
        (due_at, due_seq): (Timestamp, Seq),
    ) -> Position {
        let (was, front) = (claim.from, front(&claim.from));
        if claim.to < front {
            // An end that lies behind takes nothing back.
            return Position { due_at, due_seq, ..was };
        }
        let met = met.min(tables.last_seq()).min(FreshLane::of(claim).to);
        let scan = rescan_of(claim);
        if met < front {
            let began = if scan.is_under_way() { scan.began } else { self.commits };
            let rescan = match mutations::active(Mutation::ScanStartsOver) {
                true => Rescan::NONE,
                false => Rescan { reached: met, began },
            };
            return Position { due_at, due_seq, late: LateCommits { rescan, ..was.late }, ..was };
        }
        // A scan that took several claims says nothing of what became visible behind it meanwhile.
        let (seen, seq) = match scan.is_under_way() {
            true => (scan.began, was.seq),
            false => (self.commits, met.min(tables.ceiling()).max(was.seq)),
        };
        let late = LateCommits { front: met, seen, rescan: Rescan::NONE };
        Position { seq, met: met.max(was.met), due_at, due_seq, late }
    }
}

/// How far a lane's own scan has come.
fn front(position: &Position) -> Seq {
    position.late.front.max(position.seq)
}

/// The scan behind the front that goes on. A claim that reads up to a place takes no part in it.
fn rescan_of(claim: &LaneClaim) -> Rescan {
    if claim.to < Seq::MAX { Rescan::NONE } else { claim.from.late.rescan }
}

impl FreshLane {
    fn of(claim: &LaneClaim) -> Self {
        let (Position { seq, late, .. }, front) = (claim.from, front(&claim.from));
        // What lies beyond the front may have to come after what is behind it.
        let scan = rescan_of(claim);
        let to = if scan.is_under_way() { claim.to.min(front) } else { claim.to };
        let sees_all = !scan.is_under_way() || mutations::active(Mutation::ScanSeesMore);
        let sees_to = if sees_all { u64::MAX } else { scan.began };
        Self { lane: claim.lease.lane, from: seq.max(scan.reached), front, met_at: late.seen, sees_to, to }
    }

    /// The first chunk that can have something for this lane, from a chunk on.
    fn start(&self, next: u64) -> u64 {
        next.max(chunk_of(self.from.saturating_add(1)))
    }
}

/// The due waiting rows of all lanes of a claim, in the order of their times.
pub(super) struct Waiting {
    now: Timestamp,
    /// The lanes, and the last row of each that was read.
    lanes: Vec<(Lane, (Timestamp, Seq))>,
    /// The next row of each lane, the first one on top, with the place of its lane.
    next: BinaryHeap<Reverse<((Timestamp, Seq), usize)>>,
}

impl Waiting {
    pub(super) fn new(claims: &[&LaneClaim], now: Timestamp, tables: &Tables) -> Self {
        let last = |claim: &&LaneClaim| (claim.lease.lane, (claim.from.due_at, claim.from.due_seq));
        let mut waiting = Self { now, lanes: claims.iter().map(last).collect(), next: BinaryHeap::new() };
        (0..claims.len()).for_each(|place| waiting.find_next(place, tables));
        waiting
    }

    /// The next row.
    pub(super) fn next(&mut self, tables: &Tables) -> Option<Seq> {
        let Reverse((due, place)) = self.next.pop()?;
        self.lanes.get_mut(place)?.1 = due;
        self.find_next(place, tables);
        Some(due.1)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.next.is_empty()
    }

    fn find_next(&mut self, place: usize, tables: &Tables) {
        let end = (self.now, Seq::MAX);
        let Some((number, last)) = self.lanes.get(place).copied().filter(|(_, last)| *last < end) else {
            return;
        };
        let lane = tables.lane(number);
        let due = lane.and_then(|lane| lane.waiting.range((Excluded(last), Included(end))).next());
        self.next.extend(due.map(|due| Reverse((*due, place))));
    }
}

/// How long until the next row of these lanes is due that is not due yet.
pub(super) fn next_due(claims: &[&LaneClaim], now: Timestamp, tables: &Tables) -> Option<Duration> {
    let next = |claim: &&LaneClaim| {
        let waiting = &tables.lane(claim.lease.lane)?.waiting;
        waiting.range((Excluded((now, Seq::MAX)), Unbounded)).next().map(|(at, _)| at.since(now))
    };
    claims.iter().filter_map(next).min()
}
