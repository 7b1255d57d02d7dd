//! Bare SQL over the same rows: reading, deleting, and the design that claims rows one by one and writes each twice.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use postrider::{mysql::MysqlStore, postgres::PgStore};
use sqlx::{AssertSqlSafe, Row, postgres::PgRow};

use super::{super::rounds::per_second, BATCH, database::Database};
use crate::failure::Failure;

/// Events a second if all are read and then all deleted, one after the other.
pub(super) async fn serial(database: &Database, count: u64) -> Result<f64, Failure> {
    let took = match (database.as_postgres(), database.as_mysql()) {
        (Some(store), _) => select(store, count).await? + delete(store).await?,
        (_, Some(store)) => select_mysql(store, count).await? + delete_mysql(store).await?,
        (None, None) => Duration::ZERO,
    };
    Ok(per_second(count, took))
}

fn check(read: u64, count: u64) -> Result<(), Failure> {
    match read == count {
        true => Ok(()),
        false => Err(Failure::bad(format!("{count} rows were to be read, and {read} were"))),
    }
}

const COLUMNS: &str = "seq, lane, available_at, created_at, occurred_at, attempts, event_id, event_type, aggregate_type, aggregate_id,
    ordering_key, tenant_id, content_type, headers, payload, payload_bytes";

/// Takes all values out of a row, as an event has them.
fn decode(row: &PgRow) -> Result<i64, sqlx::Error> {
    black_box(row.try_get::<i32, _>(1)?);
    for time in 2..5 {
        black_box(row.try_get_unchecked::<i64, _>(time)?);
    }
    black_box(row.try_get::<i32, _>(5)?);
    for text in 6..15 {
        black_box(row.try_get::<Option<String>, _>(text)?);
    }
    black_box(row.try_get::<Option<Vec<u8>>, _>(15)?);
    row.try_get(0)
}

async fn select(store: &PgStore, count: u64) -> Result<Duration, Failure> {
    let sql = format!("SELECT {COLUMNS} FROM postrider_event WHERE seq > $1 ORDER BY seq LIMIT $2");
    let mut conn = store.pool().acquire().await?;
    let started = Instant::now();
    let (mut after, mut read) = (0, 0);
    loop {
        let query = sqlx::query(AssertSqlSafe(sql.as_str())).bind(after).bind(BATCH as i64);
        let rows = query.fetch_all(&mut *conn).await?;
        if rows.is_empty() {
            check(read, count)?;
            return Ok(started.elapsed());
        }
        for row in &rows {
            after = decode(row)?;
        }
        read += rows.len() as u64;
    }
}

async fn delete(store: &PgStore) -> Result<Duration, Failure> {
    let mut conn = store.pool().acquire().await?;
    let seqs: Vec<i64> =
        sqlx::query_scalar("SELECT seq FROM postrider_event ORDER BY seq").fetch_all(&mut *conn).await?;
    let started = Instant::now();
    for seqs in seqs.chunks(BATCH) {
        let delete = sqlx::query("DELETE FROM postrider_event WHERE seq = ANY ($1)").bind(seqs);
        delete.execute(&mut *conn).await?;
    }
    Ok(started.elapsed())
}

/// Events a second of `FOR UPDATE SKIP LOCKED`, with one write when rows are claimed and one when they are done. It is so slow that a
/// part of the rows tells.
pub(super) async fn two_update(store: &PgStore, count: u64) -> Result<f64, Failure> {
    let mut conn = store.pool().acquire().await?;
    // The index that this design wants.
    sqlx::raw_sql("CREATE INDEX two_update ON postrider_event (seq) WHERE status = 0")
        .execute(&mut *conn)
        .await?;
    let claim = format!(
        "UPDATE postrider_event SET status = 2 WHERE seq IN (
             SELECT seq FROM postrider_event WHERE status = 0 ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING {COLUMNS}"
    );
    let started = Instant::now();
    let mut done = 0;
    while done < count {
        let rows =
            sqlx::query(AssertSqlSafe(claim.as_str())).bind(BATCH as i64).fetch_all(&mut *conn).await?;
        if rows.is_empty() {
            break;
        }
        let seqs = rows.iter().map(decode).collect::<Result<Vec<i64>, _>>()?;
        done += seqs.len() as u64;
        let update = sqlx::query("UPDATE postrider_event SET status = 3 WHERE seq = ANY ($1)").bind(seqs);
        update.execute(&mut *conn).await?;
    }
    let took = started.elapsed();
    sqlx::raw_sql("DROP INDEX two_update").execute(&mut *conn).await?;
    Ok(per_second(done, took))
}

async fn select_mysql(store: &MysqlStore, count: u64) -> Result<Duration, Failure> {
    let mut conn = store.pool().acquire().await?;
    let started = Instant::now();
    let (mut after, mut read) = (0_u64, 0);
    loop {
        let rows = sqlx::query(
            "SELECT seq, lane, available_at, created_at, occurred_at, attempts, CAST(event_id AS BINARY), CAST(event_type AS BINARY),
                    CAST(aggregate_type AS BINARY), CAST(aggregate_id AS BINARY), CAST(ordering_key AS BINARY), CAST(tenant_id AS BINARY),
                    CAST(content_type AS BINARY), CAST(headers AS BINARY), CAST(payload AS BINARY), payload_bytes
             FROM postrider_event WHERE seq > ? ORDER BY seq LIMIT ?",
        )
        .bind(after)
        .bind(BATCH as u64)
        .fetch_all(&mut *conn)
        .await?;
        if rows.is_empty() {
            check(read, count)?;
            return Ok(started.elapsed());
        }
        for row in &rows {
            for bytes in 6..16 {
                black_box(row.try_get_unchecked::<Option<Vec<u8>>, _>(bytes)?);
            }
            after = row.try_get_unchecked(0)?;
        }
        read += rows.len() as u64;
    }
}

async fn delete_mysql(store: &MysqlStore) -> Result<Duration, Failure> {
    let mut conn = store.pool().acquire().await?;
    let seqs: Vec<u64> = sqlx::query_scalar("SELECT CAST(seq AS UNSIGNED) FROM postrider_event ORDER BY seq")
        .fetch_all(&mut *conn)
        .await?;
    let started = Instant::now();
    for seqs in seqs.chunks(BATCH) {
        let sql = format!("DELETE FROM postrider_event WHERE seq IN ({})", vec!["?"; seqs.len()].join(", "));
        let query = seqs.iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, seq| query.bind(*seq));
        query.execute(&mut *conn).await?;
    }
    Ok(started.elapsed())
}
