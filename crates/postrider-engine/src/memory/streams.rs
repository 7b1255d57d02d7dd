//! Two of the streams that a claim reads, each with how far it has come.

use std::{
    ops::{
        BitOr,
        Bound::{Excluded, Included, Unbounded},
    },
    time::Duration,
};

use postrider_core::{
    Timestamp,
    store::{Lane, LaneClaim, LateCommits, Position, Rescan, Seq},
};

use super::{
    row::Row,
    seqs::{bit, bits_to, chunk_of},
    tables::Tables,
};
use crate::broken::{self, Variant};

/// The fresh rows of all lanes of a claim, and those to be looked at once more, in one order.
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
    /// What is to be looked at once more, sorted.
    again: Vec<(Seq, Lane)>,
    /// The next chunk to look at.
    next: u64,
    /// Everything up to here was met, in every lane.
    met: Seq,
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
        let again_of = |claim: &&LaneClaim| {
            let lane = claim.lease.lane;
            claim.again.iter().map(move |seq| (*seq, lane)).collect::<Vec<_>>()
        };
        let mut again: Vec<(Seq, Lane)> = lanes.iter().flat_map(again_of).collect();
        again.sort_unstable();
        again.dedup();
        let lanes: Vec<FreshLane> = lanes.iter().map(|claim| FreshLane::of(claim)).collect();
        let reads_behind = lanes.iter().any(|lane| lane.from < lane.front);
        Self { lanes, commits: tables.commits(), reads_behind, again, next: 0, met: Seq::MAX }
    }

    /// Whether a lane is read up to its front only, because a scan behind it goes on.
    pub(super) fn ends_at_a_front(&self) -> bool {
        self.lanes.iter().any(|lane| lane.to == lane.front)
    }

    /// Whether this row is none of this claim's: an earlier one has met it, or a later one will. Not if somebody asked for it once more.
    pub(super) fn skips(&self, seq: Seq, row: &Row) -> bool {
        let of_lane = |lane: &FreshLane| {
            let unmet = row.commit > lane.met_at && row.commit <= lane.sees_to;
            lane.lane == row.lane && seq <= lane.front && !unmet
        };
        self.reads_behind
            && self.lanes.iter().any(of_lane)
            && self.again.binary_search(&(seq, row.lane)).is_err()
    }

    pub(super) fn again(&self) -> &[(Seq, Lane)] {
        &self.again
    }

    /// The next rows that are not in memory, as the bits of a chunk.
    pub(super) fn next_chunk(&mut self, tables: &Tables, in_flight: &[Seq]) -> Option<(u64, u128)> {
        let mut found = None;
        let mut add = |number: u64, bits: u128| match &mut found {
            Some((first, all)) if *first == number => *all |= bits,
            Some((first, _)) if *first < number => {}
            _ => found = Some((number, bits)),
        };
        let again = self.again.partition_point(|(seq, _)| chunk_of(*seq) < self.next);
        let mut again = self.again.iter().skip(again).map(|(seq, _)| *seq).peekable();
        if let Some(number) = again.peek().map(|seq| chunk_of(*seq)) {
            add(number, again.take_while(|seq| chunk_of(*seq) == number).map(bit).fold(0, BitOr::bitor));
        }
        for lane in &self.lanes {
            let fresh =
                tables.lane(lane.lane).and_then(|table| table.fresh.chunk_from(lane.start(self.next)));
            if let Some((number, bits)) = fresh.filter(|(number, _)| *number <= chunk_of(lane.to)) {
                add(number, bits & bits_to(number, lane.to) & !bits_to(number, lane.from));
            }
        }
        let (number, mut bits) = found?;
        self.next = number + 1;
        let known = in_flight.partition_point(|seq| chunk_of(*seq) < number);
        for seq in in_flight.iter().skip(known).take_while(|seq| chunk_of(**seq) == number) {
            bits &= !bit(*seq);
        }
        Some((number, bits))
    }

    /// The walk ends here, and goes on with this row.
    pub(super) fn stop_before(&mut self, seq: Seq) {
        self.met = seq.saturating_sub(1);
    }

    /// Where the next claim of a lane begins.
    pub(super) fn position(
        &self,
        claim: &LaneClaim,
        tables: &Tables,
        due_at: Timestamp,
        due_seq: Seq,
    ) -> Position {
        let (was, front) = (claim.from, front(&claim.from));
        if claim.to < front {
            // An end that lies behind takes nothing back.
            return Position { due_at, due_seq, ..was };
        }
        let met = self.met.min(tables.last_seq()).min(FreshLane::of(claim).to);
        let scan = rescan_of(claim);
        if met < front {
            let began = if scan.is_under_way() { scan.began } else { self.commits };
            let rescan = match broken::is(Variant::ScanStartsOver) {
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

    /// What was to be looked at once more, and was not.
    pub(super) fn left_of_again(&self) -> Vec<(Lane, Seq)> {
        let left = self.again.iter().filter(|(seq, _)| *seq > self.met);
        left.map(|(seq, lane)| (*lane, *seq)).collect()
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
        let sees_all = !scan.is_under_way() || broken::is(Variant::ScanSeesMore);
        let sees_to = if sees_all { u64::MAX } else { scan.began };
        Self { lane: claim.lease.lane, from: seq.max(scan.reached), front, met_at: late.seen, sees_to, to }
    }

    /// The first chunk that can have something for this lane, from a chunk on.
    fn start(&self, next: u64) -> u64 {
        next.max(chunk_of(self.from.saturating_add(1)))
    }
}

/// The due waiting rows of one lane.
pub(super) struct Waiting {
    lane: Lane,
    now: Timestamp,
    /// The last one that was met.
    pub(super) last: (Timestamp, Seq),
    /// Whether nothing came after it.
    pub(super) ended: bool,
}

impl Waiting {
    pub(super) fn new(claim: &LaneClaim, now: Timestamp) -> Self {
        let last = (claim.from.due_at, claim.from.due_seq);
        Self { lane: claim.lease.lane, now, last, ended: false }
    }

    pub(super) fn next(&mut self, tables: &Tables) -> Option<(Timestamp, Seq)> {
        let end = (self.now, Seq::MAX);
        let lane = tables.lane(self.lane).filter(|_| self.last < end);
        let next = lane.and_then(|lane| lane.waiting.range((Excluded(self.last), Included(end))).next());
        self.ended = next.is_none();
        next.copied()
    }

    /// How long until the next one is due that is not yet.
    pub(super) fn next_due(&self, tables: &Tables) -> Option<Duration> {
        let waiting = &tables.lane(self.lane)?.waiting;
        let (at, _) = waiting.range((Excluded((self.now, Seq::MAX)), Unbounded)).next()?;
        Some(at.since(self.now))
    }
}
