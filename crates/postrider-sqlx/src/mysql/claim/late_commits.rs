//! What a store remembers of its claims, so that a transaction which commits late is found. Does no I/O.
//!
//! A row draws its `seq` when it is inserted and can be seen when its transaction commits, so claims that read forward may miss it.
//! Neither database tells which transactions are open to an account without special rights. So the numbers that were met are
//! remembered for a minute or two, and a *back scan* reads those that were not: what it finds among the fresh rows is late. A transaction that
//! stays open longer after it wrote its event is found by the engine's scan from the bottom.
//!
//! # Order
//!
//! If `a` committed before `b` of its key was inserted, no claim may return `b` first, though it stands beyond `a`. So each lane is
//! *covered* up to a `seq`: what a back scan read began after the largest number `tip` could be seen, so it has found every `a` that
//! committed before any number up to `tip` was drawn. A claim returns fresh rows up to there, and scans back before it returns
//! others. A backlog is drained without.
//!
//! # Bounds
//!
//! A back scan reads pages of numbers and is continued by the next claims from where it ended; what they met on the way, wanted or
//! not, is not met by it again. It counts for the lanes that it read, under the leases that they were held by, and only what a claim that
//! succeeded has read: one that is tried again must find the same.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use postrider_core::store::{Lane, Lease, Seq, Token};

use super::{
    seqs::Seqs,
    width::{self, Width},
};

/// How long a transaction may stay open after it wrote an event, and be found by a back scan.
const OPEN_MAX: Duration = Duration::from_secs(60);

/// How often to scan back while there is something to read forward. While there is nothing, every claim does.
const SCAN_EVERY: Duration = Duration::from_millis(200);

/// Back scans that nothing waits for take at most one part in so many of the time, or one begins after the longest pause. Rows that were
/// delivered a moment ago, and rows that are not committed yet, take the database time: a scan may take long.
const SCAN_SHARE: u32 = 20;
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A scan that no claim has gone on with for so long was of lanes that are lost.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// A back scan that took no longer than this is cheap.
const CHEAP: Duration = Duration::from_millis(5);

/// The memory of one store; claims of several lanes and leases share it, because a row that was met once is never late.
#[derive(Debug, Default)]
pub(in super::super) struct LateCommits(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    met: Seqs,
    /// A `seq` that was drawn by then, and when that was.
    mark: Option<(Seq, Instant)>,
    low: Seq,
    covered: HashMap<Lane, Covered>,
    /// Those that have not ended, of disjoint lanes.
    scans: Vec<BackScan>,
    /// The width of a page that was not answered yet...
    unanswered: Option<u64>,
    /// ...and how wide pages may be after one that was given up, until a claim succeeds.
    width_max: Option<u64>,
}

/// How far a lane is covered, under which token, and by a scan that took how long.
#[derive(Debug, Clone, Copy)]
struct Covered {
    token: Token,
    to: Seq,
    took: Duration,
    ended: Instant,
}

/// A scan of what claims have read past.
#[derive(Debug, Clone)]
pub(super) struct BackScan {
    leases: Vec<Lease>,
    /// The largest number that could be seen when it began.
    tip: Seq,
    /// Every number up to here was read...
    cursor: Seq,
    /// ...and this is the last one to read.
    to: Seq,
    /// Late rows that no claim has met yet, in order.
    found: VecDeque<(Lane, Seq)>,
    /// How many numbers its next statement covers.
    width: Width,
    took: Duration,
    /// When a claim has last gone on with it.
    at: Instant,
}

impl BackScan {
    /// A scan of what lies after `cursor` and up to `to`, where `tip` is the largest number that can be seen.
    pub(super) fn new(leases: Vec<Lease>, tip: Seq, cursor: Seq, to: Seq) -> Self {
        let (found, width, took, at) = (VecDeque::new(), Width::new(), Duration::ZERO, Instant::now());
        Self { leases, tip, cursor, to, found, width, took, at }
    }

    pub(super) fn lanes(&self) -> Vec<Lane> {
        self.leases.iter().map(|lease| lease.lane).collect()
    }

    pub(super) fn cursor(&self) -> Seq {
        self.cursor
    }

    pub(super) fn to(&self) -> Seq {
        self.to
    }

    pub(super) fn width(&mut self) -> &mut Width {
        &mut self.width
    }

