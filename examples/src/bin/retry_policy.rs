//! What happens to an event that fails: retries by a backoff, retries by a rule of your own, and for one that is
//! rejected the dead letters: looked at, redriven, discarded.
//!
//! ```text
//! cargo run -p postrider-examples --bin retry_policy
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use postrider::{Backoff, Delivery, Event, Outbox, Outcome, sqlite::SqliteStore, store::DeadLetter};
use tokio::sync::mpsc;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// About 10 ms, then 20 ms, 40 ms, … up to a second, each times a random factor.
async fn by_backoff() -> Result<()> {
    let store = SqliteStore::connect("sqlite::memory:").await?;
    let (tried, mut attempts) = mpsc::unbounded_channel();
    let outbox = Outbox::builder()
        .store(store.clone())
        .retry(Backoff::new(Duration::from_millis(10)).max(Duration::from_secs(1)))
        .max_attempts(5)
        .on("CardCharged", move |charge: Delivery| {
            let tried = tried.clone();
            async move {
                let _ = tried.send(charge.attempt);
                // Any error is a retry.
                if charge.attempt < 3 { Err("the bank does not answer") } else { Ok(()) }
            }
        })
        .start()
        .await?;
    outbox.transaction(&store, async |tx| tx.write(Event::json_text("CardCharged", "{}")).await).await?;
    for _ in 0..3 {
        println!("backoff: attempt {}", attempts.recv().await.ok_or("the outbox has stopped")?);
    }
    outbox.shutdown().await;
    println!("backoff: delivered {}", outbox.stats().await?.done);
    Ok(())
}

/// A closure of the attempt that failed and its error is a policy too.
async fn by_rule() -> Result<()> {
    let store = SqliteStore::connect("sqlite::memory:").await?;
    let (delivered, mut deliveries) = mpsc::unbounded_channel();
    let outbox = Outbox::builder()
        .store(store.clone())
        .retry_with(|attempt, error| {
            let delay = Duration::from_millis(if error.contains("too many") { 50 } else { 10 });
            println!("rule: attempt {attempt} failed, {error}: again in {delay:?}");
            delay
        })
        .on("CardCharged", move |charge: Delivery| {
            let delivered = delivered.clone();
            async move {
                match charge.attempt {
                    1 => Err("the bank does not answer"),
                    2 => Err("too many requests"),
                    attempt => delivered.send(attempt).map_err(|_| "nobody listens"),
                }
            }
        })
        .start()
        .await?;
    outbox.transaction(&store, async |tx| tx.write(Event::json_text("CardCharged", "{}")).await).await?;
    println!("rule: attempt {} delivered", deliveries.recv().await.ok_or("the outbox has stopped")?);
    outbox.shutdown().await;
    Ok(())
}

/// A rejected event is dead at once: its key waits until somebody redrives or discards it.
async fn dead_letters() -> Result<()> {
    let store = SqliteStore::connect("sqlite::memory:").await?;
    let (delivered, mut deliveries) = mpsc::unbounded_channel();
    let repaired = Arc::new(AtomicBool::new(false));
    let is_repaired = repaired.clone();
    let outbox = Outbox::builder()
        .store(store.clone())
        .on("CardCharged", move |charge: Delivery| {
            let delivered = delivered.clone();
            let knows_cards = is_repaired.load(Ordering::SeqCst);
            async move {
                if !knows_cards {
                    return Outcome::rejected("no such card");
                }
                match delivered.send(charge.id().clone()) {
                    Ok(()) => Outcome::Delivered,
                    Err(error) => Outcome::retry(error),
                }
            }
        })
        .start()
        .await?;

    let charge = |id: &str, card| Event::json_text("CardCharged", "{}").id(id).aggregate("Card", card);
    let charges = [charge("a1", 'A'), charge("b1", 'B'), charge("b2", 'B')];
    outbox.transaction(&store, async |tx| tx.write_all(charges).await).await?;

    outbox.drain().await?;
    // b2 was not tried: it is behind b1.
    for DeadLetter { id, key, attempts, error, .. } in outbox.dead(0, 10).await? {
        println!("dead: {id} of {} after {attempts} attempt: {error}", key.unwrap_or_default());
    }
    repaired.store(true, Ordering::SeqCst);
    println!("redriven: {}", outbox.redrive(["a1"]).await?);
    println!("delivered: {}", deliveries.recv().await.ok_or("the outbox has stopped")?);
    println!("discarded: {}", outbox.discard(["b1"]).await?);
    println!("delivered: {}", deliveries.recv().await.ok_or("the outbox has stopped")?);

    outbox.shutdown().await;
    let stats = outbox.stats().await?;
    println!("delivered {}, pending {}, dead {}", stats.done, stats.pending, stats.dead);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    by_backoff().await?;
    by_rule().await?;
    dead_letters().await
}
