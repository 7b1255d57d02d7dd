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
    store::{Lane, LaneClaim, Position, Seq},
};

use super::{
    seqs::{bit, bits_to, chunk_of},
    tables::Tables,
};

/// The fresh rows of all lanes of a claim, and those to be looked at once more, in one order.
pub(super) struct Fresh {
    lanes: Vec<FreshLane>,
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
    to: Seq,
}

impl Fresh {
    pub(super) fn new(lanes: &[&LaneClaim]) -> Self {
        let again_of = |claim: &&LaneClaim| {
            let lane = claim.lease.lane;
            claim.again.iter().map(move |seq| (*seq, lane)).collect::<Vec<_>>()
        };
        let mut again: Vec<(Seq, Lane)> = lanes.iter().flat_map(again_of).collect();
        again.sort_unstable();
        again.dedup();
        let lanes = lanes
            .iter()
            .map(|claim| FreshLane { lane: claim.lease.lane, from: claim.from.seq, to: claim.to })
            .collect();
        Self { lanes, again, next: 0, met: Seq::MAX }
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
        let met = self.met.min(tables.last_seq()).min(claim.to);
        Position {
            seq: met.min(tables.ceiling()).max(claim.from.seq),
            met: met.max(claim.from.met),
            due_at,
            due_seq,
        }
    }

    /// What was to be looked at once more, and was not.
    pub(super) fn left_of_again(&self) -> Vec<(Lane, Seq)> {
        let left = self.again.iter().filter(|(seq, _)| *seq > self.met);
        left.map(|(seq, lane)| (*lane, *seq)).collect()
    }
}

impl FreshLane {
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