    pub(super) fn found(&self) -> usize {
        self.found.len()
    }

    /// Notes late rows, in order, and that everything up to `cursor` was read.
    pub(super) fn read(&mut self, late: impl IntoIterator<Item = (Lane, Seq)>, cursor: Seq) {
        self.found.extend(late);
        self.cursor = cursor.min(self.to).max(self.cursor);
    }

    pub(super) fn took(&mut self, time: Duration) {
        self.took += time;
    }

    /// The first late rows, at most so many.
    pub(super) fn first(&self, most: usize) -> Vec<Seq> {
        self.found.iter().take(most).map(|(_, seq)| *seq).collect()
    }

    /// Whether nothing late is left once the first so many are met.
    pub(super) fn ends_with(&self, first: usize) -> bool {
        self.cursor >= self.to && self.found.len() <= first
    }

    /// Forgets the first so many late rows, which were met, but for those that were `left`.
    pub(super) fn met(&mut self, first: usize, left: impl Fn(Seq) -> bool) {
        let first: Vec<_> = self.found.drain(..first.min(self.found.len())).collect();
        first.into_iter().rev().filter(|(_, seq)| left(*seq)).for_each(|row| self.found.push_front(row));
    }

    /// Up to where it needs to know what was met no more.
    fn floor(&self) -> Seq {
        match self.found.front() {
            Some((_, seq)) => self.cursor.min(seq.saturating_sub(1)),
            None if self.cursor < self.to => self.cursor,
            None => Seq::MAX,
        }
    }

    /// The largest number that is covered once the scan has ended.
    pub(super) fn tip(&self) -> Seq {
        self.tip
    }
}

/// What a claim that succeeded did.
pub(super) struct Done<M, L> {
    /// The rows that it met.
    pub(super) met: M,
    /// Leases of lanes that it has not lost.
    pub(super) held: L,
    /// The lanes among them that no claim had read anything of, and the largest number that could be seen.
    pub(super) begun: (Vec<Lease>, Seq),
    /// How far the back scan came, if there was one.
    pub(super) scan: Option<BackScan>,
}

