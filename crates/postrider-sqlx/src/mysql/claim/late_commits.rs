//! What a store remembers of its claims, so that a transaction which commits late is found. Does no I/O.
//!
//! A row draws its `seq` when it is inserted and can be seen when its transaction commits, so claims that read forward may miss it.
//! Neither database tells which transactions are open to an account without special rights. So the numbers that were met are
//! remembered for a minute or two, and a *back scan* reads those that were not: what it finds among the fresh rows is late. A transaction that
//! stays open longer after it wrote its event is found by the engine's scan from the bottom.
//!
//! # Order
//!
//! Of two events of a key, `a` comes before `b` if one transaction wrote both in that order, or if `a` was committed before `b` was inserted. In
//! both cases `a` can be seen whenever `b` can. So a row is returned only if everything that could be seen behind it, when it was seen, was met
//! ([`super::ahead`]). A back scan notes what can be seen ahead of its lanes and then reads what is behind. When it has ended and what it has found
//! is met, claims return the rows that it has noted, without another scan. Where every number behind a row was met no scan is needed: so a backlog
//! without gaps is drained without.
//!
//! # Bounds
//!
//! A back scan reads pages of numbers and is continued by the next claims from where it ended; what they met on the way, wanted or
//! not, is not met by it again. It counts for the lanes that it read, under the leases that they were held by, and only what a claim that
//! succeeded has read: one that is tried again must find the same.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use postrider_core::store::{Lane, LaneClaim, Lease, Seq, Token};

use super::{
    ahead::Ahead,
    back_scan::BackScan,
    seqs::{Seqs, Unmet},
    width,
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
    scanned: HashMap<Lane, Scanned>,
    /// Those that have not ended, of disjoint lanes.
    scans: Vec<BackScan>,
    /// The width of a page that was not answered yet...
    unanswered: Option<u64>,
    /// ...and how wide pages may be after one that was given up, until a claim succeeds.
    width_max: Option<u64>,
}

/// What the last scan of a lane that has ended knows: under which token, what could be seen ahead before it began, and how long it took.
#[derive(Debug, Clone)]
struct Scanned {
    token: Token,
    ahead: Ahead,
    took: Duration,
    ended: Instant,
}

/// What a claim that succeeded did.
pub(super) struct Done<M, L> {
    /// The rows that it met.
    pub(super) met: M,
    /// Leases of lanes that it has not lost.
    pub(super) held: L,
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
                inner.scans.retain(|scan| scan.rested(now) < FORGOTTEN_AFTER);
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
    pub(super) fn unfinished(&self, lanes: &[&LaneClaim]) -> Option<BackScan> {
        let inner = self.lock();
        let is_theirs = |scan: &&BackScan| scan.leases().any(|of| lanes.iter().any(|lane| lane.lease == of));
        let mut scan = inner.scans.iter().find(is_theirs)?.clone();
        scan.keep_those_ahead(lanes);
        (!scan.is_of_none()).then_some(scan)
    }

    /// What could be seen ahead of each of these lanes before the last scan of it began.
    pub(super) fn ahead(&self, lanes: &[&LaneClaim]) -> HashMap<Lane, Ahead> {
        let inner = self.lock();
        let of_lane = |lane: &&LaneClaim| Some((lane.lease.lane, inner.scanned(&lane.lease)?.ahead.clone()));
        lanes.iter().filter_map(of_lane).collect()
    }

    /// The first number that may still appear behind these lanes, or ahead of them: one that no claim has met, and that is not among these, in order, which
    /// are about to be met. Numbers so old that they are given up are none.
    pub(super) fn first_unmet(&self, lanes: &[&LaneClaim], read: &[Seq]) -> Seq {
        let inner = self.lock();
        let behind = lanes.iter().filter(|lane| lane.from.seq < lane.from.met).map(|lane| lane.from.seq);
        let mut first = inner.met.first_missing(behind.fold(inner.low, Seq::min));
        while first < Seq::MAX && read.binary_search(&first).is_ok() {
            first = inner.met.first_missing(first);
        }
        first
    }

    /// Whether a claim has met this number, or it is so old that it is given up.
    pub(super) fn is_met(&self, seq: Seq) -> bool {
        let inner = self.lock();
        seq <= inner.low || inner.met.contains(seq)
    }

