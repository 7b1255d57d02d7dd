//! Settling: the fence, the rows, then the keys; one transaction.

use std::{collections::HashSet, time::Duration};

use postrider_core::{
    Timestamp,
    event::limits::clean_error,
    store::{Change, HoldReason, Lane, Lease, Seq, Settled, Settlement},
    tx::Prefix,
};
use sqlx::{Connection, Row, SqliteConnection};

use super::{
    lease,
    statement::{Statement, integer, json, natural},
};

/// The statements of this file. Lists come as JSON, so each of them runs once for a batch of any size.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) quick: Statement,
    pub(super) keep: Statement,
    pub(super) remove: Statement,
    pub(super) survivors: Statement,
    pub(super) change: Statement,
    pub(super) hold: Statement,
    pub(super) free: Statement,
    pub(super) release: Statement,
}

/// The columns that a delivered event keeps.
const KEPT: &str =
    "seq, lane, attempts, available_at, created_at, occurred_at, event_id, event_type, aggregate_type,
    aggregate_id, ordering_key, tenant_id, content_type, headers, last_error, payload, payload_bytes";

/// Delivered rows: only those that are neither dead nor of another lane, and that bear the id of an event that was delivered. A file that was
/// restored gives numbers again. The plus keeps SQLite from searching by the id.
const DELIVERED: &str = "FROM {p}event WHERE seq IN (SELECT value FROM json_each(?1))
    AND +event_id IN (SELECT value FROM json_each(?2))
    AND lane IN (SELECT value FROM json_each(?3)) AND status IN (0, 2)";

/// Holds that an event frees: its own, and those that are on their way out.
const FREED: &str = "
    SELECT h.rowid FROM json_each(?1) AS s JOIN {p}hold AS h
      ON h.lane = json_extract(s.value, '$[0]') AND h.effective_key = json_extract(s.value, '$[1]')
    WHERE (h.seq = json_extract(s.value, '$[2]') OR h.reason = 'returning')";

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let statement = |template: &str| Statement::new(template, prefix);
        Self {
            // One write, so it waits for the lock before it reads: the fence holds until its end. The plus keeps SQLite from
            // walking the whole lane instead of the few rows that are named.
            quick: statement(
                "DELETE FROM {p}event WHERE seq IN (SELECT value FROM json_each(?1)) AND +lane = ?2 AND status IN (0, 2)
                   AND +event_id IN (SELECT value FROM json_each(?5))
                   AND EXISTS (SELECT 1 FROM {p}lane WHERE lane = ?2 AND epoch = ?3 AND nonce = ?4)",
            ),
            // REPLACE, because a settle must not fail over what a restored backup left behind.
            keep: statement(&format!(
                "INSERT OR REPLACE INTO {{p}}done ({KEPT}, done_at) SELECT {KEPT}, ?4 {DELIVERED}"
            )),
            remove: statement(&format!("DELETE {DELIVERED}")),
            survivors: statement("SELECT seq FROM {p}event WHERE seq IN (SELECT value FROM json_each(?1))"),
            // The last conditions find a repeated settle: a wait that has begun is not begun anew before it is over, and an attempt
            // (status 0) is counted once. A count leaves its row where it is, and due, so that the wait which follows is told from
            // one that has begun.
            change: statement(
                "UPDATE {p}event AS e
                 SET status = iif(s.status = 0, e.status, s.status), attempts = s.attempts,
                     parked = iif(s.status = 0, e.parked, 0),
                     available_at = iif(s.status = 0, min(e.available_at, ?2), s.available_at),
                     last_error = coalesce(s.error, e.last_error)
                 FROM (SELECT json_extract(value, '$[0]') AS seq, json_extract(value, '$[1]') AS lane,
                              json_extract(value, '$[2]') AS status, json_extract(value, '$[3]') AS attempts,
                              json_extract(value, '$[4]') AS available_at, json_extract(value, '$[5]') AS error,
                              json_extract(value, '$[6]') AS event_id
                       FROM json_each(?1)) AS s
                 WHERE e.seq = s.seq AND e.lane = s.lane AND e.status IN (0, 2)
                   AND (s.event_id IS NULL OR +e.event_id = s.event_id)
                   AND NOT (s.status = 0 AND e.attempts >= s.attempts)
                   AND NOT (s.status = 2 AND e.status = 2 AND e.parked = 0 AND e.attempts = s.attempts
                            AND e.available_at > ?2)
                 RETURNING seq",
            ),
            hold: statement(
                "INSERT INTO {p}hold (lane, effective_key, seq, until, reason)
                 SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
                        json_extract(value, '$[3]'), json_extract(value, '$[4]')
                 FROM json_each(?1) WHERE true
                 ON CONFLICT (lane, effective_key)
                 DO UPDATE SET seq = excluded.seq, until = excluded.until, reason = excluded.reason",
            ),
            free: statement(&format!(
                "DELETE FROM {{p}}hold WHERE rowid IN ({FREED} AND NOT EXISTS (
                     SELECT 1 FROM {{p}}event AS e
                     WHERE e.lane = h.lane AND e.effective_key = h.effective_key AND e.parked = 1))"
            )),
            release: statement(&format!(
                "UPDATE {{p}}hold SET reason = 'returning', until = NULL
                 WHERE reason <> 'returning' AND rowid IN ({FREED})"
            )),
        }
    }
}

