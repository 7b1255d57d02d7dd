//! How far the claims of a store have read, and what may have committed behind that since.
//!
//! A transaction takes the numbers of its events when it inserts them and shows them when it commits, so events may appear behind the place
//! that a lane's forward read has reached. Every claim reads at one snapshot. What lies behind the forward read and could be seen by the snapshot of
//! the claim before was met then; what can be seen by this one and could not by that is *late*. The table names the transaction that inserted an
//! event, so a claim asks for what the transactions that ended in between have inserted, and for nothing else: it costs the same
//! however long other transactions stay open, and whatever was delivered meanwhile.
//!
//! More may be late than a claim can take. Then the scan goes on in the next claims, by the transactions that it began with, up to the place
//! that the forward reads have reached. These have no turn meanwhile: an event that comes first may still be ahead of the scan.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use postrider_core::store::{Lane, LaneClaim, LateCommits, Position, Rescan, Seq};

use super::{
    super::statement::small,
    history::{Place, WentBack},
    moment::Moment,
    snapshot::Snapshot,
};

/// How many snapshots are remembered. A lane whose snapshot is forgotten is read from the bottom.
const SNAPSHOTS_MAX: usize = 64;
/// How many transactions a scan of several claims is told by. Each of its claims reads the first rows of every one of them. If more are late,
/// lanes are read from the bottom.
pub(super) const TRANSACTIONS_MAX: usize = 1000;
/// How many times as wide as usual a claim reads at most: half of the rows, or all but one in eight, may be parked or another instance's.
const WIDE_MAX: u64 = 8;
/// A claim that runs out of time has had too much to read behind a snapshot of this age.
const OLD: Duration = Duration::from_secs(10);

/// What a claim reads behind the forward reads.
#[derive(Debug, Clone)]
pub(super) enum Behind {
    /// Nothing: no lane was read before, or the claim ends before that.
    Nothing,
    /// What has committed since this snapshot.
    Since(Arc<Known>),
    /// What these transactions have inserted, beyond `reached`: a scan that goes on.
    Rest { transactions: Arc<[i64]>, reached: Seq },
}

/// A snapshot that a claim has read at.
#[derive(Debug)]
pub(super) struct Known {
    number: u64,
    pub(super) snapshot: Snapshot,
    at: Instant,
}

/// A scan of several claims: for what these transactions have inserted, which `since` does not show and `began` does.
#[derive(Debug)]
struct Scan {
    since: Arc<Known>,
    began: Arc<Known>,
    transactions: Arc<[i64]>,
}

/// Where a claim reads one lane.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    pub(super) lane: &'a LaneClaim,
    /// Up to where its forward read has come.
    pub(super) front: Seq,
    /// Whether the forward read has a turn.
    pub(super) forward: bool,
    /// What the claim that moved the front could see.
    seen: Option<Arc<Known>>,
    /// The scan that goes on: how far it has come, and what it can see.
    scan: Option<(Seq, Arc<Known>)>,
}

impl Cursor<'_> {
    /// Whether a late row comes with this claim: an earlier one of this lane has not met it, and the lane does not wait while others go on with a
    /// scan that began without it.
    pub(super) fn takes_late(&self, seq: Seq, transaction: i64) -> bool {
        let waits = !self.forward && self.scan.is_none();
        seq <= self.front && !waits && !self.has_met(seq, transaction)
    }

    /// Whether this is a read up to a place for what the lane's own claims have skipped, and they have not met this row yet. If what they saw is
    /// forgotten, they begin at the bottom and meet everything again. A lane that was never read has nothing to leave out.
    pub(super) fn leaves_out(&self, seq: Seq, transaction: i64) -> bool {
        self.lane.to < Seq::MAX && self.lane.from.late.seen > 0 && !self.has_met(seq, transaction)
    }

    /// Whether an earlier claim of this lane has met this row, which lies behind its forward read.
    fn has_met(&self, seq: Seq, transaction: i64) -> bool {
        let seen = self.seen.as_ref().is_some_and(|known| known.snapshot.sees(transaction));
        let scanned =
            |(reached, began): &(Seq, Arc<Known>)| seq <= *reached && began.snapshot.sees(transaction);
        seen || self.scan.as_ref().is_some_and(scanned)
    }

    /// Where the lane stands after the claim of this number.
    fn next(&self, reached: Reached, furthest: Seq, number: u64) -> (Seq, LateCommits) {
        let was = self.lane.from.late;
        let forward = match reached.forward {
            Seq::MAX if self.lane.to == Seq::MAX => furthest,
            forward => forward.min(self.lane.to),
        };
        let front = if self.forward { self.front.max(forward) } else { self.front };
        if self.lane.to < Seq::MAX {
            return (front, was);
        }
        let at = |seen| LateCommits { front: 0, seen, rescan: Rescan::NONE };
        let goes_on = |began| {
            let reached = reached.late.max(was.rescan.reached);
            LateCommits { rescan: Rescan { reached, began }, ..at(was.seen) }
        };
        match (&self.scan, reached.late >= self.front) {
            (Some((_, began)), true) => (self.front, at(began.number)),
            (Some((_, began)), false) => (self.front, goes_on(began.number)),
            // The scan of another lane goes on.
            (None, _) if !self.forward => (self.front, was),
            (None, true) => (front, at(number)),
            (None, false) => (self.front, goes_on(number)),
        }
    }
}

