//! What a claim writes down: followers are parked, delayed events wait, what comes back unwanted lies among the others again,
//! keys that nothing is left of are free, and restored rows name no transaction of this server.
//!
//! The lanes are locked first, so that no settle of them runs meanwhile, and each statement then asks again for what the look saw,
//! because it may be over by now. Nobody else's lock stops a claim: what is locked is left out, and the claim names it to be met again.

use std::collections::{BTreeSet, HashSet};

use postrider_core::{
    select::{Disposition, Selection, WriteBack},
    store::{Claim, Lane, Lease, Seq},
};
use sqlx::{PgConnection, Row};

use super::{
    super::{
        lease::{self, Fence},
        statement::{Shape, Statement, integer, natural, small},
    },
    look::{Look, Seen},
};
use crate::connections::renewal::Locked;

/// The statements of this file. None of them waits for a row that another session has locked: what is locked is left as it is.
#[derive(Debug)]
pub(in super::super) struct Statements {
    pub(in super::super) park: Statement,
    followers: Statement,
    pub(in super::super) turn: Statement,
    pub(in super::super) unpark: Statement,
    pub(in super::super) free: Statement,
    mend: Statement,
}

/// Followers among the rows `$1` of the lanes `$2`.
const FOLLOWERS: &str = "
    SELECT e.seq FROM {p}event AS e
    WHERE e.seq = ANY ($1::bigint[]) AND e.lane = ANY ($2::integer[]) AND e.status IN (0, 2) AND NOT e.parked
      AND EXISTS (SELECT 1 FROM {p}hold AS h WHERE h.lane = e.lane AND h.effective_key = {key} AND h.seq <> e.seq)";

/// Locks the rows that a statement has chosen, as far as nobody else has.
const UNLOCKED: &str = "ORDER BY e.seq FOR NO KEY UPDATE OF e SKIP LOCKED";

impl Statements {
    pub(super) fn new(shape: &Shape) -> Self {
        let statement = |template: &str| Statement::new(template, shape);
        Self {
            park: statement(&format!(
                "UPDATE {{p}}event AS e SET parked = true
                 WHERE e.seq = ANY (ARRAY ({FOLLOWERS} {UNLOCKED})) RETURNING e.seq"
            )),
            followers: statement(FOLLOWERS),
            turn: statement(&format!(
                "UPDATE {{p}}event AS e SET status = 2
                 WHERE e.seq = ANY (ARRAY (
                     SELECT e.seq FROM {{p}}event AS e
                     WHERE e.seq = ANY ($1::bigint[]) AND e.lane = ANY ($2::integer[]) AND e.status = 0 AND NOT e.parked
                     {UNLOCKED}))
                 RETURNING e.seq"
            )),
            // Behind a row that is locked the later ones of its key stay parked too: unparked, they would be read before it.
            unpark: statement(&format!(
                "WITH unlocked AS MATERIALIZED (
                     SELECT e.seq, e.lane, {{key}} AS key FROM {{p}}event AS e
                     WHERE e.seq = ANY ($1::bigint[]) AND e.lane = ANY ($2::integer[]) AND e.parked
                     {UNLOCKED}
                 ), locked AS MATERIALIZED (
                     SELECT e.lane, {{key}} AS key, min(e.seq) AS seq FROM {{p}}event AS e
                     WHERE e.seq = ANY ($1) AND e.lane = ANY ($2) AND e.parked
                       AND NOT EXISTS (SELECT 1 FROM unlocked AS u WHERE u.seq = e.seq)
                     GROUP BY 1, 2
                 )
                 UPDATE {{p}}event AS e SET parked = false
                 WHERE e.seq = ANY (ARRAY (
                     SELECT u.seq FROM unlocked AS u
                     WHERE NOT EXISTS (SELECT 1 FROM locked AS l WHERE l.lane = u.lane AND l.key = u.key AND l.seq < u.seq)))"
            )),
            // An id that no transaction of this server has.
            mend: statement(&format!(
                "UPDATE {{p}}event AS e SET written_in = '2'
                 WHERE e.seq = ANY (ARRAY (
                     SELECT e.seq FROM {{p}}event AS e
                     WHERE e.seq = ANY ($1::bigint[]) AND e.lane = ANY ($2::integer[]) AND e.status IN (0, 2)
                     {UNLOCKED}))"
            )),
            free: statement(
                "WITH empty AS MATERIALIZED (
                     SELECT h.lane, h.effective_key FROM unnest($1::integer[], $2::text[]) AS f (lane, key)
                     JOIN {p}hold AS h ON h.lane = f.lane AND h.effective_key = f.key AND h.reason = 'returning'
                     WHERE NOT EXISTS (SELECT 1 FROM {p}event AS e
                                       WHERE e.lane = h.lane AND {key} = h.effective_key AND e.parked)
                     ORDER BY h.lane, h.effective_key FOR UPDATE OF h SKIP LOCKED
                 )
                 DELETE FROM {p}hold AS h USING empty WHERE h.lane = empty.lane AND h.effective_key = empty.effective_key",
            ),
        }
    }
}

/// What a claim has to write.
#[derive(Debug)]
pub(in super::super) struct Writes {
    /// The lanes that are written to.
    leases: Vec<Lease>,
    back: WriteBack<String>,
    /// What names a transaction of another server, and stays. When that of this one is over, it would seem to have been inserted by it.
    restored: Vec<(Lane, Seq)>,
}