impl LateCommits {
    /// Forgets everything: numbers are given again.
    pub(in super::super) fn forget(&self) {
        *self.lock() = Inner::default();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing here can be left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the largest `seq` that there is, and gives one so old that what cannot be seen below it is given up; but no scan that
    /// has not ended, the `current` one among them.
    pub(super) fn low(&self, tip: Seq, current: Option<&BackScan>, now: Instant) -> Seq {
        let mut inner = self.lock();
        match inner.mark {
            Some((_, at)) if now.duration_since(at) < OPEN_MAX => {}
            mark => {
                inner.scans.retain(|scan| now.saturating_duration_since(scan.at) < FORGOTTEN_AFTER);
                let floor = inner.scans.iter().chain(current).map(BackScan::floor).min().unwrap_or(Seq::MAX);
                inner.low = inner.low.max(mark.map_or(0, |(seq, _)| seq).min(floor));
                inner.mark = Some((tip, now));
                let low = inner.low;
                inner.met.forget(low);
            }
        }
        inner.low
    }

    /// The back scan of these lanes that has not ended, if there is one.
    pub(super) fn unfinished(&self, leases: &[Lease]) -> Option<BackScan> {
        let inner = self.lock();
        let mut scan =
            inner.scans.iter().find(|scan| scan.leases.iter().any(|of| leases.contains(of)))?.clone();
        scan.leases.retain(|lease| leases.contains(lease));
        let lanes = scan.lanes();
        // The engine may have gone back to the bottom meanwhile, and met them there.
        scan.found.retain(|(lane, seq)| lanes.contains(lane) && !inner.met.contains(*seq));
        Some(scan)
    }

    /// Up to where every one of these lanes is covered.
    pub(super) fn covered(&self, leases: &[Lease]) -> Seq {
        let inner = self.lock();
        leases
            .iter()
            .map(|lease| inner.covered_to(lease).map_or(0, |covered| covered.to))
            .min()
            .unwrap_or_default()
    }

    /// Whether it is time for a back scan of these lanes that nothing waits for, `quiet` if there is nothing to read forward.
    pub(super) fn is_time(&self, leases: &[Lease], quiet: bool, now: Instant) -> bool {
        let inner = self.lock();
        leases.iter().any(|lease| {
            inner.covered_to(lease).is_none_or(|Covered { took, ended, .. }| {
                (quiet && *took < CHEAP)
                    || now.duration_since(*ended) >= (*took * SCAN_SHARE).clamp(SCAN_EVERY, PAUSE_MAX)
            })
        })
    }

    /// What to read next of the numbers after `cursor` and up to `to` that no claim has met.
    pub(super) fn unmet(&self, cursor: Seq, to: Seq) -> super::seqs::Unmet {
        self.lock().met.unmet(cursor, to)
    }

    /// A page of so many numbers is about to be read. Gives how many it may have: fewer than the last one, if that was given up. A claim that fails
    /// keeps nothing of its scan, and the next one would come to the same page.
    pub(super) fn begin_page(&self, width: u64) -> u64 {
        let mut inner = self.lock();
        if let Some(given_up) = inner.unanswered.take() {
            inner.width_max = Some(width::after_giving_up(given_up));
        }
        let width = inner.width_max.map_or(width, |most| width.min(most));
        inner.unanswered = Some(width);
        width
    }

    /// The page was read.
    pub(super) fn end_page(&self) {
        self.lock().unanswered = None;
    }

    /// Which of these rows no claim has met.
    pub(super) fn late(&self, rows: Vec<(Lane, Seq)>) -> Vec<(Lane, Seq)> {
        let inner = self.lock();
        rows.into_iter().filter(|(_, seq)| !inner.met.contains(*seq)).collect()
    }

    /// A claim has succeeded.
    pub(super) fn succeeded(
        &self,
        done: Done<impl Iterator<Item = Seq>, impl Fn(&Lease) -> bool>,
        now: Instant,
    ) {
        let Done { met, held, begun: (begun, tip), scan } = done;
        let mut inner = self.lock();
        inner.width_max = None;
        let low = inner.low;
        met.filter(|seq| *seq > low).for_each(|seq| inner.met.insert(seq));
        for lease in begun.into_iter().filter(&held) {
            inner.cover(lease, tip, Duration::ZERO, now);
        }
        let Some(mut scan) = scan else { return };
        let lanes = scan.lanes();
        inner.scans.retain(|other| !other.leases.iter().any(|lease| lanes.contains(&lease.lane)));
        scan.leases.retain(held);
        scan.at = now;
        if scan.ends_with(0) {
            scan.leases.iter().for_each(|lease| inner.cover(*lease, scan.tip, scan.took, now));
        } else if !scan.leases.is_empty() {
            inner.scans.push(scan);
        }
    }
}

impl Inner {
    fn covered_to(&self, lease: &Lease) -> Option<&Covered> {
        self.covered.get(&lease.lane).filter(|covered| covered.token == lease.token)
    }

