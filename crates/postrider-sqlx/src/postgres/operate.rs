//! What operators see and do.

use std::time::Duration;

use postrider_core::{
    EventId,
    store::{DeadLetter, EventStatus, Hold, HoldReason, Instances, Seq, Stats},
};
use sqlx::{PgConnection, Row, postgres::PgRow};

use super::{
    Inner,
    statement::{Shape, Statement, integer, natural, optional_time, span, time},
};

/// The statements of this file. Each is one, so that it speaks of one moment and needs no transaction around it.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) dead: Statement,
    pub(super) redrive: Statement,
    pub(super) discard: Statement,
    pub(super) purge: Statement,
    pub(super) stats: Statement,
    pub(super) status: Statement,
    pub(super) why: Statement,
    pub(super) instances: Statement,
}

/// Whether a row was written to be delivered later, and its time has not come.
pub(super) const DELAYED: &str = "e.available_at > greatest(e.created_at, clock_timestamp()) AS delayed";

/// The dead events of these ids, locked in their order.
const DEAD: &str = "
    dead AS MATERIALIZED (
        SELECT e.seq, e.lane, {key} AS key FROM {p}event AS e
        WHERE e.event_id = ANY ($1::text[]) AND e.status = 3 ORDER BY e.seq FOR UPDATE
    )";

impl Statements {
    pub(super) fn new(shape: &Shape) -> Self {
        let statement = |template: &str| Statement::new(template, shape);
        Self {
            // The LIMIT keeps PostgreSQL from reading all holds for a page of letters.
            dead: statement(
                "SELECT e.seq, e.event_id, e.event_type, {key} AS key, e.attempts, e.last_error, e.created_at,
                        e.available_at AS died_at, h.seq IS NOT NULL AS blocks
                 FROM {p}event AS e
                 LEFT JOIN LATERAL (SELECT h.seq FROM {p}hold AS h
                                    WHERE h.lane = e.lane AND h.effective_key = {key} AND h.seq = e.seq
                                      AND h.reason <> 'returning' LIMIT 1) AS h ON true
                 WHERE e.status = 3 AND e.seq > $1 ORDER BY e.seq LIMIT $2",
            ),
            redrive: statement(&format!(
                "WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now), {DEAD}, holds AS (
                     UPDATE {{p}}hold AS h SET reason = 'retry', until = clock.now FROM dead, clock
                     WHERE h.lane = dead.lane AND h.effective_key = dead.key AND h.seq = dead.seq
                 )
                 UPDATE {{p}}event AS e SET status = 2, attempts = 0, available_at = clock.now
                 FROM dead, clock WHERE e.seq = dead.seq"
            )),
            // Even where nothing is parked: a claim sees to that, and it alone deletes such holds.
            discard: statement(&format!(
                "WITH {DEAD}, holds AS (
                     UPDATE {{p}}hold AS h SET reason = 'returning', until = NULL FROM dead
                     WHERE h.lane = dead.lane AND h.effective_key = dead.key AND h.seq = dead.seq
                 )
                 DELETE FROM {{p}}event AS e USING dead WHERE e.seq = dead.seq"
            )),
            // The time is asked for once: where it may be another for each row, every row of the index is held against it. With 3,000,000
            // of them, none old enough, that was a second of a processor at every purge.
            purge: statement(
                "DELETE FROM {p}done WHERE ctid = ANY (ARRAY (
                     SELECT d.ctid FROM {p}done AS d
                     WHERE d.done_at <= (SELECT clock_timestamp() - $1::bigint * interval '1 microsecond')
                     ORDER BY d.done_at LIMIT $2))",
            ),
            // Each line counts a partial index of its own.
            stats: statement(
                "SELECT fresh.n AS fresh, waiting.n AS waiting, waiting.due AS due, parked.n AS parked,
                        (SELECT count(*) FROM {p}event WHERE status = 3) AS dead,
                        (SELECT count(*) FROM {p}hold) AS held_keys,
                        (SELECT count(*) FROM {p}hold WHERE reason = 'returning') AS freed,
                        (SELECT count(*) FROM {p}done) AS done,
                        (SELECT (extract(epoch FROM clock_timestamp() - e.created_at) * 1000000)::bigint FROM {p}event AS e
                         WHERE e.seq = least(fresh.first, waiting.first, parked.first)) AS oldest_us
                 FROM (SELECT count(*) AS n, min(seq) AS first FROM {p}event WHERE status = 0 AND NOT parked) AS fresh,
                      (SELECT count(*) AS n, min(seq) AS first,
                              count(*) FILTER (WHERE available_at <= (SELECT clock_timestamp())) AS due
                       FROM {p}event WHERE status = 2 AND NOT parked) AS waiting,
                      (SELECT count(*) AS n, min(seq) AS first FROM {p}event WHERE parked) AS parked",
            ),
            // The OFFSET keeps PostgreSQL from looking for the largest time along the index of times: before the first ANALYZE it takes an
            // id for one of two hundred, and reads all that was delivered. With 740,000 rows that took 10 s.
            status: statement(&format!(
                "SELECT e.status, e.parked, e.attempts, e.available_at, {DELAYED}, e.last_error, NULL::timestamptz AS done_at
                 FROM {{p}}event AS e WHERE e.event_id = $1
                 UNION ALL
                 SELECT 1::smallint, false, 0, NULL, false, NULL, max(d.done_at)
                 FROM (SELECT done_at FROM {{p}}done WHERE event_id = $1 OFFSET 0) AS d
                 HAVING max(d.done_at) IS NOT NULL"
            )),
            why: statement(
                "SELECT h.lane, h.seq, h.until, h.reason,
                        (SELECT count(*) FROM {p}event AS e
                         WHERE e.lane = h.lane AND {key} = h.effective_key AND e.parked) AS parked
                 FROM {p}lane AS l JOIN {p}hold AS h ON h.lane = l.lane WHERE h.effective_key = $1",
            ),
            instances: statement(
                "SELECT CASE WHEN leased_until > clock_timestamp() THEN owner END AS name, lane, leased_until AS until
                 FROM {p}lane
                 UNION ALL
                 SELECT instance, NULL, until FROM {p}member WHERE until > clock_timestamp()",
            ),
        }
    }
}