/// A key of a lane, and the event that frees it.
type Freed<'a> = (Lane, &'a str, Seq);

/// A key of a lane, the event that holds it, until when, and why.
type Held<'a> = (Lane, &'a str, Seq, Option<i64>, &'static str);

/// A row that waits or is dead: `seq`, lane, status, attempts, when it is due, what went wrong, and its id.
type Changed<'a> = (Seq, Lane, u8, u32, Option<i64>, Option<String>, Option<&'a str>);

/// Writes outcomes under the fence, all of them or none.
pub(super) async fn settle(
    sql: &Statements,
    lease_sql: &lease::Statements,
    conn: &mut SqliteConnection,
    leases: &[Lease],
    settlements: &[Settlement],
    retention: Duration,
) -> sqlx::Result<Settled> {
    if retention.is_zero()
        && let Some(applied) = quickly(sql, conn, leases, settlements).await?
    {
        return Ok(Settled { applied, ..Settled::default() });
    }
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    let mut lost = lease::lost(lease_sql, &mut tx, leases.iter().copied()).await?;
    // An outcome of a lane that nobody proved to hold is as lost as one that was taken away.
    let unproved = |lane: &Lane| !leases.iter().any(|lease| lease.lane == *lane);
    lost.extend(settlements.iter().map(|settlement| settlement.lane).filter(unproved));
    if !lost.is_empty() {
        lost.sort_unstable();
        lost.dedup();
        return Ok(Settled { lost, ..Settled::default() });
    }
    let now = Timestamp::now();
    let mut applied = deliver(sql, &mut tx, leases, settlements, retention, now).await?;
    let changed = change(sql, &mut tx, settlements, now).await?;
    applied += changed.len() as u64;
    settle_keys(sql, &mut tx, settlements, &changed, now).await?;
    tx.commit().await?;
    Ok(Settled { applied, ..Settled::default() })
}

/// The usual settle, in one statement: events of one lane were delivered, are not kept, and no hold stands on their keys.
/// None if it is not such a one. Where nothing was deleted, it is not known why, and nothing was written.
async fn quickly(
    sql: &Statements,
    conn: &mut SqliteConnection,
    leases: &[Lease],
    settlements: &[Settlement],
) -> sqlx::Result<Option<u64>> {
    let [Lease { lane, token }] = leases else { return Ok(None) };
    let usual = |s: &Settlement| s.change == Change::Done && s.lane == *lane && !s.held;
    if !settlements.iter().all(usual) {
        return Ok(None);
    }
    let done: Vec<Seq> = settlements.iter().map(|settlement| settlement.seq).collect();
    let query = sql.quick.query().bind(json(&done)?).bind(lane);
    let query = query.bind(integer(token.epoch)).bind(integer(token.nonce)).bind(delivered_ids(settlements)?);
    let deleted = query.execute(conn).await?.rows_affected();
    Ok(Some(deleted).filter(|deleted| *deleted > 0))
}

/// Moves or deletes what was delivered, and says how many there were.
async fn deliver(
    sql: &Statements,
    conn: &mut SqliteConnection,
    leases: &[Lease],
    settlements: &[Settlement],
    retention: Duration,
    now: Timestamp,
) -> sqlx::Result<u64> {
    let done: Vec<Seq> =
        settlements.iter().filter(|s| s.change == Change::Done).map(|settlement| settlement.seq).collect();
    if done.is_empty() {
        return Ok(0);
    }
    let (done, ids) = (json(&done)?, delivered_ids(settlements)?);
    let lanes = json(&leases.iter().map(|lease| lease.lane).collect::<Vec<_>>())?;
    if !retention.is_zero() {
        sql.keep
            .query()
            .bind(&done)
            .bind(&ids)
            .bind(&lanes)
            .bind(now.as_micros())
            .execute(&mut *conn)
            .await?;
    }
    Ok(sql.remove.query().bind(done).bind(ids).bind(lanes).execute(&mut *conn).await?.rows_affected())
}

