//! Measures draining a SQLite file against bare SQL.
//!
//! * **Ours:** an engine with default settings, except a retention of zero, drains a file of events with 1 KiB of payload and one key each into a
//!   handler that does nothing. The clock runs from before the start until the last settle is committed.
//! * **The bound:** a loop over the same file reads the next 200 rows with all their values and deletes them by their numbers; one statement each,
//!   through the same pool with the same pragmas.
//!
//! Each turn has a copy of the same file in the same folder.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use postrider::{Delivery, Outbox, Settings, sqlite::SqliteStore};
use postrider_relay::Failure;
use sqlx::SqlitePool;

use super::{
    Scale,
    figure::Figure,
    files::{Files, close, event, fill},
    rounds::{Rounds, per_second},
    settled::Settled,
};

/// Limit: the engine's rate over that of the bare loop.
const RATIO_MIN: f64 = 0.6;

const PAYLOAD_BYTES: usize = 1024;

pub(super) async fn measure(scale: Scale, rounds: Rounds) -> Result<Vec<Figure>, Failure> {
    let count = scale.pick(30_000, 1000);
    let files = Files::create()?;
    let rows = files.open("rows").await?;
    fill("drain", &rows, count, |n| event(n, PAYLOAD_BYTES)).await?;
    close(rows).await;

    let turns = rounds
        .by_turns("drain", "events/s", 1, ["ours", "bound"], async |name| {
            let store = files.open_copy("rows", name).await?;
            match name {
                "ours" => ours(store, count).await,
                _ => bound(store, count).await,
            }
        })
        .await?;
    Ok(vec![
        Figure::new("drain_to_bare", turns.ratio("ours", "bound")).at_least(RATIO_MIN),
        Figure::new("drain_events_per_s", turns.median("ours")),
        Figure::new("bare_drain_per_s", turns.median("bound")),
    ])
}

async fn ours(store: SqliteStore, count: u64) -> Result<f64, Failure> {
    let settled = Settled::all_of(count);
    let started = Instant::now();
    let outbox = Outbox::builder()
        .store(store.clone())
        .on("OrderPlaced", async |_: Delivery| ())
        .retention(Duration::ZERO)
        .metrics(settled.clone())
        .start()
        .await?;
    settled.wait(&ProgressBar::hidden()).await?;
    let took = started.elapsed();
    outbox.shutdown().await;
    let left = outbox.stats().await?;
    close(store).await;
    if left.pending > 0 {
        return Err(Failure::bad(format!("all was settled, and there is: {left:?}")));
    }
    Ok(per_second(count, took))
}

async fn bound(store: SqliteStore, count: u64) -> Result<f64, Failure> {
    let batch = Settings::default().claim_batch;
    let started = Instant::now();
    let (mut deleted, mut last) = (0, 0);
    loop {
        let rows = read(store.pool(), last, batch).await?;
        let Some(row) = rows.last() else { break };
        last = row.0;
        let seqs: Vec<i64> = rows.iter().map(|row| row.0).collect();
        deleted += delete(store.pool(), &seqs).await?;
        std::hint::black_box(rows);
    }
    let took = started.elapsed();
    close(store).await;
    if deleted != count {
        return Err(Failure::bad(format!("{deleted} of {count} rows were deleted")));
    }
    Ok(per_second(count, took))
}

/// A row with every value that a claim reads.
type Row = (
    i64,
    i64,
    i64,
    i64,
    i64,
    i64,
    String,
    String,
    String,
    Option<String>,
    Option<String>,
    Option<String>,
    String,
    Option<String>,
    Option<String>,
    Option<Vec<u8>>,
);

async fn read(pool: &SqlitePool, after: i64, batch: usize) -> Result<Vec<Row>, Failure> {
    let sql = "SELECT seq, lane, attempts, available_at, created_at, occurred_at, event_id, event_type,
                      aggregate_type, aggregate_id, ordering_key, tenant_id, content_type, headers, payload,
                      payload_bytes
               FROM postrider_event WHERE seq > ?1 ORDER BY seq LIMIT ?2";
    Ok(sqlx::query_as(sql).bind(after).bind(batch as i64).fetch_all(pool).await?)
}

async fn delete(pool: &SqlitePool, seqs: &[i64]) -> Result<u64, Failure> {
    let seqs = serde_json::Value::from(seqs).to_string();
    let sql = "DELETE FROM postrider_event WHERE seq IN (SELECT value FROM json_each(?1))";
    Ok(sqlx::query(sql).bind(seqs).execute(pool).await?.rows_affected())
}
