//! What a claim finds behind its lanes, and which of the fresh rows that it has read it may therefore return.

use std::{collections::HashMap, time::Instant};

use postrider_core::store::{Lane, LaneClaim, Seq};

use super::{
    ahead::{self, Ahead},
    back_scan::BackScan,
    late_commits::LateCommits,
    look_ahead,
    places::Places,
    read_back,
    scan::Row,
};

/// How much one claim reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Most late rows that it deals with.
    pub(super) late: usize,
    /// Most pages of a scan, and most rows of each.
    pub(super) pages: usize,
    pub(super) page_rows: usize,
    /// About how many rows ahead it looks at.
    pub(super) ahead_rows: usize,
    /// How many times as many lanes there are as are read.
    pub(super) spread: u64,
}

impl Limits {
    pub(super) const fn new(late: usize, spread: u64) -> Self {
        Self { late, pages: 8, page_rows: 8192, ahead_rows: 16_384, spread }
    }
}

/// What a claim has read forward.
#[derive(Debug)]
pub(super) struct Forward {
    /// The fresh rows, in order...
    pub(super) rows: Vec<(Lane, Seq)>,
    /// ...up to here...
    pub(super) reached: Seq,
    /// ...where this is the largest number that could be seen.
    pub(super) tip: Seq,
    /// Whether all of them were seen at one moment.
    pub(super) is_of_one_moment: bool,
}

/// What a look back adds to a claim.
#[derive(Debug)]
pub(super) struct Back {
    pub(super) scan: Option<BackScan>,
    /// The late rows that this claim deals with.
    pub(super) late: Vec<Seq>,
    /// Up to where fresh rows may be returned, after these.
    pub(super) end: Seq,
}

impl Back {
    /// No scan, and all that was read may be returned.
    pub(super) const NONE: Self = Self { scan: None, late: Vec::new(), end: Seq::MAX };

    /// The late rows of this claim were met, but for those that were left.
    pub(super) fn met(&mut self, left: &[Row]) {
        let is_left = |seq| left.iter().any(|row| row.seq == seq);
        if let Some(scan) = &mut self.scan {
            scan.met(self.late.len(), is_left);
        }
    }
}

/// What is known before anything is read.
pub(super) struct LookBack<'a> {
    late: &'a LateCommits,
    lanes: &'a [&'a LaneClaim],
    unfinished: Option<BackScan>,
    /// What the last scans have seen ahead.
    known: HashMap<Lane, Ahead>,
}

impl<'a> LookBack<'a> {
    pub(super) fn new(late: &'a LateCommits, lanes: &'a [&'a LaneClaim]) -> Self {
        Self { late, lanes, unfinished: late.unfinished(lanes), known: late.ahead(lanes) }
    }

    /// Up to where fresh rows are worth to be read; what has to wait for a scan that has not ended is not. Where such a scan has read everything that is behind,
    /// this claim may end it.
    pub(super) fn end(&self) -> Seq {
        let Some(scan) = &self.unfinished else { return Seq::MAX };
        let scanned = scan.ahead().filter(|_| scan.is_through());
        self.known.values().chain(scanned).map(Ahead::last).max().unwrap_or_default()
    }

    /// Whether a claim will have to wait for a scan before long. One that begins now may end by then, though it takes several claims.
    fn waits_soon(&self, forward: &Forward, first_unmet: Seq) -> bool {
        let is_used_up = |ahead: &Ahead| ahead.is_half_behind(forward.reached);
        first_unmet < forward.reached
            && forward.reached < forward.tip
            && self.lanes.iter().any(|lane| self.known.get(&lane.lease.lane).is_none_or(is_used_up))
    }

    /// Goes on with a back scan, or begins one if this claim needs it: because it has read fresh rows that it may not return without, now or soon, or because it
    /// is time. Takes the first late rows that it has found, and says which fresh rows may be returned.
    pub(super) async fn look(
        mut self,
        table: &mut impl Places,
        in_flight: &[Seq],
        forward: &Forward,
        limits: Limits,
        now: Instant,
    ) -> sqlx::Result<Back> {
        let Self { late, lanes, .. } = self;
        let read: Vec<Seq> = forward.rows.iter().map(|(_, seq)| *seq).collect();
        let first_unmet = late.first_unmet(lanes, &read);
        let is_known = |lane, seq| self.known.get(&lane).is_some_and(|ahead| ahead.contains(seq));
        let known_end = ahead::end(&forward.rows, first_unmet, is_known);
        let quiet = lanes.iter().all(|lane| lane.from.met >= forward.tip);
        let mut new = None;
        let begun = match self.unfinished.take() {
            Some(scan) => Some(scan),
            None if known_end < Seq::MAX || self.waits_soon(forward, first_unmet) => {
                let ahead = look_ahead::look(late, table, lanes, forward, limits).await?;
                // What has appeared since among the rows that were read.
                new = ahead.first_other(&read).filter(|seq| *seq <= forward.reached);
                Some(BackScan::new(lanes, Some(ahead), now))
            }
            None if late.is_time(lanes, quiet, now) => Some(BackScan::new(lanes, None, now)),
            None => None,
        };
        let Some(mut scan) = begun else { return Ok(Back { end: known_end, ..Back::NONE }) };
        read_back::advance(&mut scan, late, table, in_flight, limits).await?;
        let first = scan.first(limits.late);
        let is_seen = |lane, seq| is_known(lane, seq) || scan.has_seen(lane, seq, first.len());
        let end = ahead::end(&forward.rows, first_unmet, is_seen);
        let end = new.map_or(end, |new| end.min(new.saturating_sub(1)));
        Ok(Back { scan: Some(scan), late: first, end })
    }
}
