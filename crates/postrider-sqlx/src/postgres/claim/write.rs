//! What a claim writes down: followers are parked, delayed events wait, what comes back unwanted lies among the others again, and
//! keys that nothing is left of are free.
//!
//! The lanes are locked first, so that no settle of them runs meanwhile, and each statement then asks again for what the look saw,
//! because it may be over by now.

use std::collections::HashSet;

use postrider_core::store::{Claim, Lane, Lease, Seq};
use sqlx::{PgConnection, Row};

use super::{
    super::{
        lease,
        statement::{Shape, Statement, integer, natural, small},
    },
    look::{Freed, Look, Seen, State},
    stream::Stream,
};

/// The number of the transaction, which gets one by it.
pub(super) const WHOAMI: &str = "SELECT pg_current_xact_id()::text::bigint";

/// The statements of this file.
#[derive(Debug)]
pub(in super::super) struct Statements {
    pub(in super::super) park: Statement,
    pub(in super::super) turn: Statement,
    pub(in super::super) unpark: Statement,
    pub(in super::super) free: Statement,
    whoami: Statement,
}

impl Statements {
    pub(super) fn new(shape: &Shape) -> Self {
        let statement = |template| Statement::new(template, shape);
        Self {
            park: statement(
                "UPDATE {p}event AS e SET parked = true
                 WHERE e.seq = ANY ($1::bigint[]) AND e.lane = ANY ($2::integer[]) AND e.status IN (0, 2) AND NOT e.parked
                   AND EXISTS (SELECT 1 FROM {p}hold AS h
                               WHERE h.lane = e.lane AND h.effective_key = {key} AND h.seq <> e.seq)
                 RETURNING e.seq",
            ),
            turn: statement(
                "UPDATE {p}event AS e SET status = 2
                 WHERE e.seq = ANY ($1::bigint[]) AND e.lane = ANY ($2::integer[]) AND e.status = 0 AND NOT e.parked",
            ),
            unpark: statement(
                "UPDATE {p}event AS e SET parked = false
                 WHERE e.seq = ANY ($1::bigint[]) AND e.lane = ANY ($2::integer[]) AND e.parked",
            ),
            free: statement(
                "DELETE FROM {p}hold AS h USING unnest($1::integer[], $2::text[]) AS f (lane, key)
                 WHERE h.lane = f.lane AND h.effective_key = f.key AND h.reason = 'returning'
                   AND NOT EXISTS (SELECT 1 FROM {p}event AS e
                                   WHERE e.lane = h.lane AND {key} = h.effective_key AND e.parked)",
            ),
            whoami: statement(WHOAMI),
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
}

impl Findings {
    pub(super) fn is_empty(&self) -> bool {
        self.followers.is_empty()
            && self.delayed.is_empty()
            && self.unwanted.is_empty()
            && self.empty.is_empty()
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
    if empty.is_empty()
        && returning.refused().next().is_none()
        && !met.iter().any(|seen| to_park(seen) || to_wait(seen))
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
    /// Followers whose key was freed in between, so that they are due; but they were met, and nobody would look at them again.
    pub(in super::super) missed: Vec<(Lane, Seq)>,
    /// The number of the transaction.
    pub(in super::super) xid: i64,
}

/// Writes what was found, in one transaction and only for lanes that are still held.
pub(super) async fn write(
    sql: &Statements,
    leases: &lease::Statements,
    conn: &mut PgConnection,
    findings: &[Findings],
) -> sqlx::Result<Written> {
    let lost = lease::lock(leases, conn, findings.iter().map(|found| found.lease)).await?;
    let held = || findings.iter().filter(|found| !lost.contains(&found.lease.lane));
    let lanes: Vec<i32> = held().map(|found| small(found.lease.lane)).collect();
    let seqs = |of: fn(&Findings) -> &Vec<Seq>| -> Vec<i64> {
        held().flat_map(of).map(|seq| integer(*seq)).collect()
    };
    let mut missed = Vec::new();
    let followers = seqs(|found| &found.followers);
    if !followers.is_empty() {
        let rows = sql.park.query().bind(followers).bind(lanes.clone()).fetch_all(&mut *conn).await?;
        let parked: HashSet<Seq> =
            rows.iter().map(|row| row.try_get(0).map(natural)).collect::<sqlx::Result<_>>()?;
        let of_lane = |found: &Findings| -> Vec<(Lane, Seq)> {
            found.followers.iter().map(|seq| (found.lease.lane, *seq)).collect()
        };
        missed = held().flat_map(of_lane).filter(|(_, seq)| !parked.contains(seq)).collect();
    }
    for (statement, seqs) in
        [(&sql.turn, seqs(|found| &found.delayed)), (&sql.unpark, seqs(|found| &found.unwanted))]
    {
        if !seqs.is_empty() {
            statement.query().bind(seqs).bind(lanes.clone()).execute(&mut *conn).await?;
        }
    }
    let empty =
        || held().flat_map(|found| found.empty.iter().map(|key| (small(found.lease.lane), key.as_str())));
    if empty().next().is_some() {
        // After the parking, which may just have put somebody behind one of them.
        let free = sql.free.query().bind(empty().map(|(lane, _)| lane).collect::<Vec<i32>>());
        free.bind(empty().map(|(_, key)| key).collect::<Vec<_>>()).execute(&mut *conn).await?;
    }
    let xid = sql.whoami.query().fetch_one(conn).await?.try_get(0)?;
    Ok(Written { lost, missed, xid })
}
