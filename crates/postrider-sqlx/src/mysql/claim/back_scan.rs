//! A scan of what claims have read past: rows whose transactions have committed since. Does no I/O.
//!
//! A scan may take many statements and several claims, and each statement sees what is committed by then. So it reads from the highest
//! numbers to the lowest: whatever could be seen behind a row when the row was found is read later, and found too. Nothing that it has found is
//! returned before it has read everything.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use postrider_core::store::{Lane, LaneClaim, Lease, Seq};

use super::{ahead::Ahead, width::Width};

/// Most late rows that a scan remembers. Of more it keeps the lowest, and the next scan finds the others.
const FOUND_MAX: usize = 1 << 17;

/// What a scan reads of one lane.
#[derive(Debug, Clone, Copy)]
struct Reach {
    lease: Lease,
    /// After this one...
    after: Seq,
    /// ...and up to here, where the lane stood when the scan began.
    to: Seq,
}

impl Reach {
    fn of(lane: &LaneClaim) -> Self {
        Self { lease: lane.lease, after: lane.from.seq, to: lane.from.met }
    }

    fn holds(&self, lane: Lane, seq: Seq) -> bool {
        self.lease.lane == lane && seq > self.after && seq <= self.to
    }

    /// Whether there is anything between the two.
    fn is_something(&self) -> bool {
        self.after < self.to
    }

    /// Whether these claims of its lane go on where it stood, or further on.
    fn is_behind(&self, lanes: &[&LaneClaim]) -> bool {
        lanes.iter().any(|lane| lane.lease == self.lease && lane.from.met >= self.to)
    }
}

/// The scan.
#[derive(Debug, Clone)]
pub(super) struct BackScan {
    reaches: Vec<Reach>,
    /// What could be seen ahead of the lanes before it read anything; none if nobody has looked.
    ahead: Option<Ahead>,
    /// The first number to read is the one after this.
    bottom: Seq,
    /// Every number above was read, up to where the lanes stood.
    cursor: Seq,
    /// Late rows that no claim has met yet, in order.
    found: VecDeque<(Lane, Seq)>,
    /// How many numbers its next statement covers.
    width: Width,
    took: Duration,
    /// When a claim has last gone on with it.
    at: Instant,
}

impl BackScan {
    /// A scan of what lies behind these lanes.
    pub(super) fn new(lanes: &[&LaneClaim], ahead: Option<Ahead>, now: Instant) -> Self {
        let reaches: Vec<Reach> = lanes.iter().map(|lane| Reach::of(lane)).collect();
        let past = || reaches.iter().filter(|reach| reach.is_something());
        let cursor = past().map(|reach| reach.to).max().unwrap_or_default();
        let bottom = past().map(|reach| reach.after).min().unwrap_or(cursor);
        let (found, width, took) = (VecDeque::new(), Width::new(), Duration::ZERO);
        Self { reaches, ahead, bottom, cursor, found, width, took, at: now }
    }

    pub(super) fn lanes(&self) -> Vec<Lane> {
        self.reaches.iter().map(|reach| reach.lease.lane).collect()
    }

    pub(super) fn leases(&self) -> impl Iterator<Item = Lease> {
        self.reaches.iter().map(|reach| reach.lease)
    }

    pub(super) fn has(&self, lane: Lane) -> bool {
        self.reaches.iter().any(|reach| reach.lease.lane == lane)
    }

    /// Goes on with lanes that are held by these leases.
    pub(super) fn keep(&mut self, is_held: impl Fn(&Lease) -> bool) {
        self.reaches.retain(|reach| is_held(&reach.lease));
        let lanes = self.lanes();
        self.found.retain(|(lane, _)| lanes.contains(lane));
    }

    /// Goes on with the lanes among these that have not gone back to the bottom, where they meet again what it has found.
    pub(super) fn keep_those_ahead(&mut self, lanes: &[&LaneClaim]) {
        self.reaches.retain(|reach| reach.is_behind(lanes));
        self.keep(|_| true);
    }

    pub(super) fn is_of_none(&self) -> bool {
        self.reaches.is_empty()
    }

    /// What is left to read: the numbers after the first and up to the second.
    pub(super) fn left(&self) -> (Seq, Seq) {
        (self.bottom, self.cursor)
    }

    /// Whether everything was read.
    pub(super) fn is_through(&self) -> bool {
        self.cursor <= self.bottom
    }

    pub(super) fn width(&mut self) -> &mut Width {
        &mut self.width
    }