/// Where a claim begins.
#[derive(Debug)]
pub(in super::super) struct Begun<'a> {
    pub(super) cursors: Vec<Cursor<'a>>,
    pub(super) behind: Behind,
    /// Up to where the claim before has read all of these lanes, and how many times as wide as usual to read.
    pub(super) goes_on: Option<(Seq, u64)>,
    /// Where the database stood before.
    known: Place,
}

impl<'a> Begun<'a> {
    /// Whether it reads up to a place, for what the lanes' own claims have skipped.
    pub(super) fn is_bounded(&self) -> bool {
        self.cursors.iter().any(|cursor| cursor.lane.to < Seq::MAX)
    }

    /// Whether forward reads have a turn.
    pub(super) fn reads_forward(&self) -> bool {
        !matches!(self.behind, Behind::Rest { .. })
    }

    /// Where this lane is read.
    pub(super) fn cursor(&self, lane: Lane) -> Option<&Cursor<'a>> {
        // Claims name their lanes in order.
        let place = self.cursors.binary_search_by_key(&lane, |cursor| cursor.lane.lease.lane).ok()?;
        self.cursors.get(place)
    }

    /// The furthest of the forward reads that have something behind them.
    pub(super) fn front(&self) -> Seq {
        let seen = self.cursors.iter().filter(|cursor| cursor.seen.is_some());
        seen.map(|cursor| cursor.front).max().unwrap_or_default()
    }

    /// The snapshot since which everything that committed is unmet, if that is the same for all lanes.
    pub(super) fn since(&self) -> Option<&Snapshot> {
        let Behind::Since(since) = &self.behind else { return None };
        let same = |cursor: &Cursor<'_>| cursor.seen.as_ref().is_some_and(|seen| seen.number == since.number);
        self.cursors.iter().all(same).then_some(&since.snapshot)
    }
}

/// How far a claim has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reached {
    /// Up to here everything that is late was met; [`Seq::MAX`] if all was.
    pub(super) late: Seq,
    /// Up to here the forward reads that had a turn have met everything; [`Seq::MAX`] if all that there is.
    pub(super) forward: Seq,
    /// The last row that any forward read has met.
    pub(super) last: Seq,
}

/// Where a claim ended: a claim that goes on from there knows how far to read without asking where the rows are.
#[derive(Debug, Default)]
struct Ended {
    /// The number of that claim.
    number: u64,
    fronts: BTreeMap<Lane, Seq>,
    /// Up to where all its lanes were read; [`Seq::MAX`] if there was nothing more.
    reached: Seq,
}

/// What a store remembers of its claims. Without it lanes are read from the bottom, and nothing is missed.
#[derive(Debug, Default)]
pub(in super::super) struct Watermarks {
    snapshots: VecDeque<Arc<Known>>,
    scan: Option<Scan>,
    last_number: u64,
    /// Whether the last claim left something.
    full: bool,
    ended: Ended,
    wide: u64,
    /// Where the database stood.
    place: Place,
}

impl Watermarks {
    /// Whether the last claim left something, so that much may be in the table.
    pub(in super::super) fn is_flood(&self) -> bool {
        self.full
    }