    fn cover(&mut self, Lease { lane, token }: Lease, to: Seq, took: Duration, ended: Instant) {
        self.covered.insert(lane, Covered { token, to, took, ended });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(lane: Lane, epoch: u64) -> Lease {
        Lease { lane, token: Token { epoch, nonce: 7 } }
    }

    fn done(
        late: &LateCommits,
        met: impl IntoIterator<Item = Seq>,
        begun: &[Lease],
        scan: Option<BackScan>,
        now: Instant,
    ) {
        let begun = (begun.to_vec(), 100);
        late.succeeded(Done { met: met.into_iter(), held: |_: &Lease| true, begun, scan }, now);
    }

    #[test]
    fn the_mark_stays_a_minute_behind_the_tip() {
        let (late, start) = (LateCommits::default(), Instant::now());
        assert_eq!(late.low(100, None, start), 0);
        assert_eq!(late.low(200, None, start + OPEN_MAX / 2), 0);
        assert_eq!(late.low(300, None, start + OPEN_MAX), 100);
        assert_eq!(late.low(400, None, start + OPEN_MAX * 2), 300);
    }

    #[test]
    fn the_mark_stays_behind_a_scan_that_has_not_ended() {
        let (late, start, ours) = (LateCommits::default(), Instant::now(), lease(1, 1));
        late.low(100, None, start);
        let mut scan = BackScan::new(vec![ours], 70, 10, 50);
        assert_eq!(late.low(100, Some(&scan), start + OPEN_MAX), 10);
        scan.read([(1, 20)], 50);
        done(&late, [], &[], Some(scan.clone()), start + OPEN_MAX);
        assert_eq!(late.low(100, None, start + OPEN_MAX * 2), 19);
        scan.met(1, |_| false);
        done(&late, [], &[], Some(scan.clone()), start + OPEN_MAX * 2);
        assert_eq!(late.low(100, None, start + OPEN_MAX * 3), 100);
        // One whose lanes were lost is forgotten in time.
        scan.to = 500;
        done(&late, [], &[], Some(scan), start);
        assert_eq!(late.low(900, None, start + OPEN_MAX * 4), 100);
        assert_eq!(late.low(900, None, start + FORGOTTEN_AFTER), 900);
    }

    #[test]
    fn pages_are_narrower_after_one_that_was_given_up_until_a_claim_succeeds() {
        let late = LateCommits::default();
        assert_eq!(late.begin_page(1 << 40), 1 << 40);
        assert_eq!(late.begin_page(1 << 40), 1 << 36, "the first was never answered");
        assert_eq!(late.begin_page(1 << 40), 1 << 32);
        late.end_page();
        assert_eq!(late.begin_page(1 << 40), 1 << 32, "what was answered narrows nothing");
        late.end_page();
        done(&late, [], &[], None, Instant::now());
        assert_eq!(late.begin_page(1 << 40), 1 << 40);
    }

    #[test]
    fn what_was_met_is_not_late() {
        let late = LateCommits::default();
        done(&late, [1, 3], &[], None, Instant::now());
        assert_eq!(late.late(vec![(0, 1), (0, 2), (1, 3)]), [(0, 2)]);
    }

    #[test]
    fn a_scan_goes_on_where_it_ended_and_covers_its_lanes_when_it_is_through() {
        let (late, now, ours) = (LateCommits::default(), Instant::now(), lease(1, 1));
        let mut scan = BackScan::new(vec![ours], 70, 10, 50);
        scan.read([(1, 12), (1, 15), (1, 20)], 30);
        assert!(!scan.ends_with(3));
        // The second did not fit.
        scan.met(2, |seq| seq == 15);
        scan.read([(1, 25)], 30);
        done(&late, [25], &[], Some(scan), now);
        assert_eq!(late.covered(&[ours]), 0);
        assert!(late.unfinished(&[lease(1, 2)]).is_none() && late.unfinished(&[lease(2, 1)]).is_none());
        let mut scan = late.unfinished(&[lease(0, 1), ours]).unwrap();
        assert_eq!((scan.cursor(), scan.first(9)), (30, vec![15, 20]));
        scan.read([], 60);
        assert!(scan.ends_with(2) && !scan.ends_with(1));
        scan.met(2, |_| false);
        done(&late, [], &[], Some(scan), now);
        assert!(late.unfinished(&[ours]).is_none());
        assert_eq!((late.covered(&[ours]), late.covered(&[ours, lease(2, 1)])), (70, 0));
    }

    #[test]
    fn a_lane_that_was_lost_is_covered_by_nothing() {
        let (late, now, [ours, lost]) = (LateCommits::default(), Instant::now(), [lease(1, 1), lease(2, 1)]);
        let scan = Some(BackScan::new(vec![ours, lost], 70, 10, 10));
        let held = |lease: &Lease| *lease != lost;
        late.succeeded(Done { met: [].into_iter(), held, begun: (Vec::new(), 0), scan }, now);
        assert_eq!((late.covered(&[ours]), late.covered(&[lost])), (70, 0));
    }

    #[test]
    fn scans_that_nothing_waits_for_come_when_nothing_is_new_and_else_at_intervals() {
        let (late, start, ours) = (LateCommits::default(), Instant::now(), lease(1, 1));
        let is_time = |quiet, now| late.is_time(&[ours], quiet, now);
        assert!(is_time(false, start));
        done(&late, [], &[ours], None, start);
        let soon = start + CHEAP;
        assert!(is_time(true, soon) && !is_time(false, soon));
        assert!(is_time(false, start + SCAN_EVERY));
        let mut scan = BackScan::new(vec![ours], 70, 10, 10);
        scan.took(CHEAP * 20);
        done(&late, [], &[], Some(scan), start);
        assert!(!is_time(true, start + CHEAP * 30));
        assert!(is_time(true, start + PAUSE_MAX));
    }
}
