//! Measures wake-ups: the time from the return of a commit to the handler, at 50 events a second.
//!
//! Events have a key, so they are read from the table. *Wake* has the writer in the engine's process; *notify* has one that shares only the
//! database with it, like another process.

use std::{sync::Arc, time::Duration};

use postrider::{Delivery, Event, Outbox, postgres::PgStore};
use postrider_relay::Failure;
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval, timeout},
};

use super::{
    super::{
        Scale,
        figure::Figure,
        hot::Clock,
        rounds::{Rounds, median},
    },
    database::Database,
};

/// Limits in milliseconds.
const WAKE_MS_MAX: f64 = 2.0;
const NOTIFY_MS_MAX: f64 = 5.0;

/// The interval of 50 events a second.
const TICK: Duration = Duration::from_millis(20);

/// Timeout of an event.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A poll interval that is too long to matter.
const POLL_MAX: Duration = Duration::from_secs(20);

pub(super) async fn measure(
    database: &Database,
    store: &PgStore,
    scale: Scale,
    rounds: Rounds,
) -> Result<Vec<Figure>, Failure> {
    database.refill(0).await?;
    let clock = Arc::new(Clock::start());
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let at_handler = clock.clone();
    let owner = Outbox::builder()
        .store(store.clone())
        .poll(TICK, POLL_MAX)
        .on("OrderPlaced", move |_: Delivery| {
            let _ = arrived.send(at_handler.since_commit());
            std::future::ready(())
        })
        .write_hook(clock.clone())
        .start()
        .await?;
    let elsewhere = PgStore::connect(&database.url).await?;
    let writer = Outbox::builder().store(elsewhere.clone()).write_hook(clock).write_only().await?;

    let count = scale.pick(100, 10);
    let turns = rounds
        .by_turns("wake", "ms", 1, ["wake", "notify"], async |name| {
            let (outbox, store) = if name == "wake" { (&owner, store) } else { (&writer, &elsewhere) };
            let mut ticks = interval(TICK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut took = Vec::new();
            for number in 0..count {
                ticks.tick().await;
                let event = Event::json_text("OrderPlaced", "{}").aggregate("Order", number);
                outbox.transaction(store, async |tx| tx.write(event).await).await?;
                match timeout(TIMEOUT, arrivals.recv()).await {
                    Ok(Some(time)) => took.push(time.as_secs_f64() * 1e3),
                    _ => return Err(Failure::bad(format!("an event did not come in {TIMEOUT:?}"))),
                }
            }
            Ok(median(took))
        })
        .await?;
    owner.shutdown().await;
    elsewhere.close().await;
    Ok(vec![
        Figure::new("wake_ms_p50", turns.median("wake")).below(WAKE_MS_MAX),
        Figure::new("notify_ms_p50", turns.median("notify")).below(NOTIFY_MS_MAX),
    ])
}
