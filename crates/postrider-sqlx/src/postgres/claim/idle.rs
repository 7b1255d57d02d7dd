//! The claim of an idle outbox: one short walk over all lanes, where the last claim left nothing.
//!
//! Most claims are of this kind: an event was written, and nothing else is there. A statement is a snapshot of its own: if it shows that there is
//! more, nothing was done yet, and another look is made.

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
    look::{Cursor, LaneSeen, Limits, Look, Scale, late},
    sight::Sight,
    trail::{Begun, Behind, From},
};

/// The most events that an idle outbox has, and the most numbers beyond the forward reads.
const EVENTS_MAX: usize = 64;
/// The most numbers that a scan behind the forward reads walks over.
const SCAN_MAX: Seq = 1_000;

pub(super) fn statement(shape: &Shape) -> Placed {
    let sql = row::spell(include_str!("idle.sql"))
        .replace("{small}", &row::spell_small("$8"))
        .replace("{late}", &late("$9", "$10"));
    Placed::new(&sql, shape)
}

/// Where the claim of an idle outbox reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Idle {
    /// Where the scan behind the forward reads begins.
    scans_from: Seq,
    /// Where the forward reads of all lanes stand.
    front: Seq,
    limits: Limits,
}

impl Idle {
    /// Where to read, if the outbox may be idle.
    pub(super) fn of(
        claim: &Claim,
        begun: &Begun,
        cursors: &[Cursor<'_>],
        lanes_in_all: u32,
    ) -> Option<Self> {
        // Without the snapshot of the last scan, the scan would return what is in flight.
        let scan_is_known = match begun.from {
            From::Front => true,
            From::Near => begun.behind.is_some(),
            From::Far => false,
        };
        let left_nothing = matches!(begun.goes_on, Some((Seq::MAX, _)));
        let whole = claim.lanes.iter().all(|lane| lane.again.is_empty() && lane.to == Seq::MAX);
        if !scan_is_known || !left_nothing || !whole || begun.under_way || begun.bound.is_some() {
            return None;
        }
        if claim.admission.is_some() || claim.limit == 0 {
            return None;
        }
        // What others have delivered lies in front of ours until it is removed, and a walk over the primary key would pass all of it.
        if claim.lanes.len() < lanes_in_all as usize {
            return None;
        }
        let Cursor { front, scans_from, .. } = *cursors.first()?;
        let together = cursors.iter().all(|cursor| (cursor.front, cursor.scans_from) == (front, scans_from));
        let limits = Limits::of(claim, lanes_in_all).for_all_lanes(EVENTS_MAX);
        (together && front > 0 && front - scans_from <= SCAN_MAX).then_some(Self {
            scans_from,
            front,
            limits,
        })
    }
}

/// Looks, if there is no more than an idle outbox has. None if there is.
pub(super) async fn look(
    sql: &Placed,
    conn: &mut PgConnection,
    claim: &Claim,
    cursors: &[Cursor<'_>],
    behind: Option<&Behind>,
    (idle, scale): (Idle, Scale),
) -> sqlx::Result<Option<Look>> {
    let Idle { scans_from, front, limits } = idle;
    let ceiling = front.saturating_add(integer(EVENTS_MAX).unsigned_abs());
    let in_flight = claim.in_flight.get(claim.in_flight.partition_point(|seq| *seq <= scans_from)..);
    let in_flight: Vec<i64> = in_flight.unwrap_or_default().iter().map(|seq| integer(*seq)).collect();
    let mut rows = with_tokens(sql.of(scale.reads_log), cursors.iter().map(|cursor| cursor.lane.lease))
        .bind(integer(scans_from))
        .bind(integer(front))
        .bind(integer(ceiling))
        .bind(in_flight)
        .bind(small(row::read_at_once_bytes(limits.read_at_once(claim, 0))))
        .bind(behind.map(|behind| behind.snapshot.as_str()))
        .bind(behind.map(|behind| behind.wrote.as_slice()))
        .bind(integer(EVENTS_MAX))
        .fetch(conn);
    let Some(gate) = rows.try_next().await? else { return Ok(None) };

    let sight = Sight::of(&gate)?;
    let next_due = optional_time(&gate, column::OCCURRED_AT)?;
    let all_held = natural::<usize>(gate.try_get(column::WEIGHT)?) == cursors.len();
    let unusual: bool = gate.try_get(column::COMING_BACK)?;
    if !all_held || unusual || next_due.is_some_and(|due| due <= sight.now) {
        return Ok(None);
    }
    let mut look = Look { sight, limits, ..Look::default() };
    for cursor in cursors {
        let seen = LaneSeen { front: cursor.front, any: true, beyond: false, next_due };
        look.lanes.insert(cursor.lane.lease.lane, seen);
    }
    while let Some(row) = rows.try_next().await? {
        look.take_fresh(&row, claim)?;
    }
    Ok((look.fresh.len() < EVENTS_MAX).then_some(look))
}
