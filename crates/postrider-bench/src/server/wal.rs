//! Measures the write-ahead log of draining against that of the inserts, by positions in the log.
//!
//! Rows are written and drained once before, so that pages exist and are vacuumed, and no checkpoint happens in between: after one, the first
//! change of a page would log all of it.

use std::time::Duration;

use postrider::postgres::PgStore;
use postrider_relay::Failure;

use super::{
    super::{Scale, figure::Figure},
    database::{Database, insert, run, settle_down},
    drain::{count, ours},
};

/// Limit: bytes that delivery logs for each byte that an insert logs.
const OVERHEAD_MAX: f64 = 0.1;

pub(super) async fn measure(
    database: &Database,
    store: &PgStore,
    scale: Scale,
) -> Result<Vec<Figure>, Failure> {
    let count = count(scale) / 4;
    database.refill(count).await?;
    ours(database, count, Duration::ZERO).await?;
    settle_down(store).await?;
    // Once more, so that every page was changed since the checkpoint.
    run(store, insert(count, "")).await?;
    ours(database, count, Duration::ZERO).await?;
    run(store, "VACUUM postrider_event").await?;

    let before = position(store).await?;
    run(store, insert(count, "")).await?;
    let written = position(store).await?;
    ours(database, count, Duration::ZERO).await?;
    let drained = position(store).await?;
    let (inserts, delivery) = (written - before, drained - written);
    Ok(vec![
        Figure::new("wal_overhead", delivery / inserts).at_most(OVERHEAD_MAX),
        Figure::new("wal_insert_bytes", inserts / count as f64),
        Figure::new("wal_delivery_bytes", delivery / count as f64),
    ])
}

/// Bytes logged so far.
async fn position(store: &PgStore) -> Result<f64, Failure> {
    let bytes = "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8";
    Ok(sqlx::query_scalar(bytes).fetch_one(store.pool()).await?)
}
