//! Draining a server against bare SQL.
//!
//! * **Ours:** an engine drains 200,000 events with 1 KiB of payload over 1,000 keys into a handler that does nothing. The clock runs from
//!   before the start until the last settle is committed. Once without retention, and once with that of the start.
//! * **The serial bound:** all rows are read, and then all are deleted.
//! * **The two-update design:** rows are claimed by `FOR UPDATE SKIP LOCKED` and written when they are claimed and when they are done.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use postrider::{Delivery, Outbox, Settings};

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
use crate::failure::Failure;

/// How much of the serial bound the engine reaches, and how many times the two-update design.
const POSTGRES_TO_SERIAL_MIN: f64 = 0.9;
const MYSQL_TO_SERIAL_MIN: f64 = 0.5;
const TO_TWO_UPDATE_MIN: f64 = 3.0;
const DEFAULT_TO_TWO_UPDATE_MIN: f64 = 1.5;

/// Of so many events one goes through the two-update design.
const TWO_UPDATE_ONE_OF: u64 = 10;

pub(super) fn count(scale: Scale) -> u64 {
    scale.pick(200_000, 2000)
}

pub(super) async fn measure(
    database: &Database,
    scale: Scale,
    rounds: Rounds,
) -> Result<Vec<Figure>, Failure> {
    let count = count(scale);
    let Some(store) = database.as_postgres() else {
        let turns = rounds
            .by_turns("drain", "events/s", 1, ["ours", "serial"], async |name| {
                database.refill(count).await?;
                match name {
                    "ours" => ours(database, count, Duration::ZERO).await,
                    _ => bound::serial(database, count).await,
                }
            })
            .await?;
        return Ok(vec![
            Figure::new("drain_to_serial_bound", turns.ratio("ours", "serial")).at_least(MYSQL_TO_SERIAL_MIN),
            Figure::new("drain_events_per_s", turns.median("ours")),
            Figure::new("serial_bound_per_s", turns.median("serial")),
        ]);
    };
    let names = ["ours", "serial", "default", "two_update"];
    let turns = rounds
        .by_turns("drain", "events/s", 1, names, async |name| {
            database.refill(count).await?;
            match name {
                "ours" => ours(database, count, Duration::ZERO).await,
                "serial" => bound::serial(database, count).await,
                "default" => ours(database, count, Settings::default().retention).await,
                _ => bound::two_update(store, count.div_ceil(TWO_UPDATE_ONE_OF)).await,
            }
        })
        .await?;
    Ok(vec![
        Figure::new("drain_to_serial_bound", turns.ratio("ours", "serial")).at_least(POSTGRES_TO_SERIAL_MIN),
        Figure::new("drain_to_two_update", turns.ratio("ours", "two_update")).at_least(TO_TWO_UPDATE_MIN),
        Figure::new("drain_default_to_two_update", turns.ratio("default", "two_update"))
            .at_least(DEFAULT_TO_TWO_UPDATE_MIN),
        Figure::new("drain_events_per_s", turns.median("ours")),
        Figure::new("drain_default_per_s", turns.median("default")),
        Figure::new("serial_bound_per_s", turns.median("serial")),
        Figure::new("two_update_per_s", turns.median("two_update")),
    ])
}

/// Events a second of an engine that drains so many.
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
