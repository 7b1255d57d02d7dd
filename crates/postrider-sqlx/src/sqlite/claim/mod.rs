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

use std::collections::BTreeMap;

use futures_util::TryStreamExt;
use postrider_core::{
    Timestamp,
    store::{Claim, Claimed, ClaimedEvent, Lane, Seq},
    tx::Prefix,
};
use sqlx::{Connection, SqliteConnection};

use self::write::Findings;
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
    let (mut claimed, findings) = match quick::claim(&sql.quick, conn, claim, now).await? {
        Some((claimed, findings)) => (claimed, vec![findings]),
        None => carefully(sql, conn, claim, now).await?,
    };
    write::write(&sql.write, leases, conn, &findings, &mut claimed).await?;
    let lost = &claimed.lost;
    claimed.events.retain(|event| !lost.contains(&event.lane));
    claimed.positions.retain(|(lane, _)| !lost.contains(lane));
    claimed.again.retain(|(lane, _)| !lost.contains(lane));
    Ok(claimed)
}

/// Reads in one snapshot, whatever there is.
async fn carefully(
    sql: &Statements,
    conn: &mut SqliteConnection,
    claim: &Claim,
    now: Timestamp,
) -> sqlx::Result<(Claimed, Vec<Findings>)> {
    let mut claimed = Claimed { now, ..Claimed::default() };
    let mut budget = Budget::new(claim.limit, claim.bytes);
    let mut findings = Vec::new();
    let mut snapshot = conn.begin().await?;
    for lane in &claim.lanes {
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
