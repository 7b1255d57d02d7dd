//! What operators see and do.

use std::time::Duration;

use postrider_core::{
    EventId,
    store::{DeadLetter, EventStatus, Hold, HoldReason, Instances, Lane, Seq, Stats},
    tx::Prefix,
};
use sqlx::{Connection, MySqlConnection, SqlSafeStr, mysql::MySqlRow};

use super::{
    Inner, lease,
    statement::{
        AT, LIST_MAX, Listed, NOW, Statement, bound, filled, integer, maybe, maybe_time, micros, natural,
        text, time,
    },
};

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) dead: Statement,
    pub(super) find: Listed,
    pub(super) redrive_holds: Listed,
    pub(super) redrive: Listed,
    pub(super) discard_holds: Listed,
    pub(super) discard: Listed,
    pub(super) purge: Statement,
    pub(super) places: Statement,
    pub(super) counts: Statement,
    pub(super) status: Statement,
    pub(super) done: Statement,
    pub(super) why: Statement,
    pub(super) instances: Statement,
}

/// Whether a row was written to be delivered later, and its time has not come.
pub(super) const DELAYED: &str = "e.available_at > GREATEST(e.created_at, UTC_TIMESTAMP(6)) AS is_delayed";

/// The dead events at these places, with the holds that they stand at the head of.
const DEAD_AND_HOLD: &str =
    "{p}event AS e FORCE INDEX (PRIMARY) STRAIGHT_JOIN {p}hold AS h FORCE INDEX (PRIMARY)
    ON h.lane = e.lane AND h.effective_key = e.effective_key AND h.seq = e.seq";

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let statement = |template: &str| Statement::new(template, prefix);
        let listed = |template: &str| Listed::of_values(template, prefix);
        Self {
            dead: statement(&format!(
                "SELECT e.seq, e.event_id, e.event_type, e.effective_key, e.attempts, e.last_error,
                        {} AS created_at, {} AS died_at,
                        EXISTS (SELECT 1 FROM {{p}}hold AS h WHERE h.lane = e.lane AND h.effective_key = e.effective_key
                                AND h.seq = e.seq AND h.reason <> 'returning') AS blocks
                 FROM {{p}}event AS e FORCE INDEX ({{p}}event_place)
                 WHERE e.place = 3 AND e.seq > ? ORDER BY e.seq LIMIT ?",
                micros("e.created_at"),
                micros("e.available_at")
            )),
            find: listed("SELECT seq, lane FROM {p}event WHERE event_id IN ({list}) AND status = 3"),
            redrive_holds: listed(&format!(
                "UPDATE {DEAD_AND_HOLD} SET h.reason = 'retry', h.until = {AT} WHERE e.seq IN ({{list}}) AND e.status = 3"
            )),
            redrive: listed(&format!(
                "UPDATE {{p}}event FORCE INDEX (PRIMARY) SET status = 2, attempts = 0, available_at = {AT}
                 WHERE seq IN ({{list}}) AND status = 3"
            )),
            // Even where nothing is parked: a claim sees to that, and it alone deletes such holds.
            discard_holds: listed(&format!(
                "UPDATE {DEAD_AND_HOLD} SET h.reason = 'returning', h.until = NULL
                 WHERE e.seq IN ({{list}}) AND e.status = 3"
            )),
            discard: listed("DELETE e FROM {p}event AS e FORCE INDEX (PRIMARY) WHERE e.seq IN ({list}) AND e.status = 3"),
            purge: statement("DELETE FROM {p}done WHERE done_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND \
                              ORDER BY done_at LIMIT ?"),
            // The index alone, no rows.
            places: statement(
                "SELECT place, COUNT(*) AS n, MIN(seq) AS first, COUNT(IF(due_at <= UTC_TIMESTAMP(6), 1, NULL)) AS due
                 FROM {p}event FORCE INDEX ({p}event_place) GROUP BY place",
            ),
            counts: statement(&format!(
                "SELECT (SELECT COUNT(*) FROM {{p}}hold) AS held_keys, (SELECT COUNT(*) FROM {{p}}done) AS done,
                        (SELECT COUNT(*) FROM {{p}}hold WHERE reason = 'returning') AS freed,
                        (SELECT {} FROM {{p}}event WHERE seq = ?) AS oldest, {NOW} AS now",
                micros("created_at")
            )),
            status: statement(&format!(
                "SELECT e.place, e.attempts, {} AS available_at, {DELAYED}, e.last_error FROM {{p}}event AS e WHERE e.event_id = ?",
                micros("e.available_at")
            )),
            done: statement(&format!(
                "SELECT {} AS done_at FROM {{p}}done FORCE INDEX ({{p}}done_id) WHERE event_id = ?",
                micros("MAX(done_at)")
            )),
            why: statement(&format!(
                "SELECT h.lane, h.seq, {} AS until, h.reason,
                        (SELECT COUNT(*) FROM {{p}}event AS e FORCE INDEX ({{p}}event_place)
                         WHERE e.place = 1 AND e.lane = h.lane AND e.parked_key = h.effective_key) AS parked
                 FROM {{p}}lane AS l STRAIGHT_JOIN {{p}}hold AS h ON h.lane = l.lane AND h.effective_key = ?",
                micros("h.until")
            )),
            instances: statement(&format!(
                "SELECT CASE WHEN leased_until > UTC_TIMESTAMP(6) THEN owner END AS name, lane, {} AS until FROM {{p}}lane
                 UNION ALL
                 SELECT instance, NULL, {} FROM {{p}}member WHERE until > UTC_TIMESTAMP(6)",
                micros("leased_until"),
                micros("until")
            )),
        }
    }
}

