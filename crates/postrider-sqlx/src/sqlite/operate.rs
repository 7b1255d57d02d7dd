//! What operators see and do.

use std::time::Duration;

use postrider_core::{
    EventId, Timestamp,
    store::{DeadLetter, EventStatus, Hold, HoldReason, Instances, Seq, Stats},
    tx::Prefix,
};
use sqlx::{Connection, Row, SqliteConnection, sqlite::SqliteRow};

use super::{
    Inner,
    statement::{Statement, integer, json, natural},
};

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) dead: Statement,
    pub(super) redrive_holds: Statement,
    pub(super) redrive: Statement,
    pub(super) discard_holds: Statement,
    pub(super) discard: Statement,
    pub(super) purge: Statement,
    pub(super) stats: Statement,
    pub(super) oldest: Statement,
    pub(super) status: Statement,
    pub(super) done: Statement,
    pub(super) why: Statement,
    pub(super) instances: Statement,
}

/// The dead events of these ids.
const DEAD: &str = "e.status = 3 AND e.event_id IN (SELECT value FROM json_each(?1))";

/// The hold that a dead event stands at the head of.
const ITS_HOLD: &str = "h.lane = e.lane AND h.effective_key = e.effective_key AND h.seq = e.seq";

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let statement = |template: &str| Statement::new(template, prefix);
        Self {
            dead: statement(&format!(
                "SELECT e.seq, e.event_id, e.event_type, e.effective_key, e.attempts, e.last_error, e.created_at,
                        e.available_at AS died_at, EXISTS (SELECT 1 FROM {{p}}hold AS h
                                WHERE {ITS_HOLD} AND h.reason <> 'returning') AS blocks
                 FROM {{p}}event AS e WHERE e.status = 3 AND e.seq > ?1 ORDER BY e.seq LIMIT ?2"
            )),
            redrive_holds: statement(&format!(
                "UPDATE {{p}}hold AS h SET reason = 'retry', until = ?2 FROM {{p}}event AS e
                 WHERE {DEAD} AND {ITS_HOLD}"
            )),
            redrive: statement(&format!(
                "UPDATE {{p}}event AS e SET status = 2, attempts = 0, available_at = ?2 WHERE {DEAD}"
            )),
            // Even where nothing is parked: a claim sees to that, and it alone deletes such holds.
            discard_holds: statement(&format!(
                "UPDATE {{p}}hold AS h SET reason = 'returning', until = NULL FROM {{p}}event AS e
                 WHERE {DEAD} AND {ITS_HOLD}"
            )),
            discard: statement(&format!("DELETE FROM {{p}}event AS e WHERE {DEAD}")),
            purge: statement(
                "DELETE FROM {p}done WHERE seq IN (
                     SELECT seq FROM {p}done WHERE done_at <= ?1 ORDER BY done_at LIMIT ?2)",
            ),
            // Each line counts a partial index of its own and reads no row of the table.
            stats: statement(
                "SELECT fresh.n AS fresh, waiting.n AS waiting, waiting.due AS due, parked.n AS parked,
                        (SELECT count(*) FROM {p}event WHERE status = 3) AS dead,
                        (SELECT count(*) FROM {p}hold) AS held_keys,
                        (SELECT count(*) FROM {p}hold WHERE reason = 'returning') AS freed,
                        (SELECT count(*) FROM {p}done) AS done,
                        nullif(min(ifnull(fresh.first, ?1), ifnull(waiting.first, ?1), ifnull(parked.first, ?1)), ?1)
                            AS first
                 FROM (SELECT count(*) AS n, min(seq) AS first FROM {p}event WHERE status = 0 AND parked = 0) AS fresh,
                      (SELECT count(*) AS n, min(seq) AS first, count(*) FILTER (WHERE available_at <= ?2) AS due
                       FROM {p}event WHERE status = 2 AND parked = 0) AS waiting,
                      (SELECT count(*) AS n, min(seq) AS first FROM {p}event WHERE parked = 1) AS parked",
            ),
            oldest: statement("SELECT created_at FROM {p}event WHERE seq = ?1"),
            status: statement(
                "SELECT status, parked, attempts, available_at, max(created_at, ?2) < available_at AS delayed, last_error
                 FROM {p}event WHERE event_id = ?1",
            ),
            done: statement("SELECT max(done_at) FROM {p}done WHERE event_id = ?1"),
            why: statement(
                "SELECT h.lane, h.seq, h.until, h.reason,
                        (SELECT count(*) FROM {p}event AS e WHERE e.lane = h.lane
                         AND e.effective_key = h.effective_key AND e.parked = 1) AS parked
                 FROM {p}hold AS h
                 WHERE h.lane IN (SELECT lane FROM {p}lane) AND h.effective_key = ?1",
            ),
            instances: statement(
                "SELECT CASE WHEN leased_until > ?1 THEN owner END AS name, lane, leased_until AS until FROM {p}lane
                 UNION ALL
                 SELECT instance, NULL, until FROM {p}member WHERE until > ?1",
            ),
        }
    }
}

