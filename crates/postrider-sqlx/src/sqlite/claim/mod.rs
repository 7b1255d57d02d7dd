//! Claiming: reads what is due, chooses by the [rules](postrider_core::select) that all stores share, and writes back what it met on the way.
//!
//! The usual claim is one statement (`quick`). Any other reads in one snapshot: first the rows without their payloads (`rows`, `pages`, `scan`),
//! then the payloads of those that were chosen, so that memory is bounded by what the claim asked for. The writing is a transaction of its own, under
//! the lane's token, and asks again whether its reasons still hold.

mod pages;
mod quick;
mod rows;
mod scan;
mod state;
mod write;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use futures_util::TryStreamExt;
use postrider_core::{
    Timestamp,
    select::Budget,
    store::{Claim, Claimed, ClaimedEvent, Lane, LaneClaim, Seq},
    tx::Prefix,
};
use sqlx::{Connection, SqliteConnection};

use self::{quick::Quickly, write::Writes};
use super::{
    lease,
    row::{self, Stored},
    statement::{Statement, json},
};

/// The statements of this folder.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) quick: Statement,
    pub(super) state: Statement,
    pub(super) rows: rows::Statements,
    pub(super) read: Statement,
    pub(super) write: write::Statements,
    /// Whether the last claim with an admission skipped most rows. Then the next one reads no payloads on its way.
    skips_most: AtomicBool,
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
            rows: rows::Statements::new(prefix),
            read: Statement::new(&read, prefix),
            write: write::Statements::new(prefix),
            skips_most: AtomicBool::new(false),
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
    let quick = match asks && sql.skips_most.load(Relaxed) {
        true => None,
        false => quick::claim(&sql.quick, conn, claim, now).await?,
    };
    let (mut claimed, writes, skipped) = match quick {
        Some(Quickly { claimed, writes, skipped, rest: None }) => (claimed, vec![writes], skipped),
        Some(Quickly { claimed, writes, skipped, rest: Some((lane, budget)) }) => {
            let (claimed, mut all, more) = carefully(sql, conn, claim, &[lane], budget, claimed).await?;
            all.push(writes);
            (claimed, all, skipped + more)
        }
        None => {
            let budget = Budget::new(claim.limit, claim.bytes);
            let claimed = Claimed { now, ..Claimed::default() };
            carefully(sql, conn, claim, &claim.lanes, budget, claimed).await?
        }
    };
    if asks {
        sql.skips_most.store(skipped > claimed.events.len(), Relaxed);
    }
    write::write(&sql.write, leases, conn, &writes, &mut claimed).await?;
    let lost = &claimed.lost;
    claimed.events.retain(|event| !lost.contains(&event.lane));
    claimed.positions.retain(|(lane, _)| !lost.contains(lane));
    claimed.again.retain(|(lane, _)| !lost.contains(lane));
    Ok(claimed)
}

/// Reads in one snapshot, whatever there is, and adds it to what was claimed. Returns what has to be written and how many rows were skipped.
async fn carefully(
    sql: &Statements,
    conn: &mut SqliteConnection,
    claim: &Claim,
    lanes: &[LaneClaim],
    mut budget: Budget,
    mut claimed: Claimed,
) -> sqlx::Result<(Claimed, Vec<Writes>, usize)> {
    let now = claimed.now;
    let (mut writes, mut skipped) = (Vec::new(), 0);
    let mut snapshot = conn.begin().await?;
    for lane in lanes {
        let state = state::state(&sql.state, &mut snapshot, &lane.lease, now).await?;
        let Some(state) = state.filter(|state| state.is_held(&lane.lease)) else {
            claimed.lost.push(lane.lease.lane);
            continue;
        };
        let (selection, of_lane) =
            scan::scan(&sql.rows, &mut snapshot, claim, lane, state, &mut budget, &mut claimed).await?;
        skipped += selection.skipped();
        let chosen = selection.into_chosen().map(|(row, held)| (row.facts.seq, held)).collect();
        read(sql, &mut snapshot, lane.lease.lane, &chosen, &mut claimed.events).await?;
        writes.push(of_lane);
    }
    snapshot.commit().await?;
    Ok((claimed, writes, skipped))
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
