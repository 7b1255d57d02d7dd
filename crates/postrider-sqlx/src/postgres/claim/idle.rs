//! The claim of an idle outbox: one short read of what has committed since the claim before, where that left nothing.
//!
//! Most claims are of this kind: an event was written, and nothing else is there. A statement is a snapshot of its own: if it shows that there is
//! more, nothing was done yet, and another claim is made.

use futures_util::TryStreamExt;
use postrider_core::store::{Claim, Seq};
use sqlx::{PgConnection, Row};

use super::{
    super::{
        lease::with_tokens,
        row::{self, column},
        statement::{Shape, integer, natural, optional_time, small},
    },
    history::Placed,
    look::{LaneSeen, Limits, Look, Scale, Seen},
    moment::Moment,
    quick::OURS_ARE_ONE_OF,
    watermarks::Begun,
};

/// The most events that an idle outbox has.
const EVENTS_MAX: usize = 64;
/// The most that is in flight.
const IN_FLIGHT_MAX: usize = 256;

pub(super) fn statement(shape: &Shape) -> Placed {
    let sql = row::spell(include_str!("idle.sql")).replace("{small}", &row::spell_small("$5"));
    Placed::new(&sql, shape)
}

/// Whether the outbox may be idle.
pub(super) fn is_likely(claim: &Claim, begun: &Begun<'_>, scale: Scale) -> bool {
    let left_nothing = matches!(begun.goes_on, Some((Seq::MAX, _)));
    let whole = claim.lanes.iter().all(|lane| lane.again.is_empty() && lane.to == Seq::MAX);
    // Rows of other instances' lanes are read too.
    let ours = claim.lanes.len() as u64 * OURS_ARE_ONE_OF >= u64::from(scale.lanes);
    left_nothing
        && whole
        && ours
        && begun.since().is_some()
        && claim.admission.is_none()
        && claim.limit > 0
        && claim.in_flight.len() <= IN_FLIGHT_MAX
}

/// Reads, if there is no more than an idle outbox has. None if there is.
pub(super) async fn look(
    sql: &Placed,
    conn: &mut PgConnection,
    claim: &Claim,
    begun: &Begun<'_>,
    scale: Scale,
) -> sqlx::Result<Option<Look>> {
    let limits = Limits::of(claim, scale.lanes).for_all_lanes(EVENTS_MAX);
    let in_flight: Vec<i64> = claim.in_flight.iter().map(|seq| integer(*seq)).collect();
    let mut rows = with_tokens(sql.of(scale.reads_log), claim.lanes.iter().map(|lane| lane.lease))
        .bind(in_flight)
        .bind(small(row::read_at_once_bytes(limits.read_at_once(claim, 0))))
        .bind(begun.since().map(|snapshot| snapshot.text()))
        .bind(integer(EVENTS_MAX))
        .fetch(conn);
    let Some(gate) = rows.try_next().await? else { return Ok(None) };

    let moment = Moment::of(&gate)?;
    let next_due = optional_time(&gate, column::OCCURRED_AT)?;
    let all_held = natural::<usize>(gate.try_get(column::WEIGHT)?) == claim.lanes.len();
    let unusual: bool = gate.try_get(column::COMING_BACK)?;
    if !all_held || unusual || next_due.is_some_and(|due| due <= moment.now) {
        return Ok(None);
    }
    let mut look = Look { moment, limits, ..Look::default() };
    for lane in &claim.lanes {
        look.lanes.insert(lane.lease.lane, LaneSeen { beyond: false, next_due });
    }
    while let Some(row) = rows.try_next().await? {
        look.take_fresh(&row, begun)?;
    }
    look.fresh.sort_unstable_by_key(Seen::seq);
    Ok((look.fresh.len() < EVENTS_MAX).then_some(look))
}
