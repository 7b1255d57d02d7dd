//! Looking at what lies ahead of the lanes, before a back scan reads what lies behind them.

use postrider_core::store::{Lane, LaneClaim, Seq};

use super::{
    ahead::Ahead,
    forward::Stretch,
    late_commits::LateCommits,
    look_back::{Forward, Limits},
    places::Places,
};

/// Looks where fresh rows are: those that this claim has read, and as many more as one scan is worth. A claim that has read everything
/// with one statement has looked already. Lanes that stand further on are left to a later claim, which comes up to them.
pub(super) async fn look(
    late: &LateCommits,
    table: &mut impl Places,
    claims: &[&LaneClaim],
    forward: &Forward,
    limits: Limits,
) -> sqlx::Result<Ahead> {
    let Forward { rows: read, reached, tip, is_of_one_moment } = forward;
    if reached >= tip && *is_of_one_moment {
        return Ok(Ahead::of(read.iter().map(|(_, seq)| *seq)));
    }
    let stretches: Vec<Stretch> = claims.iter().map(|claim| Stretch::of(claim)).collect();
    let after = stretches.iter().map(|stretch| stretch.from).min().unwrap_or_default();
    let (first, others): (Vec<Stretch>, Vec<_>) =
        stretches.into_iter().partition(|stretch| stretch.from == after);
    let lanes: Vec<Lane> = first.iter().map(|stretch| stretch.lane).collect();
    let joins = others.iter().map(|stretch| stretch.from).min().unwrap_or(Seq::MAX);

    let rows_max = limits.ahead_rows.max(read.len().saturating_mul(2));
    let further = late.begin_page((limits.ahead_rows as u64).saturating_mul(limits.spread));
    // The narrowest has at most as many rows as numbers.
    let ends = [reached.saturating_add(further), *reached, after.saturating_add(rows_max as u64)];
    let mut rows = Vec::new();
    for to in ends.map(|to| to.min(joins)) {
        rows = table.within(&lanes, (after, to), rows_max).await?;
        if rows.len() < rows_max {
            break;
        }
    }
    late.end_page();
    Ok(Ahead::of(rows.into_iter().map(|(_, seq)| seq)))
}