/// Dead letters in the order of `seq`.
pub(super) async fn dead(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut PgConnection,
    after: Seq,
    limit: usize,
) -> sqlx::Result<Vec<DeadLetter>> {
    let query = sql.dead.query().bind(integer(after)).bind(integer(limit));
    query.fetch_all(conn).await?.iter().map(dead_letter).collect()
}

fn dead_letter(row: &PgRow) -> sqlx::Result<DeadLetter> {
    Ok(DeadLetter {
        seq: natural(row.try_get("seq")?),
        id: row.try_get::<String, _>("event_id")?.into(),
        event_type: row.try_get("event_type")?,
        key: row.try_get("key")?,
        attempts: natural(row.try_get::<i32, _>("attempts")?.into()),
        error: row.try_get::<Option<String>, _>("last_error")?.unwrap_or_default(),
        blocks: row.try_get("blocks")?,
        created_at: time(row, "created_at")?,
        died_at: Some(time(row, "died_at")?),
    })
}

/// Makes dead events due again; their keys wait for them as before.
pub(super) async fn redrive(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut PgConnection,
    ids: &[EventId],
) -> sqlx::Result<u64> {
    Ok(sql.redrive.query().bind(texts(ids)).execute(conn).await?.rows_affected())
}

/// Deletes dead events and lets those behind them come back.
pub(super) async fn discard(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut PgConnection,
    ids: &[EventId],
) -> sqlx::Result<u64> {
    Ok(sql.discard.query().bind(texts(ids)).execute(conn).await?.rows_affected())
}

/// Deletes delivered events whose retention has ended.
pub(super) async fn purge(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut PgConnection,
    retention: Duration,
    limit: usize,
) -> sqlx::Result<u64> {
    let purge = sql.purge.query().bind(span(retention)).bind(integer(limit));
    Ok(purge.execute(conn).await?.rows_affected())
}

/// How much of everything there is.
pub(super) async fn stats(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut PgConnection,
) -> sqlx::Result<Stats> {
    let row = sql.stats.query().fetch_one(conn).await?;
    let count = |column| row.try_get(column).map(natural::<u64>);
    let (fresh, waiting, parked) = (count("fresh")?, count("waiting")?, count("parked")?);
    let oldest = row.try_get::<Option<i64>, _>("oldest_us")?;
    Ok(Stats {
        pending: fresh + waiting + parked,
        waiting,
        due: count("due")?,
        parked,
        dead: count("dead")?,
        held_keys: count("held_keys")?,
        returning: count("freed")?,
        done: count("done")?,
        oldest: oldest.map(|oldest| Duration::from_micros(natural(oldest))),
    })
}

/// Where one event is. One that is both pending and delivered, because its id was used again, is pending.
pub(super) async fn status(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut PgConnection,
    id: &EventId,
) -> sqlx::Result<EventStatus> {
    let rows = sql.status.query().bind(id.as_str()).fetch_all(conn).await?;
    rows.first().map_or(Ok(EventStatus::Absent), where_it_is)
}

pub(super) fn where_it_is(row: &PgRow) -> sqlx::Result<EventStatus> {
    let attempts = natural(row.try_get::<i32, _>("attempts")?.into());
    let error = row.try_get::<Option<String>, _>("last_error")?;
    Ok(match (row.try_get::<i16, _>("status")?, row.try_get::<bool, _>("parked")?) {
        (1, _) => EventStatus::Done { done_at: time(row, "done_at")? },
        (3, _) => EventStatus::Dead { attempts, error: error.unwrap_or_default() },
        (_, true) => EventStatus::Parked,
        (0, false) if !row.try_get::<bool, _>("delayed")? => EventStatus::New,
        _ => EventStatus::Waiting { attempts, available_at: time(row, "available_at")?, error },
    })
}

/// What a key waits for.
pub(super) async fn why(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut PgConnection,
    key: &str,
) -> sqlx::Result<Option<Hold>> {
    let Some(row) = sql.why.query().bind(key).fetch_optional(conn).await? else {
        return Ok(None);
    };
    Ok(Some(Hold {
        lane: natural(row.try_get::<i32, _>("lane")?.into()),
        key: key.to_owned(),
        seq: natural(row.try_get("seq")?),
        reason: HoldReason::from_stored(row.try_get("reason")?),
        until: optional_time(&row, "until")?,
        parked: natural(row.try_get("parked")?),
    }))
}

/// Who delivers.
pub(super) async fn instances(
    Inner { operate: sql, .. }: &Inner,
    conn: &mut PgConnection,
) -> sqlx::Result<Instances> {
    let rows = sql.instances.query().fetch_all(conn).await?;
    let found = rows.iter().map(|row| {
        let lane = row.try_get::<Option<i32>, _>("lane")?.map(|lane| natural(lane.into()));
        Ok((row.try_get("name")?, lane, time(row, "until")?))
    });
    Ok(Instances::gather(found.collect::<sqlx::Result<Vec<_>>>()?))
}

fn texts(ids: &[EventId]) -> Vec<&str> {
    ids.iter().map(EventId::as_str).collect()
}
