//! Measures the memory of a backlog of many keys that all wait for a retry.
//!
//! Each key has one event, the handler always fails, and the next attempt is an hour away. Once each event has failed, all keys are held, and
//! nothing of that may stay in memory.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use postrider::{Backoff, Delivery, Event, Outbox, metrics::Recording, sqlite::SqliteStore};
use postrider_relay::{Failure, TemporaryFolder};

use super::{figure::Figure, memory::Resident, rounds::bar};

/// Limit of the process's memory.
const RSS_MIB_MAX: f64 = 256.0;

/// Events in one transaction of the writer.
const BATCH: u64 = 2000;

const RETRY: Duration = Duration::from_secs(3600);

/// How often progress is checked.
const BEAT: Duration = Duration::from_millis(100);

/// Without progress for this long, the run has stopped.
const STALL: Duration = Duration::from_secs(60);

pub(super) async fn measure(keys: u64) -> Result<Vec<Figure>, Failure> {
    let folder = TemporaryFolder::create("bench")?;
    let path = folder.path().join("backlog.db");
    let path = path.to_str().ok_or_else(|| Failure::usage("the temporary folder's name is not UTF-8"))?;

    let write_s = write(path, keys).await?;
    let metrics = Arc::new(Recording::default());
    let store = SqliteStore::connect(path).await?;
    let outbox = Outbox::builder()
        .store(store)
        .otherwise(async |_: Delivery| Err::<(), _>("nobody is at home"))
        .retry(Backoff::fixed(RETRY))
        .metrics(metrics.clone())
        .start()
        .await?;
    let fail_s = until_each_failed(&metrics, keys).await?;
    let resident = Resident::read()?;
    let stats = outbox.stats().await?;
    outbox.shutdown().await;
    if stats.waiting != keys || stats.held_keys != keys {
        return Err(Failure::bad(format!(
            "each of {keys} keys was to be held once, and there is: {stats:?}"
        )));
    }
    Ok(vec![
        Figure::new("backlog_rss_mib", resident.now_mib).below(RSS_MIB_MAX),
        Figure::new("backlog_rss_peak_mib", resident.peak_mib),
        Figure::new("backlog_keys", keys as f64),
        Figure::new("backlog_write_s", write_s),
        Figure::new("backlog_written_per_s", keys as f64 / write_s),
        Figure::new("backlog_fail_s", fail_s),
        Figure::new("backlog_failed_per_s", keys as f64 / fail_s),
    ])
}

/// Writes one event for each key and returns the seconds that it took.
async fn write(path: &str, keys: u64) -> Result<f64, Failure> {
    let store = SqliteStore::connect(path).await?;
    let pool = store.pool().clone();
    let outbox = Outbox::builder().store(store).write_only().await?;
    let bar = bar("backlog", "write", keys);
    let started = Instant::now();
    let mut written = 0;
    while written < keys {
        let until = keys.min(written + BATCH);
        outbox
            .transaction(&pool, async |tx| {
                let events =
                    (written..until).map(|key| Event::json_text("OrderPlaced", "{}").aggregate("Order", key));
                tx.write_all(events).await
            })
            .await?;
        written = until;
        bar.set_position(written);
    }
    let took = started.elapsed();
    bar.finish_and_clear();
    pool.close().await;
    Ok(took.as_secs_f64())
}

/// Waits until as many failures are settled as there are keys, and returns the seconds that it took.
async fn until_each_failed(metrics: &Recording, keys: u64) -> Result<f64, Failure> {
    let bar = bar("backlog", "fail", keys);
    let started = Instant::now();
    let (mut settled, mut moved) = (0, started);
    while settled < keys {
        tokio::time::sleep(BEAT).await;
        let now = metrics.snapshot().settled;
        if now > settled {
            (settled, moved) = (now, Instant::now());
            bar.set_position(settled);
        } else if moved.elapsed() > STALL {
            return Err(Failure::bad(format!(
                "{settled} of {keys} keys failed, and then none for {STALL:?}"
            )));
        }
    }
    let took = started.elapsed();
    bar.finish_and_clear();
    Ok(took.as_secs_f64())
}
