//! A sink of your own: JSON lines on standard output, a batch at a time.
//!
//! ```text
//! cargo run -p postrider-examples --bin custom_sink
//! ```
//!
//! Whether a sink does what it must is what `sink_conformance!` of `postrider-testkit` tests.

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::{
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use postrider::{
    BatchOrder, BoxFuture, Delivery, Event, Outbox, Outcome, Sink, SinkTraits, sqlite::SqliteStore,
};
use serde::Serialize;

#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    r#type: &'a str,
    key: Option<&'a str>,
    payload: serde_json::Value,
}

struct JsonLines;

impl JsonLines {
    fn line(event: &Event) -> serde_json::Result<String> {
        let payload = serde_json::from_slice(event.payload().as_bytes())?;
        let (id, key) = (event.id().as_str(), event.key());
        serde_json::to_string(&Line { id, r#type: event.event_type(), key, payload })
    }

    /// All lines in one write.
    fn write(lines: &str) -> io::Result<()> {
        let mut output = io::stdout().lock();
        output.write_all(lines.as_bytes())?;
        output.flush()
    }
}

impl Sink for JsonLines {
    fn traits(&self) -> SinkTraits {
        // Lines are written in the order of the batch, so a batch may hold several events of a key.
        SinkTraits {
            order: BatchOrder::Prefix,
            send_timeout: Some(Duration::from_secs(5)),
            ..SinkTraits::SINK
        }
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let mut lines = String::new();
            let mut outcomes = Vec::with_capacity(batch.len());
            let mut rejected = Vec::new();
            for delivery in batch {
                if delivery.key().is_some() && rejected.contains(&delivery.key()) {
                    // It may not be delivered before what stands in front of it.
                    outcomes.push(Outcome::retry("behind a rejected event"));
                    continue;
                }
                outcomes.push(match Self::line(delivery) {
                    Ok(line) => {
                        lines += &line;
                        lines.push('\n');
                        Outcome::Delivered
                    }
                    // It will never become JSON: no use in trying again.
                    Err(error) => {
                        rejected.push(delivery.key());
                        Outcome::rejected(error)
                    }
                });
            }
            match Self::write(&lines) {
                Ok(()) => outcomes,
                // Nobody reads. That is no event's fault, so no attempt is counted.
                Err(error) => vec![Outcome::unavailable(error); batch.len()],
            }
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = SqliteStore::connect("sqlite::memory:").await?;
    let outbox = Outbox::builder()
        .store(store.clone())
        .workers(1) // one batch at a time, so that these lines have an order
        .sink_otherwise(Arc::new(JsonLines))
        .start()
        .await?;

    let order = |id: &str, number, json: &str| {
        Event::json_text("OrderPlaced", json).id(id).aggregate("Order", number)
    };
    let events = [
        order("e1", 1, r#"{"total":12}"#),
        order("e2", 2, r#"{"total":7}"#),
        order("e3", 3, "not JSON"),
        order("e4", 4, r#"{"total":30}"#),
    ];
    outbox.transaction(&store, async |tx| tx.write_all(events).await).await?;
    outbox.drain().await?;
    for letter in outbox.dead(0, 10).await? {
        println!("dead: {}: {}", letter.id, letter.error);
    }
    outbox.shutdown().await;
    Ok(())
}
