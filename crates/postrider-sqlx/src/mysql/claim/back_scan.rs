//! Reading, page by page, what claims have read past: rows whose transactions have committed since.

use std::time::Instant;

use postrider_core::store::{Lane, LaneClaim, Seq};
use sqlx::MySqlConnection;

use super::{
    late_commits::{BackScan, LateCommits},
    read::Reader,
    scan::Judge,
    seqs::Unmet,
};

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
    for _ in 0..PAGES_MAX {
        if scan.found() >= wanted || scan.cursor() >= scan.to() {
            break;
        }
        let (rows, reached) = match late.unmet(scan.cursor(), scan.to()) {
            Unmet::Few(seqs, reached) => (reader.fresh_among(conn, &seqs).await?, reached),
            Unmet::Most(after, to) => {
                let width = late.begin_page(scan.width().get());
                let (to, began) = (to.min(after.saturating_add(width)), Instant::now());
                let rows = reader.fresh_places(conn, &of_scan, (after, to), PAGE_ROWS).await?;
                late.end_page();
                if rows.len() >= PAGE_ROWS && to - after > PAGE_ROWS as u64 {
                    // Which rows were left out depends on their lanes.
                    scan.width().narrow_to(PAGE_ROWS as u64);
                    continue;
                }
                scan.width().took(to - after, began.elapsed());
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
