//! Bare SQL over the same rows: reading, deleting, and the design that claims rows and updates each twice.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use postrider::{mysql::MysqlStore, postgres::PgStore};
use postrider_relay::Failure;
use sqlx::{AssertSqlSafe, Row, postgres::PgRow};

use super::{
    super::rounds::per_second,
    BATCH,
    database::{Database, run},
};

/// Events per second of reading all rows, batch by batch.
pub(super) async fn select(database: &Database, count: u64) -> Result<f64, Failure> {
    let took = match (database.as_postgres(), database.as_mysql()) {
        (Some(store), _) => select_postgres(store, count).await?,
        (_, Some(store)) => select_mysql(store, count).await?,
        (None, None) => Duration::ZERO,
    };
    Ok(per_second(count, took))
}

/// Events per second of deleting all rows, batch by batch.
pub(super) async fn delete(database: &Database, count: u64) -> Result<f64, Failure> {
    let took = match (database.as_postgres(), database.as_mysql()) {
        (Some(store), _) => delete_postgres(store, count).await?,
        (_, Some(store)) => delete_mysql(store, count).await?,
        (None, None) => Duration::ZERO,
    };
    Ok(per_second(count, took))
}

/// Fails if the bound did not process every row.
fn check(done: u64, count: u64) -> Result<(), Failure> {
    match done == count {
        true => Ok(()),
        false => Err(Failure::bad(format!("{count} rows were there for the bound, and it had {done}"))),
    }
}

const COLUMNS: &str = "seq, lane, available_at, created_at, occurred_at, attempts, event_id, event_type, aggregate_type, aggregate_id,
    ordering_key, tenant_id, content_type, headers, payload, payload_bytes";

/// Takes all values of an event out of a row.
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

async fn select_postgres(store: &PgStore, count: u64) -> Result<Duration, Failure> {
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

async fn delete_postgres(store: &PgStore, count: u64) -> Result<Duration, Failure> {
    let mut conn = store.pool().acquire().await?;
    let seqs: Vec<i64> =
        sqlx::query_scalar("SELECT seq FROM postrider_event ORDER BY seq").fetch_all(&mut *conn).await?;
    let (started, mut deleted) = (Instant::now(), 0);
    for seqs in seqs.chunks(BATCH) {
        let delete = sqlx::query("DELETE FROM postrider_event WHERE seq = ANY ($1)").bind(seqs);
        deleted += delete.execute(&mut *conn).await?.rows_affected();
    }
    let took = started.elapsed();
    check(deleted, count)?;
    Ok(took)
}

/// Events per second of `FOR UPDATE SKIP LOCKED`, with one update when rows are claimed and one when they are done. It has a table of its own
/// with the same values and only the index that it needs.
pub(super) async fn two_update(store: &PgStore, count: u64) -> Result<f64, Failure> {
    for sql in [
        "CREATE TABLE two_update (LIKE postrider_event INCLUDING DEFAULTS)".to_owned(),
        format!("INSERT INTO two_update SELECT * FROM postrider_event ORDER BY seq LIMIT {count}"),
        "ALTER TABLE two_update ADD PRIMARY KEY (seq), ADD UNIQUE (event_id)".to_owned(),
        "CREATE INDEX two_update_new ON two_update (seq) WHERE status = 0".to_owned(),
        "VACUUM ANALYZE two_update".to_owned(),
        "CHECKPOINT".to_owned(),
    ] {
        run(store, sql).await?;
    }
    let claim = format!(
        "UPDATE two_update SET status = 1 WHERE seq IN (
             SELECT seq FROM two_update WHERE status = 0 ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING {COLUMNS}"
    );
    let mut conn = store.pool().acquire().await?;
    let started = Instant::now();
    let mut done = 0;
    loop {
        let rows =
            sqlx::query(AssertSqlSafe(claim.as_str())).bind(BATCH as i64).fetch_all(&mut *conn).await?;
        if rows.is_empty() {
            break;
        }
        let seqs = rows.iter().map(decode).collect::<Result<Vec<i64>, _>>()?;
        done += seqs.len() as u64;
        let update = sqlx::query("UPDATE two_update SET status = 2 WHERE seq = ANY ($1)").bind(seqs);
        update.execute(&mut *conn).await?;
    }
    let took = started.elapsed();
    drop(conn);
    run(store, "DROP TABLE two_update").await?;
    check(done, count)?;
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

async fn delete_mysql(store: &MysqlStore, count: u64) -> Result<Duration, Failure> {
    let mut conn = store.pool().acquire().await?;
    let seqs: Vec<u64> = sqlx::query_scalar("SELECT CAST(seq AS UNSIGNED) FROM postrider_event ORDER BY seq")
        .fetch_all(&mut *conn)
        .await?;
    let (started, mut deleted) = (Instant::now(), 0);
    for seqs in seqs.chunks(BATCH) {
        let sql = format!("DELETE FROM postrider_event WHERE seq IN ({})", vec!["?"; seqs.len()].join(", "));
        let query = seqs.iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, seq| query.bind(*seq));
        deleted += query.execute(&mut *conn).await?.rows_affected();
    }
    let took = started.elapsed();
    check(deleted, count)?;
    Ok(took)
}
