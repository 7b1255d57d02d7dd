//! Measures draining a server against bare SQL.
//!
//! * **Ours:** an engine drains 200,000 events with 1 KiB of payload over 1,000 keys into a handler that does nothing. The clock runs from
//!   before the start until the last settle is committed. Once without retention, and once with the default retention.
//! * **The serial bound**, 1/(1/SELECT + 1/DELETE): all rows are read with all their values, each batch from where the last one ended, and then
//!   all are deleted by their numbers, one transaction per batch.
//! * **The two-update design** (PostgreSQL): rows are claimed by `FOR UPDATE SKIP LOCKED` and updated when they are claimed and when they
//!   are done.
//!
//! All take 500 rows at a time, which is the relay's claim batch, over the same table.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use postrider::{Delivery, Outbox, Settings};
use postrider_relay::Failure;

use super::{
    super::{
        Scale,
        figure::Figure,
        rounds::{Rounds, per_second},
        settled::Settled,
    },
    BATCH, bound,
    database::Database,
};

/// Limits: the engine's rate over the serial bound, and over the two-update design.
const POSTGRES_TO_SERIAL_MIN: f64 = 0.9;
const MYSQL_TO_SERIAL_MIN: f64 = 0.5;
const TO_TWO_UPDATE_MIN: f64 = 3.0;
const DEFAULT_TO_TWO_UPDATE_MIN: f64 = 1.5;

/// One in this many events goes through the two-update design, which is slow; a part of them is enough.
const TWO_UPDATE_ONE_OF: u64 = 4;

pub(super) fn count(scale: Scale) -> u64 {
    scale.pick(200_000, 2000)
}

pub(super) async fn measure(
    database: &Database,
    scale: Scale,
    rounds: Rounds,
) -> Result<Vec<Figure>, Failure> {
    let count = count(scale);
    let turn = async |name| {
        // The next turn deletes what this one reads.
        if name != "delete" {
            database.refill(count).await?;
        }
        match (name, database.as_postgres()) {
            ("select", _) => bound::select(database, count).await,
            ("delete", _) => bound::delete(database, count).await,
            ("default", _) => ours(database, count, Settings::default().retention).await,
            ("two_update", Some(store)) => bound::two_update(store, count.div_ceil(TWO_UPDATE_ONE_OF)).await,
            _ => ours(database, count, Duration::ZERO).await,
        }
    };
    let (bench, unit) = ("drain", "events/s");
    let mut turns = match database.as_postgres() {
        Some(_) => {
            let names = ["ours", "select", "delete", "default", "two_update"];
            rounds.by_turns(bench, unit, 1, names, turn).await?
        }
        None => rounds.by_turns(bench, unit, 1, ["ours", "select", "delete", "default"], turn).await?,
    };
    turns.add_serial("serial", "select", "delete");
    let is_postgres = database.as_postgres().is_some();
    let to_serial_min = if is_postgres { POSTGRES_TO_SERIAL_MIN } else { MYSQL_TO_SERIAL_MIN };
    let mut figures =
        vec![Figure::new("drain_to_serial_bound", turns.ratio("ours", "serial")).at_least(to_serial_min)];
    if is_postgres {
        figures.extend([
            Figure::new("drain_to_two_update", turns.ratio("ours", "two_update")).at_least(TO_TWO_UPDATE_MIN),
            Figure::new("drain_default_to_two_update", turns.ratio("default", "two_update"))
                .at_least(DEFAULT_TO_TWO_UPDATE_MIN),
            Figure::new("two_update_per_s", turns.median("two_update")),
        ]);
    }
    figures.extend([
        Figure::new("drain_events_per_s", turns.median("ours")),
        Figure::new("drain_default_per_s", turns.median("default")),
        Figure::new("select_per_s", turns.median("select")),
        Figure::new("delete_per_s", turns.median("delete")),
        Figure::new("serial_bound_per_s", turns.median("serial")),
    ]);
    Ok(figures)
}

/// Events per second of an engine that drains this many.
pub(super) async fn ours(database: &Database, count: u64, retention: Duration) -> Result<f64, Failure> {
    let settled = Settled::all_of(count);
    let started = Instant::now();
    let outbox = Outbox::builder()
        .shared_store(database.store())
        .on("OrderPlaced", async |_: Delivery| ())
        .claim_batch(BATCH)
        .cold_queue(4 * BATCH)
        .retention(retention)
        .metrics(settled.clone())
        .start()
        .await?;
    settled.wait(&ProgressBar::hidden()).await?;
    let took = started.elapsed();
    outbox.shutdown().await;
    Ok(per_second(count, took))
}
