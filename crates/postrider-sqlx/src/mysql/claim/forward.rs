//! Reading fresh rows forward, over all lanes at once.
//!
//! The lanes are read as one stream in the order of `seq`, window by window. No two rows share a `seq`, so a window has at most as
//! many rows as it is wide, and a claim reads no more than it can return, as a rule. Where rows lie far apart, because others own
//! most lanes or most rows are parked, the windows widen.

use std::collections::HashSet;

use postrider_core::store::{Lane, LaneClaim, Seq};
use sqlx::MySqlConnection;

use super::{
    read::Reader,
    scan::{Judge, Met, Row, Verdict},
};

/// Least width of a window.
const WIDTH_MIN: u64 = 64;

/// By how much a window widens or narrows.
const STEP: u64 = 8;

/// Most windows of one claim: the rest is for the next one.
const WINDOWS_MAX: usize = 48;

/// A lane and which part of the order is to be read of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    pub(super) lane: Lane,
    /// After this one...
    pub(super) from: Seq,
    /// ...and up to this one.
    pub(super) to: Seq,
}

impl Stretch {
    pub(super) fn of(claim: &LaneClaim) -> Self {
        Self { lane: claim.lease.lane, from: claim.from.seq.max(claim.from.met), to: claim.to }
    }

    fn holds(&self, row: &Row) -> bool {
        row.lane == self.lane && row.seq > self.from && row.seq <= self.to
    }
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    /// In order.
    pub(super) met: Vec<Met>,
    /// Up to where everything was met that was to be seen.
    pub(super) reached: Seq,
}

impl Fresh {
    /// Leaves what lies beyond a place to the next claim.
    pub(super) fn end_at(&mut self, to: Seq) {
        self.met.retain(|met| met.row.seq <= to);
        self.reached = self.reached.min(to);
    }
}

/// How much is wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// Most candidates.
    pub(super) candidates_max: usize,
    /// Most rows that one statement reads.
    pub(super) rows_max: usize,
    /// How many times as many lanes there are as are read.
    pub(super) spread: u64,
    /// Whether any key is held.
    pub(super) holds: bool,
}

/// Reads from where the lanes stand up to `tip`, until there is enough.
pub(super) async fn read(
    reader: &Reader<'_>,
    judge: &Judge<'_>,
    conn: &mut MySqlConnection,
    stretches: &[Stretch],
    tip: Seq,
    wanted: Wanted,
) -> sqlx::Result<Fresh> {
    let start = stretches.iter().map(|stretch| stretch.from).min().unwrap_or(tip);
    let mut fresh = Fresh { met: Vec::new(), reached: start };
    let rows_max = wanted.rows_max as u64;
    let mut width = (wanted.candidates_max as u64).saturating_mul(wanted.spread).max(WIDTH_MIN);
    // Rows that are parked or turned are no candidates; this is what bounds the writing of one claim.
    let written_max = wanted.candidates_max.saturating_mul(4).max(1024);
    let (mut candidates, mut written) = (0, 0);
    for _ in 0..WINDOWS_MAX {
        if fresh.reached >= tip || candidates >= wanted.candidates_max || written >= written_max {
            break;
        }
        let after = fresh.reached;
        let is_open = |stretch: &&Stretch| stretch.from <= after && stretch.to > after;
        let lanes: Vec<Lane> = stretches.iter().filter(is_open).map(|stretch| stretch.lane).collect();
        // A lane that stands further on joins when the others have come up to it.
        let joins = stretches.iter().map(|stretch| stretch.from).filter(|from| *from > after).min();
        let most = joins.unwrap_or(tip).min(tip);
        if lanes.is_empty() {
            fresh.reached = most;
            continue;
        }
        let to = after.saturating_add(width).min(most);
        let rows = reader.fresh(conn, &lanes, (after, to), wanted.rows_max, wanted.holds).await?;
        let found = rows.len() as u64;
        if found >= rows_max && to - after > rows_max {
            // There may be more, and which ones depends on their lanes: look at less.
            width = (width / STEP).max(rows_max.min(WIDTH_MIN));
            continue;
        }
        let rows = rows.into_iter().filter(|row| stretches.iter().any(|stretch| stretch.holds(row)));
        let mut met: Vec<Met> = rows.map(|row| judge.judge(row, &HashSet::new())).collect();
        met.sort_unstable_by_key(|met| met.row.seq);
        candidates += met.iter().filter(|met| met.is_candidate()).count();
        written +=
            met.iter().filter(|met| matches!(met.verdict, Verdict::Park { .. } | Verdict::Turn)).count();
        fresh.met.extend(met);
        fresh.reached = to;
        if found < (to - after) / STEP {
            width = width.saturating_mul(STEP);
        }
    }
    Ok(fresh)
}