/// Dead letters in the order of `seq`.
pub(super) async fn dead(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut SqliteConnection,
    after: Seq,
    limit: usize,
) -> sqlx::Result<Vec<DeadLetter>> {
    let query = sql.dead.query().bind(integer(after)).bind(integer(limit));
    query.fetch_all(conn).await?.iter().map(dead_letter).collect()
}

fn dead_letter(row: &SqliteRow) -> sqlx::Result<DeadLetter> {
    Ok(DeadLetter {
        seq: natural(row.try_get("seq")?),
        id: text(row, "event_id")?.unwrap_or_default().into(),
        event_type: text(row, "event_type")?.unwrap_or_default(),
        key: text(row, "effective_key")?,
        attempts: natural(row.try_get("attempts")?),
        error: text(row, "last_error")?.unwrap_or_default(),
        blocks: row.try_get("blocks")?,
        created_at: Timestamp::from_micros(row.try_get("created_at")?),
        died_at: Some(Timestamp::from_micros(row.try_get("died_at")?)),
    })
}

/// A text, whatever is in it: an undecodable row is just what an operator has to see.
pub(super) fn text(row: &SqliteRow, column: &str) -> sqlx::Result<Option<String>> {
    let bytes = row.try_get_unchecked::<Option<&[u8]>, _>(column)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

/// Makes dead events due again; their keys wait for them as before.
pub(super) async fn redrive(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut SqliteConnection,
    ids: &[EventId],
) -> sqlx::Result<u64> {
    let ids = id_list(ids)?;
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    let now = Timestamp::now().as_micros();
    sql.redrive_holds.query().bind(&ids).bind(now).execute(&mut *tx).await?;
    let redriven = sql.redrive.query().bind(ids).bind(now).execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    Ok(redriven)
}

/// Deletes dead events and lets those behind them come back.
pub(super) async fn discard(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut SqliteConnection,
    ids: &[EventId],
) -> sqlx::Result<u64> {
    let ids = id_list(ids)?;
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    sql.discard_holds.query().bind(&ids).execute(&mut *tx).await?;
    let discarded = sql.discard.query().bind(ids).execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    Ok(discarded)
}

/// Deletes delivered events whose retention has ended.
pub(super) async fn purge(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut SqliteConnection,
    retention: Duration,
    limit: usize,
) -> sqlx::Result<u64> {
    let before = Timestamp::now().minus(retention).as_micros();
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    let purge = sql.purge.query().bind(before).bind(integer(limit));
    let purged = purge.execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    Ok(purged)
}

/// How much of everything there is, all of it at one moment.
pub(super) async fn stats(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut SqliteConnection,
) -> sqlx::Result<Stats> {
    let mut snapshot = conn.begin().await?;
    let now = Timestamp::now();
    let row = sql.stats.query().bind(i64::MAX).bind(now.as_micros()).fetch_one(&mut *snapshot).await?;
    let oldest = match row.try_get::<Option<i64>, _>("first")? {
        Some(first) => sql.oldest.query().bind(first).fetch_optional(&mut *snapshot).await?,
        None => None,
    };
    snapshot.commit().await?;
    let count = |column| row.try_get(column).map(natural::<u64>);
    let created_at = oldest.map(|row| row.try_get(0).map(Timestamp::from_micros)).transpose()?;
    let (fresh, waiting, parked) = (count("fresh")?, count("waiting")?, count("parked")?);
    Ok(Stats {
        pending: fresh + waiting + parked,
        waiting,
        due: count("due")?,
        parked,
        dead: count("dead")?,
        held_keys: count("held_keys")?,
        returning: count("freed")?,
        done: count("done")?,
        oldest: created_at.map(|created_at| now.since(created_at)),
    })
}

/// Where one event is.
pub(super) async fn status(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut SqliteConnection,
    id: &EventId,
) -> sqlx::Result<EventStatus> {
    // One snapshot, or an event that is being delivered could be missed in both tables.
    let mut snapshot = conn.begin().await?;
    let now = Timestamp::now().as_micros();
    let status = match sql.status.query().bind(id.as_str()).bind(now).fetch_optional(&mut *snapshot).await? {
        Some(row) => undelivered(&row)?,
        None => {
            let done = sql.done.query().bind(id.as_str()).fetch_one(&mut *snapshot).await?;
            let done_at = done.try_get::<Option<i64>, _>(0)?.map(Timestamp::from_micros);
            done_at.map_or(EventStatus::Absent, |done_at| EventStatus::Done { done_at })
        }
    };
    snapshot.commit().await?;
    Ok(status)
}

/// Where an event is that is not delivered. One that was written to be delivered later waits for its time, whether a claim has met it or
/// not.
pub(super) fn undelivered(row: &SqliteRow) -> sqlx::Result<EventStatus> {
    let attempts = natural(row.try_get("attempts")?);
    let error = text(row, "last_error")?;
    Ok(match (row.try_get::<i64, _>("status")?, row.try_get::<bool, _>("parked")?) {
        (3, _) => EventStatus::Dead { attempts, error: error.unwrap_or_default() },
        (_, true) => EventStatus::Parked,
        (0, false) if !row.try_get::<bool, _>("delayed")? => EventStatus::New,
        _ => {
            let available_at = Timestamp::from_micros(row.try_get("available_at")?);
            EventStatus::Waiting { attempts, available_at, error }
        }
    })
}

/// What a key waits for.
pub(super) async fn why(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut SqliteConnection,
    key: &str,
) -> sqlx::Result<Option<Hold>> {
    let Some(row) = sql.why.query().bind(key).fetch_optional(conn).await? else {
        return Ok(None);
    };
    Ok(Some(Hold {
        lane: natural(row.try_get("lane")?),
        key: key.to_owned(),
        seq: natural(row.try_get("seq")?),
        reason: HoldReason::from_stored(row.try_get("reason")?),
        until: row.try_get::<Option<i64>, _>("until")?.map(Timestamp::from_micros),
        parked: natural(row.try_get("parked")?),
    }))
}

/// Who delivers.
pub(super) async fn instances(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut SqliteConnection,
) -> sqlx::Result<Instances> {
    let rows = sql.instances.query().bind(Timestamp::now().as_micros()).fetch_all(conn).await?;
    let found = rows.iter().map(|row| {
        let lane = row.try_get::<Option<i64>, _>("lane")?.map(natural);
        let until = row.try_get::<Option<i64>, _>("until")?.unwrap_or_default();
        Ok((row.try_get("name")?, lane, Timestamp::from_micros(until)))
    });
    Ok(Instances::gather(found.collect::<sqlx::Result<Vec<_>>>()?))
}

fn id_list(ids: &[EventId]) -> sqlx::Result<String> {
    json(&ids.iter().map(EventId::as_str).collect::<Vec<_>>())
}