    /// Notes rows that no claim has met, in any order, and that everything above `cursor` was read.
    pub(super) fn read(&mut self, rows: impl IntoIterator<Item = (Lane, Seq)>, cursor: Seq) {
        let is_behind = |(lane, seq): &(Lane, Seq)| self.reaches.iter().any(|reach| reach.holds(*lane, *seq));
        let mut late: Vec<(Lane, Seq)> = rows.into_iter().filter(is_behind).collect();
        late.sort_unstable_by_key(|(_, seq)| *seq);
        late.into_iter().rev().for_each(|row| self.found.push_front(row));
        self.cursor = cursor.max(self.bottom).min(self.cursor);
        if self.found.len() > FOUND_MAX {
            self.found.truncate(FOUND_MAX);
            // What is ahead has to wait for those that were dropped.
            self.ahead = None;
        }
    }

    pub(super) fn took(&mut self, time: Duration) {
        self.took += time;
    }

    /// How long its statements took so far.
    pub(super) fn time(&self) -> Duration {
        self.took
    }

    /// The first late rows, at most so many; none before everything was read.
    pub(super) fn first(&self, most: usize) -> Vec<Seq> {
        let most = if self.is_through() { most } else { 0 };
        self.found.iter().take(most).map(|(_, seq)| *seq).collect()
    }

    /// Whether nothing late is left once the first so many are met.
    pub(super) fn ends_with(&self, first: usize) -> bool {
        self.is_through() && self.found.len() <= first
    }

    /// Forgets the first so many late rows, which were met, but for those that were `left`.
    pub(super) fn met(&mut self, first: usize, left: impl Fn(Seq) -> bool) {
        let first: Vec<_> = self.found.drain(..first.min(self.found.len())).collect();
        first.into_iter().rev().filter(|(_, seq)| left(*seq)).for_each(|row| self.found.push_front(row));
    }

    /// Whether a row ahead was seen before it began, and may be returned behind the first so many late rows because it ends with these.
    pub(super) fn has_seen(&self, lane: Lane, seq: Seq, first: usize) -> bool {
        let is_noted = || self.ahead.as_ref().is_some_and(|ahead| ahead.contains(seq));
        self.ends_with(first) && self.has(lane) && is_noted()
    }

    /// What could be seen ahead of its lanes before it read anything.
    pub(super) fn ahead(&self) -> Option<&Ahead> {
        self.ahead.as_ref()
    }

    /// Up to where it needs to know what was met no more.
    pub(super) fn floor(&self) -> Seq {
        match self.found.front() {
            _ if !self.is_through() => self.bottom,
            Some((_, seq)) => seq.saturating_sub(1),
            None => Seq::MAX,
        }
    }

    pub(super) fn goes_on_at(&mut self, now: Instant) {
        self.at = now;
    }

    /// For how long no claim has gone on with it.
    pub(super) fn rested(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::store::{Position, Token};

    use super::*;

    fn lane(lane: Lane, seq: Seq, met: Seq) -> LaneClaim {
        let lease = Lease { lane, token: Token { epoch: 1, nonce: 1 } };
        LaneClaim::after(lease, Position { seq, met, ..Position::START })
    }

    #[test]
    fn a_scan_keeps_what_lies_between_where_each_lane_stood_and_returns_nothing_before_it_is_through() {
        let lanes = [lane(1, 10, 50), lane(2, 20, 40), lane(3, 0, 0)];
        let mut scan = BackScan::new(&lanes.each_ref(), None, Instant::now());
        assert_eq!(scan.left(), (10, 50));
        scan.read([(1, 45), (2, 45), (1, 51)], 40);
        scan.read([(2, 40), (1, 30), (9, 30)], 25);
        assert!(scan.first(9).is_empty() && !scan.ends_with(9));
        scan.read([(2, 20), (1, 11), (3, 12)], 3);
        assert!(scan.is_through());
        assert_eq!(scan.first(9), [11, 30, 40, 45]);
        assert_eq!(scan.first(2), [11, 30]);
    }

    #[test]
    fn a_scan_of_lanes_with_nothing_behind_them_is_through_at_once() {
        let lanes = [lane(1, 0, 0), lane(2, 70, 70)];
        assert!(BackScan::new(&lanes.each_ref(), None, Instant::now()).ends_with(0));
    }

    #[test]
    fn of_too_many_late_rows_the_lowest_are_kept_and_what_is_ahead_waits_for_the_others() {
        let most = FOUND_MAX as u64;
        let lanes = [lane(1, 0, most + 9)];
        let mut scan = BackScan::new(&lanes.each_ref(), Some(Ahead::of([most + 10])), Instant::now());
        scan.read((10..most + 10).map(|seq| (1, seq)), 9);
        assert!(scan.ahead().is_some());
        scan.read([(1, 4), (1, 2)], 0);
        assert!(scan.ahead().is_none() && scan.ends_with(FOUND_MAX));
        let found = scan.first(usize::MAX);
        assert_eq!((found[0], found[1], found.last().copied()), (2, 4, Some(most + 7)));
    }
}
