//! The usual claim: a cheaper statement, where nothing waits that is due and nothing comes back.
//!
//! A claim that goes on where the last one ended knows up to where to read, so that each lane is sought once. A statement is a snapshot of its
//! own: if it shows that the claim is not such a one, nothing was done yet, and the careful claim is made.

use futures_util::TryStreamExt;
use postrider_core::{
    Timestamp,
    store::{Claim, Seq},
};
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
    watermarks::Begun,
};

pub(super) fn statement(shape: &Shape) -> Placed {
    // Most often nothing is in flight there, and then nothing is asked for each row.
    let not_in_flight =
        "((SELECT cardinality($7::bigint[]) = 0) OR e.seq NOT IN (SELECT unnest($7::bigint[])))";
    let sql = row::spell(include_str!("quick.sql"))
        .replace("{small}", &row::spell_small("$8"))
        .replace("{not_in_flight}", not_in_flight);
    Placed::new(&sql, shape)
}

/// How far a claim reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    /// Up to where all lanes are read; none if there was nothing more, so that little can be there now.
    ceiling: Option<Seq>,
    /// From where no lane has met anything, so that the rows of all can be read as they lie; none if too few of them are ours.
    untouched: Option<Seq>,
    limits: Limits,
}

/// Rows are read as they lie if at least one of so many may be ours.
pub(super) const OURS_ARE_ONE_OF: u64 = 4;

impl Reach {
    /// How far to read, if this may be a usual claim.
    pub(super) fn of(claim: &Claim, begun: &Begun<'_>, lanes_in_all: u32) -> Option<Self> {
        let (reached, wide) = begun.goes_on?;
        begun.since()?;
        let whole = claim.lanes.iter().all(|lane| lane.again.is_empty() && lane.to == Seq::MAX);
        if claim.admission.is_some() || claim.limit == 0 || !whole {
            return None;
        }
        let limits = Limits::of(claim, lanes_in_all);
        if reached == Seq::MAX {
            return Some(Self { ceiling: None, untouched: None, limits: limits.few_of_a_lane() });
        }
        let limits = limits.times_as_wide(wide);
        let dense = limits.width < OURS_ARE_ONE_OF.saturating_mul(limits.fresh as u64);
        let furthest = begun.cursors.iter().map(|cursor| cursor.front).fold(reached, Seq::max);
        Some(Self {
            ceiling: Some(reached.saturating_add(limits.width).saturating_add(1)),
            untouched: dense.then_some(furthest),
            limits,
        })
    }
}

/// Reads, if there is nothing but fresh rows. None if there is more.
pub(super) async fn look(
    sql: &Placed,
    conn: &mut PgConnection,
    claim: &Claim,
    begun: &Begun<'_>,
    (reach, scale): (Reach, Scale),
) -> sqlx::Result<Option<Look>> {
    let Reach { ceiling, untouched, limits } = reach;
    let ends = ceiling.unwrap_or(Seq::MAX);
    let untouched = untouched.unwrap_or(ends).min(ends);
    // What was claimed lies behind the fronts.
    let lowest = begun.cursors.iter().map(|cursor| cursor.front).min().unwrap_or_default();
    let beyond = claim.in_flight.get(claim.in_flight.partition_point(|seq| *seq <= lowest)..);
    let in_flight: Vec<i64> = beyond.unwrap_or_default().iter().map(|seq| integer(*seq)).collect();
    let mut rows = with_tokens(sql.of(scale.reads_log), claim.lanes.iter().map(|lane| lane.lease))
        .bind(begun.cursors.iter().map(|cursor| integer(cursor.front)).collect::<Vec<_>>())
        .bind(integer(ends))
        .bind(integer(limits.fresh_of_a_lane))
        .bind(in_flight)
        .bind(small(row::read_at_once_bytes(limits.read_at_once(claim, limits.fresh))))
        .bind(begun.since().map(|snapshot| snapshot.text()))
        .bind(integer(begun.front()))
        .bind(integer(limits.fresh))
        .bind(integer(untouched))
        .fetch(conn);
    let Some(gate) = rows.try_next().await? else { return Ok(None) };

    let moment = Moment::of(&gate)?;
    let next_due: Option<Timestamp> = optional_time(&gate, column::OCCURRED_AT)?;
    let all_held = natural::<usize>(gate.try_get(column::WEIGHT)?) == claim.lanes.len();
    let unusual: bool = gate.try_get(column::COMING_BACK)?;
    let beyond: bool = gate.try_get(column::READ)?;
    if !all_held || unusual || next_due.is_some_and(|due| due <= moment.now) {
        return Ok(None);
    }
    let mut look = Look { moment, limits, ceiling, ..Look::default() };
    look.fresh.reserve(limits.fresh);
    look.read.reserve(limits.fresh);
    for lane in &claim.lanes {
        look.lanes.insert(lane.lease.lane, LaneSeen { beyond, next_due });
    }
    // Each row is taken apart while the next ones are on their way.
    while let Some(row) = rows.try_next().await? {
        look.take_fresh(&row, begun)?;
    }
    // Rows that are all over the ceiling lie behind a hole, and only a careful claim finds its other side.
    if beyond && look.fresh.is_empty() {
        return Ok(None);
    }
    look.fresh.sort_unstable_by_key(Seen::seq);
    Ok(Some(look))
}
