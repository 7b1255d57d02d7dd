//! What runs around every delivery: a type that does something before and after, and closures for one of the two.
//!
//! `before` runs in the order of registration and may refuse, which is a failed attempt. `after` runs in reverse order,
//! for those whose `before` went well, and sees the outcome.
//!
//! ```text
//! cargo run -p postrider-examples --bin interceptors
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use postrider::{
    Backoff, BoxFuture, Delivery, Event, Interceptor, Outbox, Outcome,
    interceptor::{self, InterceptorError},
    sqlite::SqliteStore,
};
use tokio::sync::mpsc;

/// Counts deliveries.
#[derive(Default)]
struct Counter {
    begun: AtomicU32,
    failed: AtomicU32,
}

impl Interceptor for Counter {
    fn before<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<(), InterceptorError>> {
        Box::pin(async move {
            self.begun.fetch_add(1, Ordering::Relaxed);
            println!("counter: attempt {} begins", delivery.attempt);
            Ok(())
        })
    }

    fn after<'a>(
        &'a self,
        _delivery: &'a Delivery,
        outcome: &'a Outcome,
    ) -> BoxFuture<'a, Result<(), InterceptorError>> {
        Box::pin(async move {
            if let Some(error) = outcome.error() {
                self.failed.fetch_add(1, Ordering::Relaxed);
                println!("counter: {error}");
            }
            Ok(())
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = SqliteStore::connect("sqlite::memory:").await?;
    let counter = Arc::new(Counter::default());
    let (done, mut finished) = mpsc::unbounded_channel();
    let outbox = Outbox::builder()
        .store(store.clone())
        .retry(Backoff::fixed(Duration::from_millis(10)))
        .interceptor(counter.clone())
        .interceptor(interceptor::before(async |delivery: Delivery| {
            // The handler is not called, and the event is tried again.
            if delivery.attempt == 1 {
                Err("gate: closed")?;
            }
            println!("gate: open");
            Ok(())
        }))
        .interceptor(interceptor::after(move |delivery: Delivery, outcome: Outcome| {
            let done = done.clone();
            async move {
                println!("audit: {} {outcome:?}", delivery.id());
                done.send(())?;
                Ok(())
            }
        }))
        .on("OrderPlaced", async |_: Delivery| println!("handler"))
        .start()
        .await?;

    let event = Event::json_text("OrderPlaced", "{}").id("e1");
    outbox.transaction(&store, async |tx| tx.write(event).await).await?;
    finished.recv().await.ok_or("the outbox has stopped")?;

    outbox.shutdown().await;
    let (begun, failed) = (counter.begun.load(Ordering::Relaxed), counter.failed.load(Ordering::Relaxed));
    println!("{begun} attempts, {failed} failed");
    Ok(())
}