    /// Whether it is time for a back scan of the lanes among these that have something behind them, though nothing waits for it; `quiet` if there is
    /// nothing to read forward.
    pub(super) fn is_time(&self, lanes: &[&LaneClaim], quiet: bool, now: Instant) -> bool {
        let inner = self.lock();
        lanes.iter().filter(|lane| lane.from.seq < lane.from.met).any(|lane| {
            inner.scanned(&lane.lease).is_none_or(|Scanned { took, ended, .. }| {
                (quiet && *took < CHEAP)
                    || now.duration_since(*ended) >= (*took * SCAN_SHARE).clamp(SCAN_EVERY, PAUSE_MAX)
            })
        })
    }

    /// What to read next of the numbers after the first and up to the second that no claim has met.
    pub(super) fn unmet(&self, (after, to): (Seq, Seq)) -> Unmet {
        self.lock().met.unmet(after, to)
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
        let Done { met, held, scan } = done;
        let mut inner = self.lock();
        inner.width_max = None;
        let low = inner.low;
        met.filter(|seq| *seq > low).for_each(|seq| inner.met.insert(seq));
        let Some(mut scan) = scan else { return };
        inner.scans.retain(|other| !other.leases().any(|lease| scan.has(lease.lane)));
        scan.keep(held);
        scan.goes_on_at(now);
        if scan.ends_with(0) {
            inner.ended(&scan, now);
        } else if !scan.is_of_none() {
            inner.scans.push(scan);
        }
    }
}

impl Inner {
    fn scanned(&self, lease: &Lease) -> Option<&Scanned> {
        self.scanned.get(&lease.lane).filter(|scanned| scanned.token == lease.token)
    }

