//! The usual claim: a cheaper look, where nothing waits that is due and nothing comes back.
//!
//! A claim that goes on where the last one ended knows up to where to look, so that each lane is sought once. A statement is a snapshot of its
//! own: if it shows that the claim is not such a one, nothing was done yet, and the careful look is made.

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
    look::{Cursor, LaneSeen, Limits, Look, Scale, first_behind, late, too_far_back, unscanned},
    sight::Sight,
    trail::{self, Begun, Behind, From},
};

pub(super) fn statement(shape: &Shape) -> Placed {
    let sql = row::spell(include_str!("quick.sql"))
        .replace("{small}", &row::spell_small("$9"))
        .replace("{late}", &late("$10", "$11"))
        .replace("{unscanned}", &unscanned("$16"))
        .replace("{not_in_flight}", &not_among("$8"))
        .replace("{not_in_flight_beyond}", &not_among("$13"));
    Placed::new(&sql, shape)
}

/// Whether a row is none of these. Most often there are none, and then nothing is asked for each row.
fn not_among(seqs: &str) -> String {
    format!("((SELECT cardinality({seqs}::bigint[]) = 0) OR e.seq NOT IN (SELECT unnest({seqs}::bigint[])))")
}

/// How far a look goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    /// Up to where all lanes are read; none if there was nothing more, so that little can be there now.
    ceiling: Option<Seq>,
    /// From where no lane has met anything, so that the rows of all can be read as they lie; none if too few of them are ours.
    untouched: Option<Seq>,
    /// Whether each lane is sought for what it has not met behind that. Not if all lanes were read up to there, and a look behind the forward read,
    /// which does it too, is only a matter of time: then such a row is to it as late as one that was passed.
    sought: bool,
    limits: Limits,
}

/// Rows are read as they lie if at least one of so many may be ours.
const OURS_ARE_ONE_OF: u64 = 4;

impl Reach {
    /// How far to look, if this may be a usual claim.
    pub(super) fn of(claim: &Claim, begun: &Begun, lanes_in_all: u32) -> Option<Self> {
        let (from, (reached, wide)) = (begun.from, begun.goes_on?);
        // Without knowing what the last scan behind the front saw, all that is in flight would come. A scan of several claims is unusual.
        let known = from == From::Front || begun.behind.is_some() && !begun.under_way;
        let usual = |lane: &postrider_core::store::LaneClaim| lane.again.is_empty() && lane.to == Seq::MAX;
        if !known || claim.admission.is_some() || claim.limit == 0 || !claim.lanes.iter().all(usual) {
            return None;
        }
        let limits = Limits::of(claim, lanes_in_all);
        Some(match reached {
            Seq::MAX => {
                let limits = limits.few_of_a_lane().together();
                Self { ceiling: None, untouched: None, sought: true, limits }
            }
            reached => {
                let limits = limits.times_as_wide(wide).together();
                // A claim that looked behind the front and was cut short there has reached less than others before it.
                let untouched =
                    claim.lanes.iter().map(|lane| trail::front(&lane.from)).fold(reached, Seq::max);
                let dense = limits.width < OURS_ARE_ONE_OF.saturating_mul(limits.fresh as u64);
                let passed = |lane: &postrider_core::store::LaneClaim| {
                    trail::near(&lane.from) < trail::front(&lane.from)
                };
                Self {
                    ceiling: Some(reached.saturating_add(limits.width).saturating_add(1)),
                    untouched: dense.then_some(untouched),
                    // Lanes that were taken over lie behind the others, and what they have between is not late. Nor is what a scan that is under way
                    // has seen before the forward reads and left to them.
                    sought: !dense
                        || begun.under_way
                        || from != From::Front
                        || untouched > reached
                        || !claim.lanes.iter().all(passed),
                    limits,
                }
            }
        })
    }
}

