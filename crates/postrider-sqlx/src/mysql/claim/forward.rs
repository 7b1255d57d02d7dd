//! Reading fresh rows forward, over all lanes at once.
//!
//! The lanes are read as one stream in the order of `seq`, window by window. No two rows share a `seq`, so a window has at most as
//! many rows as it is wide, and a claim reads no more than it can return, as a rule. Where rows lie far apart, because others own
//! most lanes or most rows are parked, the windows widen. Where rows are heavy they narrow: to measure a payload, the server reads all of it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use postrider_core::{
    select::{Disposition, Rules},
    store::{Lane, LaneClaim, Seq},
};
use sqlx::MySqlConnection;

use super::{look_back::Forward, read::Reader, scan::Row};

/// Least width of a window.
const WIDTH_MIN: u64 = 64;

/// Fewest rows that a window is made for, however heavy they are.
const HEAVY_ROWS_MIN: u64 = 8;

/// How heavy a fresh row is, by those that were read last. It decides how much is read at once, never what is met.
#[derive(Debug, Default)]
pub(in super::super) struct TypicalRow(AtomicUsize);

impl TypicalRow {
    fn note(&self, rows: &[Row]) {
        let bytes: usize = rows.iter().map(|row| row.stored.bytes).sum();
        if let Some(each) = bytes.checked_div(rows.len()) {
            self.0.store(each.max(1), Relaxed);
        }
    }

    /// How many rows to read for so many candidates of so many bytes together; few as long as nothing is known.
    fn rows_for(&self, candidates: usize, bytes_max: usize) -> u64 {
        let candidates = candidates as u64;
        match self.0.load(Relaxed) {
            0 => candidates.min(WIDTH_MIN),
            each => candidates.min((bytes_max as u64).saturating_mul(2) / each as u64).max(HEAVY_ROWS_MIN),
        }
    }
}

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

    fn holds(&self, lane: Lane, seq: Seq) -> bool {
        lane == self.lane && seq > self.from && seq <= self.to
    }
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    /// In order.
    pub(super) rows: Vec<Row>,
    /// Up to where everything was met that was to be seen.
    pub(super) reached: Seq,
    /// How many statements read it. Each saw what was committed by then.
    statements: usize,
}

impl Fresh {
    /// What was read, where this is the largest number that can be seen.
    pub(super) fn places(&self, tip: Seq) -> Forward {
        let rows = self.rows.iter().map(|row| (row.lane, row.seq)).collect();
        Forward { rows, reached: self.reached, tip, is_of_one_moment: self.statements <= 1 }
    }

    /// Leaves what lies beyond a place to the next claim.
    pub(super) fn end_at(&mut self, to: Seq) {
        self.rows.retain(|row| row.seq <= to);
        self.reached = self.reached.min(to);
    }
}

/// How much is wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// Most candidates, and most bytes of them together.
    pub(super) candidates_max: usize,
    pub(super) bytes_max: usize,
    pub(super) typical: &'a TypicalRow,
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
    rules: &Rules<'_>,
    conn: &mut MySqlConnection,
    stretches: &[Stretch],
    tip: Seq,
    wanted: Wanted<'_>,
) -> sqlx::Result<Fresh> {
    let start = stretches.iter().map(|stretch| stretch.from).min().unwrap_or(tip);
    let mut fresh = Fresh { reached: start, ..Fresh::default() };
    let rows_max = wanted.rows_max as u64;
    let rows_for = || wanted.typical.rows_for(wanted.candidates_max, wanted.bytes_max);
    let width_of = |rows: u64| {
        let least = if rows < WIDTH_MIN { rows } else { WIDTH_MIN };
        rows.saturating_mul(wanted.spread).max(least)
    };
    let mut width = width_of(rows_for());
    // Rows that are parked or turned are no candidates; this is what bounds the writing of one claim.
    let written_max = wanted.candidates_max.saturating_mul(4).max(1024);
    let (mut candidates, mut written, mut bytes) = (0, 0, 0);
    for _ in 0..WINDOWS_MAX {
        let enough = candidates >= wanted.candidates_max || bytes >= wanted.bytes_max;
        if fresh.reached >= tip || enough || written >= written_max {
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
        let rows =
            rows.into_iter().filter(|row| stretches.iter().any(|stretch| stretch.holds(row.lane, row.seq)));
        let mut rows: Vec<Row> = rows.collect();
        rows.sort_unstable_by_key(|row| row.seq);
        wanted.typical.note(&rows);
        for row in &mut rows {
            match row.decide(rules) {
                Disposition::Deliver { .. } => {
                    candidates += 1;
                    bytes += row.stored.bytes;
                }
                Disposition::Park { .. } | Disposition::Delay => written += 1,
                Disposition::Ignore | Disposition::Skip => {}
            }
        }
        fresh.rows.extend(rows);
        fresh.reached = to;
        fresh.statements += 1;
        if found < (to - after) / STEP {
            width = width.saturating_mul(STEP);
        } else if found > 0 {
            // By now it is known how heavy rows are.
            width = width.max(width_of(rows_for()));
        }
    }
    Ok(fresh)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_window_has_as_many_rows_as_the_bytes_of_a_claim_allow_twice_over() {
        let typical = TypicalRow::default();
        assert_eq!(typical.rows_for(500, 8 * MIB), WIDTH_MIN, "nothing is known yet");
        for (row_bytes, rows) in [(1024, 500), (64 * 1024, 256), (MIB, 16), (8 * MIB, HEAVY_ROWS_MIN)] {
            typical.0.store(row_bytes, Relaxed);
            assert_eq!(typical.rows_for(500, 8 * MIB), rows, "rows of {row_bytes} bytes");
        }
    }
}