    /// Where a scan has not looked ahead, what an earlier one has seen there still holds.
    fn ended(&mut self, scan: &BackScan, ended: Instant) {
        for lease in scan.leases() {
            let known = || self.scanned(&lease).map(|scanned| scanned.ahead.clone()).unwrap_or_default();
            let ahead = scan.ahead().cloned().unwrap_or_else(known);
            let scanned = Scanned { token: lease.token, ahead, took: scan.time(), ended };
            self.scanned.insert(lease.lane, scanned);
        }
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::store::Position;

    use super::*;

    fn lease(lane: Lane, epoch: u64) -> Lease {
        Lease { lane, token: Token { epoch, nonce: 7 } }
    }

    /// A lane that has read up to `met`, behind which everything after `seq` may still appear.
    fn lane(lease: Lease, seq: Seq, met: Seq) -> LaneClaim {
        LaneClaim::after(lease, Position { seq, met, ..Position::START })
    }

    fn done(
        late: &LateCommits,
        met: impl IntoIterator<Item = Seq>,
        scan: impl Into<Option<BackScan>>,
        now: Instant,
    ) {
        late.succeeded(Done { met: met.into_iter(), held: |_: &Lease| true, scan: scan.into() }, now);
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
        let (late, start, ours) = (LateCommits::default(), Instant::now(), lane(lease(1, 1), 10, 50));
        late.low(100, None, start);
        let mut scan = BackScan::new(&[&ours], None, start);
        scan.read([(1, 40)], 30);
        assert_eq!(late.low(100, Some(&scan), start + OPEN_MAX), 10);
        scan.read([(1, 20)], 10);
        done(&late, [], scan.clone(), start + OPEN_MAX);
        assert_eq!(late.low(100, None, start + OPEN_MAX * 2), 19);
        scan.met(2, |_| false);
        done(&late, [], scan, start + OPEN_MAX * 2);
        assert_eq!(late.low(100, None, start + OPEN_MAX * 3), 100);
        // One whose lanes were lost is forgotten in time.
        let lost = BackScan::new(&[&lane(lease(1, 1), 100, 500)], None, start);
        done(&late, [], lost, start);
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
        done(&late, [], None, Instant::now());
        assert_eq!(late.begin_page(1 << 40), 1 << 40);
    }

    #[test]
    fn what_was_met_is_not_late() {
        let (late, start) = (LateCommits::default(), Instant::now());
        late.low(2, None, start);
        done(&late, [1, 3], None, start);
        assert_eq!(late.late(vec![(0, 1), (0, 2), (1, 3)]), [(0, 2)]);
        assert_eq!([1, 2, 3, 4].map(|seq| late.is_met(seq)), [true, false, true, false]);
        late.low(2, None, start + OPEN_MAX);
        assert!(late.is_met(2), "it is given up");
    }

    #[test]
    fn the_first_unmet_number_is_looked_for_where_something_may_still_appear() {
        let (late, start) = (LateCommits::default(), Instant::now());
        late.low(5, None, start);
        late.low(9, None, start + OPEN_MAX);
        done(&late, [6, 7, 8, 9, 10, 11, 13], None, start);
        let [all, behind] = [lane(lease(1, 1), 0, 0), lane(lease(2, 1), 4, 13)];
        let first_unmet = |read: &[Seq]| late.first_unmet(&[&all], read);
        assert_eq!((first_unmet(&[]), first_unmet(&[12]), first_unmet(&[12, 14, 16])), (12, 14, 15));
        assert_eq!(late.first_unmet(&[&all, &behind], &[12]), 5, "nobody has read this lane since");
    }

    #[test]
    fn a_scan_goes_on_where_it_ended_and_what_it_has_seen_ahead_is_known_when_it_is_through() {
        let (late, now, ours) = (LateCommits::default(), Instant::now(), lane(lease(1, 1), 10, 50));
        let mut scan = BackScan::new(&[&ours], Some(Ahead::of([60, 70])), now);
        scan.read([(1, 20), (1, 15), (1, 12)], 10);
        assert!(scan.ends_with(3) && !scan.ends_with(2));
        // The second did not fit.
        scan.met(2, |seq| seq == 15);
        done(&late, [12], scan, now);
        assert!(late.ahead(&[&ours]).is_empty());
        let [other_token, other_lane] = [lane(lease(1, 2), 10, 50), lane(lease(2, 1), 10, 50)];
        assert!(late.unfinished(&[&other_token]).is_none() && late.unfinished(&[&other_lane]).is_none());
        let mut scan = late.unfinished(&[&other_lane, &ours]).unwrap();
        assert_eq!(scan.first(9), [15, 20]);
        scan.met(2, |_| false);
        done(&late, [], scan, now);
        assert!(late.unfinished(&[&ours]).is_none());
        let ahead = late.ahead(&[&ours, &other_lane, &other_token]);
        assert_eq!((ahead.len(), ahead[&1].contains(70)), (1, true));
        // A scan that has not looked ahead takes nothing of that away.
        done(&late, [], BackScan::new(&[], None, now), now);
        done(&late, [], BackScan::new(&[&lane(lease(1, 1), 10, 10)], None, now), now);
        assert!(late.ahead(&[&ours])[&1].contains(70));
    }

    #[test]
    fn a_lane_that_was_lost_knows_nothing_of_what_is_ahead() {
        let late = LateCommits::default();
        let [ours, lost] = [lane(lease(1, 1), 9, 9), lane(lease(2, 1), 9, 9)];
        let scan = Some(BackScan::new(&[&ours, &lost], Some(Ahead::of([10])), Instant::now()));
        let held = |lease: &Lease| *lease != lost.lease;
        late.succeeded(Done { met: [].into_iter(), held, scan }, Instant::now());
        assert_eq!(late.ahead(&[&ours, &lost]).into_keys().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_lane_that_goes_back_to_the_bottom_leaves_its_scan() {
        let late = LateCommits::default();
        let [one, two] = [lane(lease(1, 1), 10, 50), lane(lease(2, 1), 10, 50)];
        let mut scan = BackScan::new(&[&one, &two], None, Instant::now());
        scan.read([(1, 20), (2, 30)], 10);
        done(&late, [], scan, Instant::now());
        let went_back = lane(lease(2, 1), 10, 20);
        let scan = late.unfinished(&[&one, &went_back]).unwrap();
        assert_eq!((scan.lanes(), scan.first(9)), (vec![1], vec![20]));
        assert!(late.unfinished(&[&went_back]).is_none());
    }

    #[test]
    fn scans_that_nothing_waits_for_come_when_nothing_is_new_and_else_at_intervals() {
        let (late, start, ours) = (LateCommits::default(), Instant::now(), lane(lease(1, 1), 10, 20));
        let is_time = |quiet, now| late.is_time(&[&ours], quiet, now);
        assert!(is_time(false, start));
        assert!(!late.is_time(&[&lane(lease(1, 1), 20, 20)], false, start), "nothing is behind it");
        let scan = |took| {
            let mut scan = BackScan::new(&[&ours], None, start);
            scan.read([], 10);
            scan.took(took);
            scan
        };
        done(&late, [], scan(Duration::ZERO), start);
        let soon = start + CHEAP;
        assert!(is_time(true, soon) && !is_time(false, soon));
        assert!(is_time(false, start + SCAN_EVERY));
        done(&late, [], scan(CHEAP * 20), start);
        assert!(!is_time(true, start + CHEAP * 30));
        assert!(is_time(true, start + PAUSE_MAX));
    }
}