/// Changes the rows that wait or are dead, and says which were.
async fn change(
    sql: &Statements,
    conn: &mut SqliteConnection,
    settlements: &[Settlement],
    now: Timestamp,
) -> sqlx::Result<HashSet<Seq>> {
    let changes: Vec<Changed<'_>> = settlements
        .iter()
        .filter_map(|settlement @ Settlement { lane, seq, change, .. }| match change {
            Change::Done => None,
            Change::Wait { after, attempts, error, .. } => {
                let error = error.as_deref().map(clean_error);
                let due = now.plus(*after).as_micros();
                Some((*seq, *lane, 2, *attempts, Some(due), error, comparable_id(settlement)))
            }
            Change::Attempt { attempts } => {
                Some((*seq, *lane, 0, *attempts, None, None, comparable_id(settlement)))
            }
            // It is never due, so its time says since when it is dead.
            Change::Dead { attempts, error, .. } => {
                let (since, error) = (Some(now.as_micros()), Some(clean_error(error)));
                Some((*seq, *lane, 3, *attempts, since, error, comparable_id(settlement)))
            }
        })
        .collect();
    if changes.is_empty() {
        return Ok(HashSet::new());
    }
    let query = sql.change.query().bind(json(&changes)?).bind(now.as_micros());
    query.fetch_all(conn).await?.iter().map(|row| row.try_get(0).map(natural)).collect()
}

/// The ids of what was delivered.
fn delivered_ids(settlements: &[Settlement]) -> sqlx::Result<String> {
    let done = settlements.iter().filter(|settlement| settlement.change == Change::Done);
    json(&done.map(|settlement| settlement.event_id.as_str()).collect::<Vec<_>>())
}

/// The id of an event, unless it was garbled when it was read: a text that is none is compared with nothing.
fn comparable_id(settlement: &Settlement) -> Option<&str> {
    Some(settlement.event_id.as_str()).filter(|id| !id.contains(['\0', char::REPLACEMENT_CHARACTER]))
}

/// Delivered heads whose rows are still there: they were dead before, and their keys wait for a person.
async fn survivors(
    sql: &Statements,
    conn: &mut SqliteConnection,
    settlements: &[Settlement],
) -> sqlx::Result<HashSet<Seq>> {
    let heads = settlements.iter().filter(|s| s.held && s.key.is_some() && s.change == Change::Done);
    let heads: Vec<Seq> = heads.map(|settlement| settlement.seq).collect();
    if heads.is_empty() {
        return Ok(HashSet::new());
    }
    let rows = sql.survivors.query().bind(json(&heads)?).fetch_all(conn).await?;
    rows.iter().map(|row| row.try_get(0).map(natural)).collect()
}

/// Frees and holds the keys of what was settled.
async fn settle_keys(
    sql: &Statements,
    conn: &mut SqliteConnection,
    settlements: &[Settlement],
    changed: &HashSet<Seq>,
    now: Timestamp,
) -> sqlx::Result<()> {
    let survivors = survivors(sql, conn, settlements).await?;
    let (mut freed, mut held) = (Vec::<Freed<'_>>::new(), Vec::<Held<'_>>::new());
    for settlement in settlements {
        let Some(key) = settlement.key.as_deref() else { continue };
        let (lane, seq) = (settlement.lane, settlement.seq);
        match &settlement.change {
            Change::Done if settlement.held && !survivors.contains(&seq) => freed.push((lane, key, seq)),
            Change::Wait { after, reason, .. } if changed.contains(&seq) => {
                held.push((lane, key, seq, Some(now.plus(*after).as_micros()), reason.as_str()));
            }
            Change::Dead { block: true, .. } if changed.contains(&seq) => {
                held.push((lane, key, seq, None, HoldReason::Dead.as_str()));
            }
            Change::Dead { block: false, .. } if settlement.held && changed.contains(&seq) => {
                freed.push((lane, key, seq));
            }
            _ => {}
        }
    }
    // Frees first: where one event of a key frees it and a later one holds it, it is held.
    if !freed.is_empty() {
        let freed = json(&freed)?;
        sql.free.query().bind(&freed).execute(&mut *conn).await?;
        sql.release.query().bind(freed).execute(&mut *conn).await?;
    }
    if !held.is_empty() {
        sql.hold.query().bind(json(&held)?).execute(&mut *conn).await?;
    }
    Ok(())
}