    /// Where the next claim of these lanes begins.
    pub(in super::super) fn begin<'a>(&self, lanes: &'a [LaneClaim]) -> Begun<'a> {
        let mut cursors: Vec<Cursor<'a>> = lanes.iter().map(|lane| self.cursor(lane)).collect();
        let bounded = lanes.iter().any(|lane| lane.to < Seq::MAX);
        let rest =
            cursors.iter().filter_map(|cursor| cursor.scan.as_ref()).map(|(reached, _)| *reached).min();
        let behind = match (rest, &self.scan) {
            _ if bounded => Behind::Nothing,
            (Some(reached), Some(scan)) => {
                cursors.iter_mut().for_each(|cursor| cursor.forward = false);
                Behind::Rest { transactions: scan.transactions.clone(), reached }
            }
            _ => {
                let seen = cursors.iter().filter_map(|cursor| cursor.seen.as_ref());
                let oldest = seen.min_by_key(|known| known.number);
                oldest.map_or(Behind::Nothing, |known| Behind::Since(known.clone()))
            }
        };
        let known = cursors.iter().all(|cursor| {
            let is_its = cursor.seen.as_ref().is_some_and(|seen| seen.number == self.ended.number);
            is_its && self.ended.fronts.get(&cursor.lane.lease.lane) == Some(&cursor.front)
        });
        let goes_on = (known && !bounded).then_some((self.ended.reached, self.wide.max(1)));
        Begun { cursors, behind, goes_on, known: self.place }
    }

    fn cursor<'a>(&self, lane: &'a LaneClaim) -> Cursor<'a> {
        let position = &lane.from;
        let (front, late) = (position.seq, position.late);
        let bottom = Cursor { lane, front: 0, forward: true, seen: None, scan: None };
        let seen = self.find(late.seen);
        if lane.to < Seq::MAX {
            let scan = self.scan_of(&late).map(|scan| (late.rescan.reached, scan.began.clone()));
            return Cursor { front, seen, scan, ..bottom };
        }
        match (seen, self.scan_of(&late)) {
            // What was seen is forgotten, or how its scan began.
            (None, _) => bottom,
            (Some(_), None) if late.rescan.is_under_way() => bottom,
            (seen, None) => Cursor { front, seen, ..bottom },
            (seen, Some(scan)) => {
                let scan = Some((late.rescan.reached, scan.began.clone()));
                Cursor { front, seen, scan, ..bottom }
            }
        }
    }

    fn find(&self, number: u64) -> Option<Arc<Known>> {
        let of_scan = self.scan.iter().flat_map(|scan| [&scan.since, &scan.began]);
        self.snapshots.iter().rev().chain(of_scan).find(|known| known.number == number).cloned()
    }

    fn scan_of(&self, late: &LateCommits) -> Option<&Scan> {
        self.scan.as_ref().filter(|scan| late.rescan.is_under_way() && scan.began.number == late.rescan.began)
    }

    /// Compares where the database stands with where it stood before the claim began. If it has gone back, everything is forgotten that was
    /// remembered of it, and the next claim begins anew.
    pub(super) fn notice(&mut self, begun: &Begun<'_>, moment: &Moment) -> Option<WentBack> {
        let went_back = moment.place.went_back_from(&begun.known);
        if went_back.is_some() {
            self.place = moment.place;
            self.forget();
        } else {
            self.place = self.place.or_later(moment.place);
        }
        went_back
    }

    /// Forgets everything that was remembered of the events, and where the database stood: that it went back has been told.
    pub(in super::super) fn forget(&mut self) {
        // Numbers are not given again: a position from before must find nothing.
        *self = Self { last_number: self.last_number, ..Self::default() };
    }

    /// Notes that the server has ended a claim for want of time. If too much has been written since its snapshot, or by the transactions of its scan,
    /// reading from the bottom takes less.
    pub(in super::super) fn ran_out_of_time(&mut self, begun: &Begun<'_>) {
        let is_too_much = match &begun.behind {
            Behind::Nothing => false,
            Behind::Since(since) => since.at.elapsed() > OLD,
            Behind::Rest { .. } => true,
        };
        if is_too_much {
            self.snapshots.clear();
            self.scan = None;
        }
    }

    /// Notes what a claim saw and whether it left something. Says where its lanes stand now, of those that are held.
    pub(super) fn ended(
        &mut self,
        begun: &Begun<'_>,
        moment: &Moment,
        reached: Reached,
        held: impl Fn(Lane) -> bool,
    ) -> Vec<(Lane, Seq, LateCommits)> {
        let number = self.number(begun, moment);
        let fronts = begun.cursors.iter().map(|cursor| cursor.front);
        let furthest = fronts.chain([reached.last]).max().unwrap_or_default();
        let held = begun.cursors.iter().filter(|cursor| held(cursor.lane.lease.lane));
        held.map(|cursor| {
            let (seq, late) = cursor.next(reached, furthest, number);
            (cursor.lane.lease.lane, seq, late)
        })
        .collect()
    }

    /// Gives a claim its number. One that moves no lane to what it saw needs none: it reads up to a place, or goes on with a scan.
    fn number(&mut self, begun: &Begun<'_>, moment: &Moment) -> u64 {
        if begun.is_bounded() || !begun.reads_forward() {
            return 0;
        }
        self.last_number += 1;
        let number = self.last_number;
        let known = Known { number, snapshot: moment.snapshot.clone(), at: Instant::now() };
        self.snapshots.push_back(Arc::new(known));
        if self.snapshots.len() > SNAPSHOTS_MAX {
            self.snapshots.pop_front();
        }
        number
    }

    /// Notes where a claim ended, how many rows it met of those that it could have met, and whether it left some. Without a place up to which it has
    /// read all its lanes, the next one cannot go on there.
    pub(super) fn note_end(
        &mut self,
        positions: &[(Lane, Position)],
        reached: Option<Seq>,
        (met, most): (usize, usize),
        full: bool,
    ) {
        self.full = full;
        let Some(reached) = reached else {
            self.ended = Ended::default();
            return;
        };
        let fronts = positions.iter().map(|(lane, position)| (*lane, position.seq)).collect();
        self.ended = Ended { number: self.last_number, fronts, reached };
        self.wide = match self.wide.max(1) {
            _ if reached == Seq::MAX => 1,
            wide if met < most => (wide * 2).min(WIDE_MAX),
            wide if met > most + most / 2 => (wide / 2).max(1),
            wide => wide,
        };
    }

    /// The scan that the last claim began and could not finish: since which snapshot, and up to which.
    pub(in super::super) fn begun_scan(
        &self,
        begun: &Begun<'_>,
        positions: &[(Lane, Position)],
    ) -> Option<Unfinished> {
        let began = positions.iter().map(|(_, position)| position.late.rescan.began);
        let Behind::Since(since) = &begun.behind else { return None };
        if !began.into_iter().any(|began| began == self.last_number && began > 0) {
            return None;
        }
        let lanes = begun.cursors.iter().map(|cursor| small(cursor.lane.lease.lane)).collect();
        Some(Unfinished {
            since: since.clone(),
            to: self.find(self.last_number)?,
            front: begun.front(),
            lanes,
        })
    }

    /// Notes that the transactions of the scan that was begun are not known: its lanes are read from the bottom.
    pub(in super::super) fn drop_scan(&mut self) {
        self.scan = None;
    }

    /// Notes the transactions of that scan. If there are too many of them, the next claim reads from the bottom.
    pub(in super::super) fn note_scan(&mut self, scan: &Unfinished, beyond: &[i64]) {
        let Unfinished { since, to, .. } = scan;
        let beyond = beyond.iter().copied().filter(|id| to.snapshot.sees(*id));
        let transactions: Arc<[i64]> = to.snapshot.ended_since(&since.snapshot).chain(beyond).collect();
        self.scan = (transactions.len() <= TRANSACTIONS_MAX).then(|| Scan {
            since: since.clone(),
            began: to.clone(),
            transactions,
        });
    }
}

/// A scan for late commits that one claim could not finish.
#[derive(Debug, Clone)]
pub(in super::super) struct Unfinished {
    pub(super) since: Arc<Known>,
    pub(super) to: Arc<Known>,
    /// The furthest of the forward reads.
    pub(super) front: Seq,
    pub(super) lanes: Vec<i32>,
}

#[cfg(test)]
mod tests;
