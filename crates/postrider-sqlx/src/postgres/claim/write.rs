//! What a claim writes down: followers are parked, delayed events wait, what comes back unwanted lies among the others again,
//! keys that nothing is left of are free, and restored rows name no transaction of this server.
//!
//! The lanes are locked first, so that no settle of them runs meanwhile, and each statement then asks again for what the look saw,
//! because it may be over by now. Nobody else's lock stops a claim: what is locked is left out, and the claim names it to be met again.

use std::collections::HashSet;

use postrider_core::store::{Claim, Lane, Lease, Seq};
use sqlx::{PgConnection, Row};

use super::{
    super::{
        lease::{self, Fence},
        statement::{Shape, Statement, integer, natural, small},
    },
    look::{Freed, Look, Seen, State},
    stream::Stream,
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

/// What a look at one lane found to be written.
#[derive(Debug)]
pub(in super::super) struct Findings {
    pub(super) lease: Lease,
    pub(super) followers: Vec<Seq>,
    pub(super) delayed: Vec<Seq>,
    /// What came back and is not wanted.
    pub(super) unwanted: Vec<Seq>,
    /// Keys that nothing is parked behind.
    pub(super) empty: Vec<String>,
    /// What names a transaction of another server, and stays. When that of this one is over, it would seem to have been inserted by it.
    pub(super) restored: Vec<Seq>,
}

impl Findings {
    pub(super) fn is_empty(&self) -> bool {
        self.followers.is_empty()
            && self.delayed.is_empty()
            && self.unwanted.is_empty()
            && self.empty.is_empty()
            && self.restored.is_empty()
    }
}

/// What has to be written down, lane by lane; of a usual claim nothing.
pub(super) fn find(
    claim: &Claim,
    look: &Look,
    streams: &[&Stream],
    returning: &Stream,
    empty: &[Freed],
) -> Vec<Findings> {
    let met: Vec<&Seen> = streams.iter().flat_map(|stream| stream.met()).collect();
    let to_park = |seen: &Seen| matches!(seen.state, State::Follower { .. });
    let to_wait = |seen: &Seen| seen.state == State::Delayed;
    let taken: HashSet<Seq> = match look.restored.is_empty() {
        true => HashSet::new(),
        false => streams.iter().flat_map(|stream| stream.taken()).map(|seen| seen.seq).collect(),
    };
    let to_mend = |seen: &Seen| look.restored.contains(&seen.seq) && !taken.contains(&seen.seq);
    if empty.is_empty()
        && returning.refused().next().is_none()
        && !met.iter().any(|seen| to_park(seen) || to_wait(seen) || to_mend(seen))
    {
        return Vec::new();
    }
    let of_lane = |lease: Lease| {
        let seqs = |wanted: &dyn Fn(&Seen) -> bool| -> Vec<Seq> {
            let ours = met.iter().filter(|seen| seen.lane == lease.lane && wanted(seen));
            ours.map(|seen| seen.seq).collect()
        };
        let freed = empty.iter().filter(|freed| freed.lane == lease.lane);
        let refused = returning.refused().filter(|seen| seen.lane == lease.lane);
        Findings {
            lease,
            followers: seqs(&to_park),
            delayed: seqs(&to_wait),
            unwanted: refused.map(|seen| seen.seq).collect(),
            empty: freed.map(|freed| freed.key.clone()).collect(),
            restored: seqs(&to_mend),
        }
    };
    let held = claim.lanes.iter().map(|lane| lane.lease).filter(|lease| look.lanes.contains_key(&lease.lane));
    held.map(of_lane).filter(|findings| !findings.is_empty()).collect()
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
    pub(in super::super) fn nothing(findings: &[Findings]) -> Self {
        let mut written = Self::default();
        findings.iter().for_each(|found| written.leave(found));
        written
    }

    /// Leaves what a lane has for later. Parked rows and empty keys are met again by themselves.
    fn leave(&mut self, found: &Findings) {
        let rows = found.followers.iter().chain(&found.delayed);
        self.locked.extend(rows.map(|seq| (found.lease.lane, *seq)));
    }
}

/// Writes what was found, in one transaction and only for lanes that are still held. Rows that another session has locked are never waited
/// for, and lanes as `locked` says.
pub(super) async fn write(
    sql: &Statements,
    leases: &lease::Statements,
    conn: &mut PgConnection,
    findings: &[Findings],
    locked: Locked,
) -> sqlx::Result<Written> {
    let named = findings.iter().map(|found| found.lease);
    let fence = match locked {
        Locked::Wait => Fence { lost: lease::lock(leases, conn, named).await?, ..Fence::default() },
        Locked::Skip => lease::lock_some(leases, conn, named).await?,
    };
    let mut written = Written { lost: fence.lost, locked_lanes: fence.locked, ..Written::default() };
    let (mut held, mut of_locked) = (Vec::with_capacity(findings.len()), Vec::new());
    for found in findings.iter().filter(|found| !written.lost.contains(&found.lease.lane)) {
        match written.locked_lanes.contains(&found.lease.lane) {
            true => of_locked.push(found),
            false => held.push(found),
        }
    }
    of_locked.into_iter().for_each(|found| written.leave(found));
    let lanes: Vec<i32> = held.iter().map(|found| small(found.lease.lane)).collect();
    let rows_of = |of: fn(&Findings) -> &Vec<Seq>| -> Vec<(Lane, Seq)> {
        let rows = held.iter().flat_map(|found| of(found).iter().map(|seq| (found.lease.lane, *seq)));
        rows.collect()
    };
    let followers = left_of(&sql.park, conn, rows_of(|found| &found.followers), &lanes).await?;
    if !followers.is_empty() {
        let missed = left_of(&sql.followers, conn, followers.clone(), &lanes).await?;
        written.locked.extend(followers.into_iter().filter(|row| !missed.contains(row)));
        written.missed = missed;
    }
    let delayed = left_of(&sql.turn, conn, rows_of(|found| &found.delayed), &lanes).await?;
    written.locked.extend(delayed);
    let unwanted = rows_of(|found| &found.unwanted);
    if !unwanted.is_empty() {
        sql.unpark.query().bind(seqs_of(&unwanted)).bind(lanes.clone()).execute(&mut *conn).await?;
    }
    let restored = rows_of(|found| &found.restored);
    if !restored.is_empty() {
        sql.mend.query().bind(seqs_of(&restored)).bind(lanes.clone()).execute(&mut *conn).await?;
    }
    let empty = || {
        held.iter().flat_map(|found| found.empty.iter().map(|key| (small(found.lease.lane), key.as_str())))
    };
    if empty().next().is_some() {
        // After the parking, which may just have put somebody behind one of them.
        let free = sql.free.query().bind(empty().map(|(lane, _)| lane).collect::<Vec<i32>>());
        free.bind(empty().map(|(_, key)| key).collect::<Vec<_>>()).execute(&mut *conn).await?;
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