/// All that is read afterwards is of one moment.
const SNAPSHOT: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION READ ONLY";

/// Dead letters in the order of `seq`.
pub(super) async fn dead(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut MySqlConnection,
    after: Seq,
    limit: usize,
) -> sqlx::Result<Vec<DeadLetter>> {
    let query = sql.dead.query().bind(after).bind(integer(limit));
    query.fetch_all(conn).await?.iter().map(dead_letter).collect()
}

fn dead_letter(row: &MySqlRow) -> sqlx::Result<DeadLetter> {
    Ok(DeadLetter {
        seq: natural(row, "seq")?,
        id: text(row, "event_id")?.unwrap_or_default().into(),
        event_type: text(row, "event_type")?.unwrap_or_default(),
        key: text(row, "effective_key")?,
        attempts: natural(row, "attempts")?,
        error: text(row, "last_error")?.unwrap_or_default(),
        blocks: natural::<u8>(row, "blocks")? != 0,
        created_at: time(row, "created_at")?,
        died_at: Some(time(row, "died_at")?),
    })
}

/// Makes dead events due again; their keys wait for them as before.
pub(super) async fn redrive(
    Inner { operate: sql, lease, .. }: &Inner,
    conn: &mut MySqlConnection,
    ids: &[EventId],
) -> sqlx::Result<u64> {
    let mut redriven = 0;
    for ids in ids.chunks(LIST_MAX) {
        let mut tx = conn.begin().await?;
        if let Some((dead, now)) = lock_dead(sql, lease, &mut tx, ids).await? {
            for statement in [&sql.redrive_holds, &sql.redrive] {
                let query =
                    filled(&dead).fold(statement.query(dead.len()).bind(now), |query, seq| query.bind(seq));
                redriven += changed(statement, &sql.redrive, query.execute(&mut *tx).await?.rows_affected());
            }
        }
        tx.commit().await?;
    }
    Ok(redriven)
}

/// Deletes dead events and lets those behind them come back.
pub(super) async fn discard(
    Inner { operate: sql, lease, .. }: &Inner,
    conn: &mut MySqlConnection,
    ids: &[EventId],
) -> sqlx::Result<u64> {
    let mut discarded = 0;
    for ids in ids.chunks(LIST_MAX) {
        let mut tx = conn.begin().await?;
        if let Some((dead, _)) = lock_dead(sql, lease, &mut tx, ids).await? {
            for statement in [&sql.discard_holds, &sql.discard] {
                let query = filled(&dead).fold(statement.query(dead.len()), |query, seq| query.bind(seq));
                discarded += changed(statement, &sql.discard, query.execute(&mut *tx).await?.rows_affected());
            }
        }
        tx.commit().await?;
    }
    Ok(discarded)
}

/// The rows that a statement changed, if it is the one that counts.
fn changed(statement: &Listed, counts: &Listed, rows: u64) -> u64 {
    if std::ptr::eq(statement, counts) { rows } else { 0 }
}

/// Finds the dead among these, with the time, and locks their lanes: a delivering instance must not change their keys meanwhile.
async fn lock_dead(
    sql: &Statements,
    lease: &lease::Statements,
    conn: &mut MySqlConnection,
    ids: &[EventId],
) -> sqlx::Result<Option<(Vec<Seq>, i64)>> {
    let ids: Vec<&str> = ids.iter().map(EventId::as_str).collect();
    let query = filled(&ids).fold(sql.find.query(ids.len()), |query, id| query.bind(id.to_owned()));
    let (mut seqs, mut lanes) = (Vec::<Seq>::new(), Vec::<Lane>::new());
    for row in query.fetch_all(&mut *conn).await? {
        seqs.push(natural(&row, "seq")?);
        lanes.push(natural(&row, "lane")?);
    }
    if seqs.is_empty() {
        return Ok(None);
    }
    lanes.sort_unstable();
    lanes.dedup();
    let query = filled(&lanes).fold(lease.lock.query(lanes.len()), |query, lane| query.bind(lane));
    let locked = query.fetch_all(conn).await?;
    let now = locked.first().map(|row| time(row, "now")).transpose()?;
    Ok(now.map(|now| (seqs, bound(now))))
}

