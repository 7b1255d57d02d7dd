//! The careful way through one lane: all lists, read page by page as far as the selector asks for them.

use std::collections::HashMap;

use postrider_core::{
    select::{Budget, FreedKey, List, Rules, Selection, Selector},
    store::{Claim, Claimed, LaneClaim, Position, Seq},
};
use sqlx::SqliteConnection;

use super::{
    pages::Pages,
    rows::{self, Summary},
    state::State,
    write::Writes,
};

/// Reads one lane and chooses; notes in `claimed` where the next claim begins. Returns what was chosen and what has to be written.
pub(super) async fn scan(
    sql: &rows::Statements,
    conn: &mut SqliteConnection,
    claim: &Claim,
    lane: &LaneClaim,
    state: State,
    budget: &mut Budget,
    claimed: &mut Claimed,
) -> sqlx::Result<(Selection<Summary, i64>, Writes)> {
    let (now, number, limit) = (claimed.now, lane.lease.lane, budget.events());
    let rules = Rules { now, in_flight: &claim.in_flight };
    let mut selector = Selector::new(claim, rules).with_budget(budget.clone());
    let freed = match state.returning {
        true => sql.returning(conn, number).await?,
        false => Vec::new(),
    };
    let holds: HashMap<Seq, i64> =
        freed.iter().map(|freed: &FreedKey<_, i64>| (freed.head, freed.key)).collect();
    selector.freed(freed, |_| lane.from.met);
    if !lane.again.is_empty() {
        selector.recheck(sql.recheck(conn, number, &lane.again).await?);
    }
    let mut fresh = Pages::fresh(lane, limit);
    let mut waiting = if state.waiting(now) { Pages::waiting(lane, limit, now) } else { Pages::none(lane) };
    selector.extend(List::Fresh, Vec::new(), fresh.is_at_end());
    selector.extend(List::Waiting, Vec::new(), waiting.is_at_end());
    while let Some(list) = selector.run() {
        let pages = match list {
            List::Fresh => &mut fresh,
            List::Waiting => &mut waiting,
        };
        match pages.next(sql, conn, &rules).await? {
            Some(page) => selector.extend(list, page, pages.is_at_end()),
            None => selector.stop(list),
        }
    }
    let mut selection = selector.finish();
    *budget = selection.budget.clone();

    claimed.again.extend(selection.recheck_left());
    claimed.positions.push((number, position(&selection, lane, claim.admission.is_none())));
    claimed.more |= selection.more;
    let next_due = selection.next_due.into_iter().chain(state.next_due).min();
    let until = next_due.map(|due| due.since(now));
    claimed.next_due = claimed.next_due.into_iter().chain(until).min();
    let writes = Writes::of(lane.lease, &mut selection, &holds);
    Ok((selection, writes))
}

/// Where the next claim goes on.
fn position(selection: &Selection<Summary, i64>, lane: &LaneClaim, starts_over: bool) -> Position {
    let (due_at, due_seq) = selection.waiting_from(lane.lease.lane, lane.from, starts_over);
    let met = selection.fresh.last().map_or(lane.from.seq, |row| row.facts.seq);
    let (seq, met) = match selection.fresh.is_done {
        false => (met, met),
        // Of what lies behind the end nothing is known.
        true if lane.to < Seq::MAX => (lane.from.seq.max(lane.to), lane.from.seq.max(lane.to)),
        // What was parked by now was met on the way, so at the end everything was.
        true => (met, Seq::MAX),
    };
    Position { seq, met, due_at, due_seq, ..lane.from }
}
