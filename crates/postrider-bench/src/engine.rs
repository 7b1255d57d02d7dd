//! Measures the engine against a channel, the least that could carry an event.
//!
//! * **Ours:** the events are in an in-memory store, one key each. An engine with default settings claims them 200 at a time into its queue of
//!   1000, gives each to a handler that does nothing, and settles it; retention is zero. The clock runs from before the start until the last settle
//!   is committed.
//! * **The bound:** a task clones the same events 200 at a time, as a claim does, and sends each through a bounded tokio channel of 1000; another
//!   task receives and counts them. The clock runs until the last is counted.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use postrider::{Delivery, Event, EventError, Outbox, Settings, memory::MemoryStore};
use postrider_relay::Failure;
use tokio::sync::mpsc;

use super::{
    Scale,
    figure::Figure,
    files::event,
    rounds::{Rounds, per_second},
    settled::Settled,
};

/// Limit: the engine's rate over the channel's.
const RATIO_MIN: f64 = 0.25;

const PAYLOAD_BYTES: usize = 100;

/// Events in one transaction of the writer.
const BATCH: usize = 2000;

pub(super) async fn measure(scale: Scale, rounds: Rounds) -> Result<Vec<Figure>, Failure> {
    let count = scale.pick(100_000, 5000);
    let events: Result<Vec<Event>, EventError> =
        (0..count).map(|n| event(n, PAYLOAD_BYTES).build()).collect();
    let events = events.map_err(postrider::Error::from)?;
    let turns = rounds
        .by_turns("engine", "events/s", 1, ["ours", "bound"], async |name| match name {
            "ours" => ours(&events).await,
            _ => bound(&events).await,
        })
        .await?;
    Ok(vec![
        Figure::new("engine_to_channel", turns.ratio("ours", "bound")).at_least(RATIO_MIN),
        Figure::new("memory_events_per_s", turns.median("ours")),
        Figure::new("channel_events_per_s", turns.median("bound")),
    ])
}

async fn ours(events: &[Event]) -> Result<f64, Failure> {
    let store = MemoryStore::new(1);
    let writer = Outbox::builder().store(store.clone()).write_only().await?;
    for batch in events.chunks(BATCH) {
        writer.transaction(&store, async |tx| tx.write_all(batch.iter().cloned()).await).await?;
    }
    let settled = Settled::all_of(events.len() as u64);
    let started = Instant::now();
    let outbox = Outbox::builder()
        .store(store)
        .on("OrderPlaced", async |_: Delivery| ())
        .retention(Duration::ZERO)
        .metrics(settled.clone())
        .start()
        .await?;
    settled.wait(&ProgressBar::hidden()).await?;
    let took = started.elapsed();
    outbox.shutdown().await;
    Ok(per_second(events.len() as u64, took))
}

async fn bound(events: &[Event]) -> Result<f64, Failure> {
    let Settings { claim_batch, cold_queue, .. } = Settings::default();
    // The sender must own its events; the engine's rows are in its store before the clock starts, too.
    let rows = events.to_vec();
    let (sender, mut receiver) = mpsc::channel::<Event>(cold_queue);
    let started = Instant::now();
    let sending = tokio::spawn(async move {
        for rows in rows.chunks(claim_batch) {
            let batch = rows.to_vec();
            for event in batch {
                if sender.send(event).await.is_err() {
                    return;
                }
            }
        }
    });
    let all = events.len();
    let counting = tokio::spawn(async move {
        let mut count = 0;
        // Stop before the channel closes: dropping the sender's events is not part of the bound.
        while count < all && receiver.recv().await.is_some() {
            count += 1;
        }
        (count, Instant::now())
    });
    let lost = |error| Failure::unreachable("a task of the benchmark ended early", &error);
    sending.await.map_err(lost)?;
    let (count, ended) = counting.await.map_err(lost)?;
    if count != all {
        return Err(Failure::bad(format!("{count} of {all} events came through the channel")));
    }
    Ok(per_second(count as u64, ended - started))
}