/// Deletes delivered events whose retention has ended.
pub(super) async fn purge(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut MySqlConnection,
    retention: Duration,
    limit: usize,
) -> sqlx::Result<u64> {
    // A longer retention than the calendar has years keeps everything.
    let retention =
        i64::try_from(retention.as_micros()).unwrap_or(i64::MAX).min(1000 * 365 * 86_400 * 1_000_000);
    let purge = sql.purge.query().bind(retention).bind(integer(limit));
    Ok(purge.execute(conn).await?.rows_affected())
}

/// How much of everything there is, all of it at one moment.
pub(super) async fn stats(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut MySqlConnection,
) -> sqlx::Result<Stats> {
    let mut snapshot = conn.begin_with(SNAPSHOT.into_sql_str()).await?;
    let mut stats = Stats::default();
    let mut oldest: Option<Seq> = None;
    for row in sql.places.query().fetch_all(&mut *snapshot).await? {
        let count = natural::<u64>(&row, "n")?;
        match natural::<u8>(&row, "place")? {
            1 => stats.parked = count,
            2 => (stats.waiting, stats.due) = (count, natural(&row, "due")?),
            3 => {
                stats.dead = count;
                continue;
            }
            _ => {}
        }
        stats.pending += count;
        oldest = maybe(&row, "first")?.into_iter().chain(oldest).min();
    }
    let row = sql.counts.query().bind(oldest.unwrap_or_default()).fetch_one(&mut *snapshot).await?;
    snapshot.commit().await?;
    let now = time(&row, "now")?;
    stats.held_keys = natural(&row, "held_keys")?;
    stats.returning = natural(&row, "freed")?;
    stats.done = natural(&row, "done")?;
    stats.oldest = maybe_time(&row, "oldest")?.map(|created_at| now.since(created_at));
    Ok(stats)
}

/// Where one event is.
pub(super) async fn status(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut MySqlConnection,
    id: &EventId,
) -> sqlx::Result<EventStatus> {
    // One snapshot, or an event that is being delivered could be missed in both tables.
    let mut snapshot = conn.begin_with(SNAPSHOT.into_sql_str()).await?;
    let id = id.as_str().to_owned();
    let status = match sql.status.query().bind(id.clone()).fetch_optional(&mut *snapshot).await? {
        Some(row) => undelivered(&row)?,
        None => {
            let done = sql.done.query().bind(id).fetch_one(&mut *snapshot).await?;
            maybe_time(&done, "done_at")?.map_or(EventStatus::Absent, |done_at| EventStatus::Done { done_at })
        }
    };
    snapshot.commit().await?;
    Ok(status)
}

/// Where an event is that is not delivered. One that was written to be delivered later waits for its time, whether a claim has met it or
/// not.
pub(super) fn undelivered(row: &MySqlRow) -> sqlx::Result<EventStatus> {
    let attempts = natural(row, "attempts")?;
    let error = text(row, "last_error")?;
    Ok(match natural::<u8>(row, "place")? {
        3 => EventStatus::Dead { attempts, error: error.unwrap_or_default() },
        1 => EventStatus::Parked,
        0 if natural::<u8>(row, "is_delayed")? == 0 => EventStatus::New,
        _ => EventStatus::Waiting { attempts, available_at: time(row, "available_at")?, error },
    })
}

/// What a key waits for.
pub(super) async fn why(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut MySqlConnection,
    key: &str,
) -> sqlx::Result<Option<Hold>> {
    let Some(row) = sql.why.query().bind(key.to_owned()).fetch_optional(conn).await? else {
        return Ok(None);
    };
    Ok(Some(Hold {
        lane: natural(&row, "lane")?,
        key: key.to_owned(),
        seq: natural(&row, "seq")?,
        reason: HoldReason::from_stored(&text(&row, "reason")?.unwrap_or_default()),
        until: maybe_time(&row, "until")?,
        parked: natural(&row, "parked")?,
    }))
}

/// Who delivers.
pub(super) async fn instances(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut MySqlConnection,
) -> sqlx::Result<Instances> {
    let rows = sql.instances.query().fetch_all(conn).await?;
    let found = rows.iter().map(|row| Ok((text(row, "name")?, maybe(row, "lane")?, time(row, "until")?)));
    Ok(Instances::gather(found.collect::<sqlx::Result<Vec<_>>>()?))
}