/// Looks, if nothing but fresh rows is to be looked at. None if something is.
pub(super) async fn look(
    sql: &Placed,
    conn: &mut PgConnection,
    claim: &Claim,
    cursors: &[Cursor<'_>],
    (behind, bound): (Option<&Behind>, Option<&str>),
    (reach, scale): (Reach, Scale),
) -> sqlx::Result<Option<Look>> {
    let Reach { ceiling, untouched, sought, limits } = reach;
    let ends = ceiling.unwrap_or(Seq::MAX);
    let untouched = untouched.unwrap_or(ends).min(ends);
    // Where nothing is read, what is in flight need not be said: below all cursors, and behind the untouched if no lane is sought there. What
    // was claimed does not lie beyond.
    let lowest = cursors.iter().map(|cursor| cursor.scans_from).min().filter(|_| sought).unwrap_or(untouched);
    let numbers = |seqs: &[Seq]| seqs.iter().map(|seq| integer(*seq)).collect::<Vec<i64>>();
    let (behind_cursors, beyond) =
        claim.in_flight.split_at(claim.in_flight.partition_point(|seq| *seq <= untouched));
    let below = behind_cursors.partition_point(|seq| *seq <= lowest);
    let mut rows = with_tokens(sql.of(scale.reads_log), cursors.iter().map(|cursor| cursor.lane.lease))
        .bind(cursors.iter().map(|cursor| integer(cursor.scans_from)).collect::<Vec<_>>())
        .bind(cursors.iter().map(|cursor| integer(cursor.front)).collect::<Vec<_>>())
        .bind(integer(ends))
        .bind(integer(limits.fresh_of_a_lane))
        .bind(numbers(behind_cursors.get(below..).unwrap_or_default()))
        .bind(small(row::read_at_once_bytes(limits.read_at_once(claim, 0))))
        .bind(behind.map(|behind| behind.snapshot.as_str()))
        .bind(behind.map(|behind| behind.wrote.as_slice()))
        .bind(integer(untouched))
        .bind(numbers(beyond))
        .bind(sought)
        .bind(integer(first_behind(cursors)))
        .bind(bound)
        .bind(too_far_back(cursors).map(integer))
        .fetch(conn);
    let Some(gate) = rows.try_next().await? else { return Ok(None) };

    let sight = Sight::of(&gate)?;
    let next_due: Option<Timestamp> = optional_time(&gate, column::OCCURRED_AT)?;
    let all_held = natural::<usize>(gate.try_get(column::WEIGHT)?) == cursors.len();
    let unusual: bool = gate.try_get(column::COMING_BACK)?;
    let beyond: bool = gate.try_get(column::READ)?;
    if !all_held || unusual || next_due.is_some_and(|due| due <= sight.now) {
        return Ok(None);
    }
    let mut look = Look { sight, limits, ceiling, scan_ceiling: ceiling, ..Look::default() };
    look.fresh.reserve(limits.fresh);
    look.read.reserve(limits.fresh);
    for cursor in cursors {
        let seen = LaneSeen { front: cursor.front, any: true, beyond, next_due };
        look.lanes.insert(cursor.lane.lease.lane, seen);
    }
    // Each row is taken apart while the next ones are on their way.
    while let Some(row) = rows.try_next().await? {
        look.take_fresh(&row, claim)?;
    }
    // Rows that are all over the ceiling lie behind a hole, and only a look for the first of them finds its other side.
    if beyond && look.fresh.is_empty() {
        return Ok(None);
    }
    look.fresh.sort_unstable_by_key(|seen| seen.seq);
    Ok(Some(look))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use postrider_core::store::{Lane, LaneClaim, Lease, Position, Rescan, Token, Trail};

    use super::*;
    use crate::postgres::claim::trail::Looks;

    fn lane(lane: Lane, rescan: Rescan) -> LaneClaim {
        let trail = Trail { front: 100, near: 5, rescan, ..Trail::START };
        let token = Token { epoch: 1, nonce: 1 };
        LaneClaim::after(Lease { lane, token }, Position { trail, ..Position::START })
    }

    #[test]
    fn while_a_scan_is_under_way_each_lane_is_sought_for_what_the_scan_has_left_to_its_forward_read() {
        for is_under_way in [false, true] {
            let lanes = vec![lane(0, Rescan::NONE), lane(1, Rescan::NONE)];
            let mut looks = Looks::default();
            let positions: Vec<_> = lanes.iter().map(|lane| (lane.lease.lane, lane.from)).collect();
            looks.ended(&positions, 100, (5, 5), false);
            let mut begun = looks.begin(lanes.iter(), Instant::now());
            (begun.from, begun.under_way) = (From::Front, is_under_way);
            let reach = Reach::of(&Claim::new(lanes, 500), &begun, 2).unwrap();
            assert_eq!(reach.sought, is_under_way);
        }
    }
}
