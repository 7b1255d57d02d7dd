//! Reading what a back scan reads, page by page.

use std::time::Instant;

use postrider_core::store::Seq;

use super::{back_scan::BackScan, late_commits::LateCommits, look_back::Limits, places::Places, seqs::Unmet};

/// Goes on with a scan until it is through, or the claim has read its pages. What the engine has in memory is not late.
pub(super) async fn advance(
    scan: &mut BackScan,
    late: &LateCommits,
    table: &mut impl Places,
    in_flight: &[Seq],
    limits: Limits,
) -> sqlx::Result<()> {
    let (most, most_numbers) = (limits.page_rows, limits.page_rows as u64);
    let began = Instant::now();
    let lanes = scan.lanes();
    for _ in 0..limits.pages {
        if scan.is_through() {
            break;
        }
        let (mut rows, reached) = match late.unmet(scan.left()) {
            Unmet::Few(seqs, reached) => (table.among(&seqs).await?, reached),
            Unmet::Most(after, to) => {
                let width = late.begin_page(scan.width().get());
                let (after, began) = (after.max(to.saturating_sub(width)), Instant::now());
                let rows = table.within(&lanes, (after, to), most).await?;
                late.end_page();
                let numbers = to - after;
                if rows.len() >= most && numbers > most_numbers {
                    // Which rows were left out depends on their lanes.
                    scan.width().narrow_to(most_numbers);
                    continue;
                }
                scan.width().took(numbers, began.elapsed());
                if rows.len() > most / 4 {
                    scan.width().narrow_to(numbers);
                }
                (rows, after)
            }
        };
        rows.retain(|(_, seq)| in_flight.binary_search(seq).is_err());
        scan.read(late.late(rows), reached);
    }
    scan.took(began.elapsed());
    Ok(())
}
