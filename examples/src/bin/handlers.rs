//! Which handlers an event goes to: one, a list in order, the one for all others, and one for every event.
//!
//! ```text
//! cargo run -p postrider-examples --bin handlers
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use postrider::{Delivery, Event, Outbox, handler, sqlite::SqliteStore};
use tokio::sync::mpsc;

/// A handler may be a function, and may fail: the event is tried again.
async fn send_invoice(order: Delivery) -> Result<(), std::str::Utf8Error> {
    println!("  invoice for {}", std::str::from_utf8(order.payload().as_bytes())?);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = SqliteStore::connect("sqlite::memory:").await?;
    let (done, mut finished) = mpsc::unbounded_channel();
    let outbox = Outbox::builder()
        .store(store.clone())
        .on("OrderCancelled", async |_: Delivery| println!("  restock"))
        // In this order. If one fails, those behind it do not run, and a retry begins with the first again.
        .on_list(
            "OrderPlaced",
            [handler(async |_: Delivery| println!("  reserve stock")), handler(send_invoice)],
        )
        .otherwise(async |event: Delivery| println!("  nobody else wants {}", event.event_type()))
        // After the handlers above, for every event. This one has state: it clones what each call takes along.
        .always(move |event: Delivery| {
            let done = done.clone();
            async move {
                println!("  audit {}", event.id());
                done.send(())
            }
        })
        .start()
        .await?;

    for (id, event_type) in [("e1", "OrderPlaced"), ("e2", "OrderCancelled"), ("e3", "OrderLost")] {
        println!("{event_type}");
        let event = Event::bytes(event_type, "text/plain", "order 1").id(id);
        outbox.transaction(&store, async |tx| tx.write(event).await).await?;
        finished.recv().await.ok_or("the outbox has stopped")?;
    }
    outbox.shutdown().await;
    Ok(())
}