impl Writes {
    /// None if there is nothing to write.
    pub(super) fn of(claim: &Claim, selection: &mut Selection<Seen, String>, look: &Look) -> Option<Self> {
        let back = selection.write_back();
        let restored = match look.restored.is_empty() {
            true => Vec::new(),
            false => {
                let lists = [&selection.recheck, &selection.fresh, &selection.waiting];
                let met = lists.into_iter().flat_map(|list| &list.met);
                let stays =
                    met.filter(|(_, disposition)| !matches!(disposition, Disposition::Deliver { .. }));
                let stays = stays.map(|(seen, _)| (seen.lane(), seen.seq()));
                stays.filter(|(_, seq)| look.restored.contains(seq)).collect()
            }
        };
        let mut lanes = back.lanes();
        lanes.extend(restored.iter().map(|(lane, _)| *lane));
        let is_written = |lease: &Lease| lanes.contains(&lease.lane) && look.lanes.contains_key(&lease.lane);
        let leases: Vec<Lease> = claim.lanes.iter().map(|lane| lane.lease).filter(is_written).collect();
        (!leases.is_empty()).then_some(Self { leases, back, restored })
    }
}

/// What became of it.
#[derive(Debug, Default)]
pub(in super::super) struct Written {
    /// Lanes that turned out to be somebody else's.
    pub(in super::super) lost: Vec<Lane>,
    /// Lanes of ours that another session has locked.
    pub(in super::super) locked_lanes: Vec<Lane>,
    /// Followers whose key was freed in between, so that they are due; but they were met, and nobody would look at them again.
    pub(in super::super) missed: Vec<(Lane, Seq)>,
    /// Followers and delayed events that another session has locked. They are as they were, and have to be met again.
    pub(in super::super) locked: Vec<(Lane, Seq)>,
}

impl Written {
    /// Nothing was written, because the tables themselves are locked.
    pub(in super::super) fn nothing(writes: &Writes) -> Self {
        Self { locked: writes.back.to_recheck().collect(), ..Self::default() }
    }
}

/// Writes it, in one transaction and only for lanes that are still held. Rows that another session has locked are never waited
/// for, and lanes as `locked` says.
pub(super) async fn write(
    sql: &Statements,
    leases: &lease::Statements,
    conn: &mut PgConnection,
    writes: &Writes,
    locked: Locked,
) -> sqlx::Result<Written> {
    let named = writes.leases.iter().copied();
    let fence = match locked {
        Locked::Wait => Fence { lost: lease::lock(leases, conn, named).await?, ..Fence::default() },
        Locked::Skip => lease::lock_some(leases, conn, named).await?,
    };
    let mut written = Written { lost: fence.lost, locked_lanes: fence.locked, ..Written::default() };
    let left = writes.back.to_recheck().filter(|(lane, _)| written.locked_lanes.contains(lane));
    written.locked = left.collect();
    let is_held = |lane: Lane| !written.lost.contains(&lane) && !written.locked_lanes.contains(&lane);
    let held: BTreeSet<Lane> =
        writes.leases.iter().map(|lease| lease.lane).filter(|lane| is_held(*lane)).collect();
    let lanes: Vec<i32> = held.iter().map(|lane| small(*lane)).collect();
    let rows_of = |rows: &[(Lane, Seq)]| -> Vec<(Lane, Seq)> {
        rows.iter().copied().filter(|(lane, _)| held.contains(lane)).collect()
    };
    let followers = left_of(&sql.park, conn, rows_of(&writes.back.park), &lanes).await?;
    if !followers.is_empty() {
        let missed = left_of(&sql.followers, conn, followers.clone(), &lanes).await?;
        written.locked.extend(followers.into_iter().filter(|row| !missed.contains(row)));
        written.missed = missed;
    }
    let delayed = left_of(&sql.turn, conn, rows_of(&writes.back.delay), &lanes).await?;
    written.locked.extend(delayed);
    let unwanted = rows_of(&writes.back.unpark);
    if !unwanted.is_empty() {
        sql.unpark.query().bind(seqs_of(&unwanted)).bind(lanes.clone()).execute(&mut *conn).await?;
    }
    let restored = rows_of(&writes.restored);
    if !restored.is_empty() {
        sql.mend.query().bind(seqs_of(&restored)).bind(lanes.clone()).execute(&mut *conn).await?;
    }
    let empty: Vec<&(Lane, String)> =
        writes.back.free.iter().filter(|(lane, _)| held.contains(lane)).collect();
    if !empty.is_empty() {
        // After the parking, which may just have put somebody behind one of them.
        let free = sql.free.query().bind(empty.iter().map(|(lane, _)| small(*lane)).collect::<Vec<i32>>());
        free.bind(empty.iter().map(|(_, key)| key.as_str()).collect::<Vec<_>>()).execute(&mut *conn).await?;
    }
    Ok(written)
}

/// Runs a statement over rows, and gives those that it did not answer with.
async fn left_of(
    statement: &Statement,
    conn: &mut PgConnection,
    rows: Vec<(Lane, Seq)>,
    lanes: &[i32],
) -> sqlx::Result<Vec<(Lane, Seq)>> {
    if rows.is_empty() {
        return Ok(rows);
    }
    let answered = statement.query().bind(seqs_of(&rows)).bind(lanes.to_vec()).fetch_all(conn).await?;
    let answered: HashSet<Seq> =
        answered.iter().map(|row| row.try_get(0).map(natural)).collect::<sqlx::Result<_>>()?;
    Ok(rows.into_iter().filter(|(_, seq)| !answered.contains(seq)).collect())
}

fn seqs_of(rows: &[(Lane, Seq)]) -> Vec<i64> {
    rows.iter().map(|(_, seq)| integer(*seq)).collect()
}
