//! Claiming: look at what is due, choose, read it, and write down what was met on the way.
//!
//! The usual claim is one statement (`quick`). Any other reads in one snapshot: first a glance at the rows without their
//! payloads (`glance`, `walk`), then the payloads of those that were chosen, so that memory is bounded by what the claim asked for.
//! The writing is a transaction of its own, under the lane's token, and asks again whether its reasons still hold.

mod glance;
mod judge;
mod look;
mod quick;
mod state;
mod walk;
mod write;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use futures_util::TryStreamExt;
use postrider_core::{
    Timestamp,
    store::{Claim, Claimed, ClaimedEvent, Lane, LaneClaim, Seq},
    tx::Prefix,
};
use sqlx::{Connection, SqliteConnection};

use self::{quick::Quickly, write::Findings};
use super::{
    lease,
    row::{self, Stored},
    statement::{Statement, json},
};
use crate::choose::Budget;

/// The statements of this folder.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) quick: Statement,
    pub(super) state: Statement,
    pub(super) glance: glance::Statements,
    pub(super) read: Statement,
    pub(super) write: write::Statements,
    /// Whether the last claim that asked met more rows that were not wanted than others. Then the next one reads no payloads on its way.
    passes_over: AtomicBool,
}

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let read = format!(
            "SELECT {} FROM {{p}}event AS e WHERE e.seq IN (SELECT value FROM json_each(?2)) AND +e.lane = ?1 ORDER BY e.seq",
            row::columns(&i64::MAX.to_string()),
        );
        Self {
            quick: quick::statement(prefix),
            state: state::statement(prefix),
            glance: glance::Statements::new(prefix),
            read: Statement::new(&read, prefix),
            write: write::Statements::new(prefix),
            passes_over: AtomicBool::new(false),
        }
    }
}

/// Reads due events of the lanes that one holds.
pub(super) async fn claim(
    sql: &Statements,
    leases: &lease::Statements,
    conn: &mut SqliteConnection,
    claim: &Claim,
) -> sqlx::Result<Claimed> {
    let now = Timestamp::now();
    let asks = claim.admission.is_some();
    let quick = match asks && sql.passes_over.load(Relaxed) {
        true => None,
        false => quick::claim(&sql.quick, conn, claim, now).await?,
    };
    let (mut claimed, findings) = match quick {
        Some(Quickly { claimed, findings, rest: None }) => (claimed, vec![findings]),
        Some(Quickly { claimed, findings, rest: Some((lane, budget)) }) => {
            let (claimed, mut found) = carefully(sql, conn, claim, &[lane], budget, claimed).await?;
            found.push(findings);
            (claimed, found)
        }
        None => {
            let budget = Budget::new(claim.limit, claim.bytes);
            let claimed = Claimed { now, ..Claimed::default() };
            carefully(sql, conn, claim, &claim.lanes, budget, claimed).await?
        }
    };
    if asks {
        let passed: usize = findings.iter().map(|found| found.passed).sum();
        sql.passes_over.store(passed > claimed.events.len(), Relaxed);
    }
    write::write(&sql.write, leases, conn, &findings, &mut claimed).await?;
    let lost = &claimed.lost;
    claimed.events.retain(|event| !lost.contains(&event.lane));
    claimed.positions.retain(|(lane, _)| !lost.contains(lane));
    claimed.again.retain(|(lane, _)| !lost.contains(lane));
    Ok(claimed)
}

/// Reads in one snapshot, whatever there is, and adds it to what was claimed.
async fn carefully(
    sql: &Statements,
    conn: &mut SqliteConnection,
    claim: &Claim,
    lanes: &[LaneClaim],
    mut budget: Budget,
    mut claimed: Claimed,
) -> sqlx::Result<(Claimed, Vec<Findings>)> {
    let now = claimed.now;
    let mut findings = Vec::new();
    let mut snapshot = conn.begin().await?;
    for lane in lanes {
        let state = state::state(&sql.state, &mut snapshot, &lane.lease, now).await?;
        let Some(state) = state.filter(|state| state.is_held(&lane.lease)) else {
            claimed.lost.push(lane.lease.lane);
            continue;
        };
        let (chosen, found) =
            look::look(&sql.glance, &mut snapshot, claim, lane, state, &mut budget, &mut claimed).await?;
        read(sql, &mut snapshot, lane.lease.lane, &chosen, &mut claimed.events).await?;
        findings.push(found);
    }
    snapshot.commit().await?;
    Ok((claimed, findings))
}

/// Reads the events that were chosen, payloads and all. Each comes with whether its key is held.
async fn read(
    sql: &Statements,
    conn: &mut SqliteConnection,
    lane: Lane,
    chosen: &BTreeMap<Seq, bool>,
    events: &mut Vec<ClaimedEvent>,
) -> sqlx::Result<()> {
    if chosen.is_empty() {
        return Ok(());
    }
    let seqs: Vec<Seq> = chosen.keys().copied().collect();
    let mut rows = sql.read.query().bind(lane).bind(json(&seqs)?).fetch(conn);
    while let Some(row) = rows.try_next().await? {
        let stored = Stored::new(&row)?;
        let held = chosen.get(&stored.seq()).is_some_and(|held| *held);
        events.push(claimed_event(lane, stored, held));
    }
    Ok(())
}

fn claimed_event(lane: Lane, row: Stored<'_>, held: bool) -> ClaimedEvent {
    ClaimedEvent {
        lane,
        seq: row.seq(),
        attempts: row.attempts(),
        held,
        created_at: row.created_at(),
        event: row.decode(),
    }
}
