//! Claiming: look at what is due, choose, read it, and write down what was met on the way.
//!
//! Everything is read in one snapshot: first a glance at the rows without their payloads, then the payloads of those that
//! were chosen, so that memory is bounded by what the claim asked for. The writing is a transaction of its own, under
//! the lane's token, and asks again whether its reasons still hold.

mod choose;
mod scan;
mod write;

use std::collections::{BTreeMap, HashSet};

use futures_util::TryStreamExt;
use postrider_core::{
    Timestamp,
    store::{Claim, Claimed, ClaimedEvent, Lane, LaneClaim, Position, Seq},
    tx::Prefix,
};
use sqlx::{Connection, Row, SqliteConnection};

use self::{
    choose::{Budget, Candidate, choose},
    scan::{Met, Returning, Scanner, Verdict},
    write::Findings,
};
use super::{
    lease, row,
    statement::{Statement, json, natural},
};

/// The statements of this folder.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) scan: scan::Statements,
    pub(super) read: Statement,
    pub(super) write: write::Statements,
}

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        Self {
            scan: scan::Statements::new(prefix),
            read: Statement::new(
                &format!(
                    "SELECT {} FROM {{p}}event WHERE seq IN (SELECT value FROM json_each(?1)) ORDER BY seq",
                    row::columns()
                ),
                prefix,
            ),
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
    let mut claimed = Claimed { now, ..Claimed::default() };
    let mut budget = Budget::new(claim.limit, claim.bytes);
    let mut findings = Vec::new();

    let mut snapshot = conn.begin().await?;
    claimed.lost = lease::lost(leases, &mut snapshot, claim.lanes.iter().map(|lane| lane.lease)).await?;
    for lane in &claim.lanes {
        if claimed.lost.contains(&lane.lease.lane) {
            continue;
        }
        let scanner = Scanner {
            sql: &sql.scan,
            lane: lane.lease.lane,
            now,
            in_flight: &claim.in_flight,
            candidates_max: budget.events(),
        };
        let found = look(&scanner, &mut snapshot, lane, &mut budget, &mut claimed).await?;
        read(sql, &mut snapshot, &found.chosen, &mut claimed.events).await?;
        findings.push(found.findings);
    }
    snapshot.commit().await?;

    write::write(&sql.write, leases, conn, &findings, &mut claimed).await?;
    let lost = &claimed.lost;
    claimed.events.retain(|event| !lost.contains(&event.lane));
    claimed.positions.retain(|(lane, _)| !lost.contains(lane));
    claimed.again.retain(|(lane, _)| !lost.contains(lane));
    Ok(claimed)
}

/// What a look at one lane found.
struct Found {
    /// What is returned, in the order of `seq`, and whether its key is held.
    chosen: BTreeMap<Seq, Candidate>,
    findings: Findings,
}

/// Scans one lane and chooses; notes in `claimed` where the next claim begins.
async fn look(
    scanner: &Scanner<'_>,
    conn: &mut SqliteConnection,
    lane: &LaneClaim,
    budget: &mut Budget,
    claimed: &mut Claimed,
) -> sqlx::Result<Found> {
    let mut again = scanner.again(conn, &lane.again).await?;
    let mut fresh = scanner.fresh(conn, lane.from.seq).await?;
    let already: HashSet<Seq> = again.met.iter().map(|met| met.seq).collect();
    let mut waiting = scanner.waiting(conn, lane.from, &already).await?;
    let Returning { candidates: mut returning, empty, mut more } =
        scanner.returning(conn, lane.from.met).await?;
    // What is about to be parked behind a key that comes back may be the first of what does: the next claim sees it.
    if again.met.iter().any(|met| matches!(met.verdict, Verdict::Park { returning: true })) {
        more |= !returning.is_empty();
        returning.clear();
    }
    let next_due = scanner.next_due(conn).await?;

    // Those that are looked at once more lie below the fresh ones, so one after the other they are in order.
    let (again_due, waiting_due) = (again.candidates(), waiting.candidates());
    let fresh_due = [again_due.clone(), fresh.candidates()].concat();
    let taken = choose(&fresh_due, &waiting_due, &returning, budget);

    let passed_over = again.cut_after(taken.fresh.min(again_due.len()));
    claimed.again.extend(passed_over.iter().map(|met| (scanner.lane, met.seq)));
    fresh.cut_after(taken.fresh.saturating_sub(again_due.len()));
    waiting.cut_after(taken.waiting);

    let seq = fresh.met.last().map_or(lane.from.seq, |met| met.seq);
    // What was parked by now was met on the way, so at the end everything was.
    let met = if fresh.stopped { seq } else { Seq::MAX };
    let position = Position { seq, met, ..due_cursor(&waiting, lane.from) };
    claimed.positions.push((scanner.lane, position));

    let met = || [&again, &fresh, &waiting].into_iter().flat_map(|scan| &scan.met);
    let findings = Findings::new(lane.lease, met(), empty);
    let left = again.stopped || fresh.stopped || waiting.stopped || taken.returning < returning.len();
    // What is parked behind a key that is free already is due as soon as it is parked.
    claimed.more |= more || left || met().any(|met| matches!(met.verdict, Verdict::Park { returning: true }));

    let turned = met().filter(|met| matches!(met.verdict, Verdict::Turn)).map(|met| met.available_at);
    let until = turned.chain(next_due).min().map(|due| due.since(scanner.now));
    claimed.next_due = claimed.next_due.into_iter().chain(until).min();

    let chosen = fresh_due.iter().take(taken.fresh);
    let chosen = chosen.chain(waiting_due.iter().take(taken.waiting));
    let chosen = chosen.chain(returning.iter().take(taken.returning));
    Ok(Found { chosen: chosen.map(|candidate| (candidate.seq, *candidate)).collect(), findings })
}

/// Where the next claim goes on among the waiting events: behind the last one met, or at the start if this one came to
/// the end of what is due.
fn due_cursor(waiting: &scan::Scan, from: Position) -> Position {
    match waiting.met.last() {
        _ if !waiting.stopped => Position::START,
        Some(&Met { seq, available_at, .. }) => Position { due_at: available_at, due_seq: seq, ..from },
        None => from,
    }
}

/// Reads the events that were chosen, payloads and all.
async fn read(
    sql: &Statements,
    conn: &mut SqliteConnection,
    chosen: &BTreeMap<Seq, Candidate>,
    events: &mut Vec<ClaimedEvent>,
) -> sqlx::Result<()> {
    if chosen.is_empty() {
        return Ok(());
    }
    let seqs: Vec<Seq> = chosen.keys().copied().collect();
    let mut rows = sql.read.query().bind(json(&seqs)?).fetch(conn);
    while let Some(row) = rows.try_next().await? {
        let seq: Seq = natural(row.try_get("seq")?);
        events.push(ClaimedEvent {
            lane: natural::<Lane>(row.try_get("lane")?),
            seq,
            attempts: natural(row.try_get("attempts")?),
            held: chosen.get(&seq).is_some_and(|candidate| candidate.held),
            created_at: Timestamp::from_micros(row.try_get("created_at")?),
            event: row::decode(&row),
        });
    }
    Ok(())
}
