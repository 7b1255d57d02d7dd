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
    let pool = store.pool().clone();
    let (tried, mut attempts) = mpsc::unbounded_channel();
    let outbox = Outbox::builder()
        .store(store)
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
    outbox.transaction(&pool, async |tx| tx.write(Event::json_text("CardCharged", "{}")).await).await?;
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
    let pool = store.pool().clone();
    let (delivered, mut deliveries) = mpsc::unbounded_channel();
    let outbox = Outbox::builder()
        .store(store)
        .retry(|attempt: u32, error: &str| {
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
    outbox.transaction(&pool, async |tx| tx.write(Event::json_text("CardCharged", "{}")).await).await?;
    println!("rule: attempt {} delivered", deliveries.recv().await.ok_or("the outbox has stopped")?);
    outbox.shutdown().await;
    Ok(())
}

/// A rejected event is dead at once: its key waits until somebody redrives or discards it.
async fn dead_letters() -> Result<()> {
    let store = SqliteStore::connect("sqlite::memory:").await?;
    let pool = store.pool().clone();
    let (delivered, mut deliveries) = mpsc::unbounded_channel();
    let repaired = Arc::new(AtomicBool::new(false));
    let is_repaired = repaired.clone();
    let outbox = Outbox::builder()
        .store(store)
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
    outbox.transaction(&pool, async |tx| tx.write_all(charges).await).await?;

    // b2 was not tried: it is behind b1.
    for DeadLetter { id, key, attempts, error, .. } in two_dead(&outbox).await? {
        println!("dead: {id} of {} after {attempts} attempt: {error}", key.unwrap_or_default());
    }
    repaired.store(true, Ordering::SeqCst);
    println!("redriven: {}", outbox.redrive(&["a1".into()]).await?);
    println!("delivered: {}", deliveries.recv().await.ok_or("the outbox has stopped")?);
    println!("discarded: {}", outbox.discard(&["b1".into()]).await?);
    println!("delivered: {}", deliveries.recv().await.ok_or("the outbox has stopped")?);

    outbox.shutdown().await;
    let stats = outbox.stats().await?;
    println!("delivered {}, pending {}, dead {}", stats.done, stats.pending, stats.dead);
    Ok(())
}

/// The dead letters, as soon as there are two.
async fn two_dead(outbox: &Outbox) -> Result<Vec<DeadLetter>> {
    loop {
        let dead = outbox.dead(0, 10).await?;
        if dead.len() == 2 {
            return Ok(dead);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    by_backoff().await?;
    by_rule().await?;
    dead_letters().await
}
