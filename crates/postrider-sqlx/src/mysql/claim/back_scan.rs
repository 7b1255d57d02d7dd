//! Reading, page by page, what claims have read past: rows whose transactions have committed since.

use std::time::{Duration, Instant};

use postrider_core::store::{Lane, LaneClaim, Seq};
use sqlx::MySqlConnection;

use super::{
    late_commits::{BackScan, LateCommits},
    read::Reader,
    scan::Judge,
    seqs::Unmet,
};

/// Width of the first page, in numbers. No two rows share one, so a page has at most as many rows as it is wide; and the database reads
/// no more index entries for it, those included that it cannot return because they are not committed.
const WIDTH: u64 = 8192;

/// A statement that took no longer than this is followed by one of four times its width...
const QUICK: Duration = Duration::from_millis(2);

/// ...and one that took longer than this by one of a quarter.
const SLOW: Duration = Duration::from_millis(25);

/// Most rows of a page.
const PAGE_ROWS: usize = 8192;

/// Most statements of one claim: the rest is for the next one.
const PAGES_MAX: usize = 8;

/// Goes on with a scan until it is through, or `wanted` late rows are known, or the claim has read its pages.
pub(super) async fn advance(
    scan: &mut BackScan,
    late: &LateCommits,
    reader: &Reader<'_>,
    judge: &Judge<'_>,
    conn: &mut MySqlConnection,
    lanes: &[&LaneClaim],
    wanted: usize,
) -> sqlx::Result<()> {
    let began = Instant::now();
    let of_scan = scan.lanes();
    // What a lane's own claims have not come to yet, they will meet; and what the engine has is not late.
    let is_past = |&(lane, seq): &(Lane, Seq)| {
        let claim = lanes.iter().find(|claim| claim.lease.lane == lane);
        claim.is_some_and(|claim| seq > claim.from.seq && seq <= claim.from.met)
            && of_scan.contains(&lane)
            && !judge.is_in_flight(seq)
    };
    let mut width = WIDTH;
    for _ in 0..PAGES_MAX {
        if scan.found() >= wanted || scan.cursor() >= scan.to() {
            break;
        }
        let (rows, reached) = match late.unmet(scan.cursor(), scan.to()) {
            Unmet::Few(seqs, reached) => (reader.fresh_among(conn, &seqs).await?, reached),
            Unmet::Most(after, to) => {
                let (to, began) = (to.min(after.saturating_add(width)), Instant::now());
                let rows = reader.fresh_places(conn, &of_scan, (after, to), PAGE_ROWS).await?;
                if rows.len() >= PAGE_ROWS && to - after > PAGE_ROWS as u64 {
                    // Which rows were left out depends on their lanes.
                    width = PAGE_ROWS as u64;
                    continue;
                }
                width = match began.elapsed() {
                    took if took <= QUICK => width.saturating_mul(4),
                    took if took > SLOW => (width / 4).max(WIDTH / 16),
                    _ => width,
                };
                (rows, to)
            }
        };
        let mut rows = late.late(rows);
        rows.retain(is_past);
        rows.sort_unstable_by_key(|(_, seq)| *seq);
        scan.read(rows, reached);
    }
    scan.took(began.elapsed());
    Ok(())
}
