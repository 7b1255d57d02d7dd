//! What a claim writes down: followers are parked, delayed events wait, and keys that nothing is left of are free.

use std::collections::HashSet;

use postrider_core::{
    store::{Claimed, Lease, Seq},
    tx::Prefix,
};
use sqlx::{Connection, Row, SqliteConnection};

use super::{
    super::{
        lease,
        statement::{Statement, json, natural},
    },
    scan::{Met, Verdict},
};

/// The statements of this file. Each asks again for what the snapshot said, because it may be over by now. The plus
/// before a lane keeps SQLite from walking the whole lane instead of the few rows that are named.
#[derive(Debug)]
pub(in super::super) struct Statements {
    pub(in super::super) park: Statement,
    pub(in super::super) turn: Statement,
    pub(in super::super) free: Statement,
}

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let statement = |template| Statement::new(template, prefix);
        Self {
            park: statement(
                "UPDATE {p}event AS e SET parked = 1
                 WHERE e.seq IN (SELECT value FROM json_each(?1)) AND +e.lane = ?2
                   AND e.status IN (0, 2) AND e.parked = 0
                   AND EXISTS (SELECT 1 FROM {p}hold AS h
                               WHERE h.lane = e.lane AND h.effective_key = e.effective_key AND h.seq <> e.seq)
                 RETURNING seq",
            ),
            turn: statement(
                "UPDATE {p}event SET status = 2
                 WHERE seq IN (SELECT value FROM json_each(?1)) AND +lane = ?2 AND status = 0 AND parked = 0",
            ),
            free: statement(
                "DELETE FROM {p}hold AS h
                 WHERE h.rowid IN (SELECT value FROM json_each(?1)) AND +h.lane = ?2 AND h.reason = 'returning'
                   AND NOT EXISTS (SELECT 1 FROM {p}event AS e WHERE e.lane = h.lane
                                   AND e.effective_key = h.effective_key AND e.parked = 1)",
            ),
        }
    }
}

/// What a look at one lane found to be written.
#[derive(Debug)]
pub(super) struct Findings {
    lease: Lease,
    followers: Vec<Seq>,
    delayed: Vec<Seq>,
    /// Row ids of holds that nothing is parked behind.
    empty: Vec<i64>,
}

impl Findings {
    pub(super) fn new<'a>(lease: Lease, met: impl Iterator<Item = &'a Met>, empty: Vec<i64>) -> Self {
        let (mut followers, mut delayed) = (Vec::new(), Vec::new());
        for met in met {
            match met.verdict {
                Verdict::Park { .. } => followers.push(met.seq),
                Verdict::Turn => delayed.push(met.seq),
                Verdict::Return(_) | Verdict::Pass => {}
            }
        }
        Self { lease, followers, delayed, empty }
    }

    fn is_empty(&self) -> bool {
        self.followers.is_empty() && self.delayed.is_empty() && self.empty.is_empty()
    }
}

/// Writes what was found, if anything was, in one transaction and only for lanes that are still held.
pub(super) async fn write(
    sql: &Statements,
    leases: &lease::Statements,
    conn: &mut SqliteConnection,
    findings: &[Findings],
    claimed: &mut Claimed,
) -> sqlx::Result<()> {
    if findings.iter().all(Findings::is_empty) {
        return Ok(());
    }
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    let lost = lease::lost(leases, &mut tx, findings.iter().map(|found| found.lease)).await?;
    for found in findings.iter().filter(|found| !lost.contains(&found.lease.lane)) {
        write_lane(sql, &mut tx, found, claimed).await?;
    }
    tx.commit().await?;
    claimed.lost.extend(lost);
    Ok(())
}

async fn write_lane(
    sql: &Statements,
    conn: &mut SqliteConnection,
    found: &Findings,
    claimed: &mut Claimed,
) -> sqlx::Result<()> {
    let lane = found.lease.lane;
    if !found.followers.is_empty() {
        let park = sql.park.query().bind(json(&found.followers)?).bind(lane);
        let rows = park.fetch_all(&mut *conn).await?;
        let parked: HashSet<Seq> =
            rows.iter().map(|row| row.try_get(0).map(natural)).collect::<sqlx::Result<_>>()?;
        // Their key was freed in between, so they are due; but they were met, and nobody would look at them again.
        let missed = found.followers.iter().filter(|seq| !parked.contains(seq));
        let known = claimed.again.len();
        claimed.again.extend(missed.map(|&seq| (lane, seq)));
        claimed.more |= claimed.again.len() > known;
    }
    if !found.delayed.is_empty() {
        sql.turn.query().bind(json(&found.delayed)?).bind(lane).execute(&mut *conn).await?;
    }
    if !found.empty.is_empty() {
        // After the parking, which may just have put somebody behind one of them.
        sql.free.query().bind(json(&found.empty)?).bind(lane).execute(&mut *conn).await?;
    }
    Ok(())
}
