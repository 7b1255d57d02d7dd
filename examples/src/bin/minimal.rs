//! The smallest whole: a database in memory, a change and its event in one transaction, the delivery, the end.
//!
//! ```text
//! cargo run -p postrider-examples --bin minimal
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use postrider::{Delivery, Event, Outbox, sqlite::SqliteStore};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

#[derive(Serialize, Deserialize)]
struct OrderPlaced {
    total_cents: i64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = SqliteStore::connect("sqlite::memory:").await?;
    let pool = store.pool().clone();
    sqlx::query("CREATE TABLE orders (id INTEGER PRIMARY KEY, total_cents INTEGER)").execute(&pool).await?;

    // The tables of the outbox are created by start().
    let (delivered, mut deliveries) = mpsc::unbounded_channel();
    let outbox = Outbox::builder()
        .store(store)
        .on("OrderPlaced", move |order: Delivery| {
            let delivered = delivered.clone();
            async move { delivered.send(order) } // an error would be a retry
        })
        .start()
        .await?;

    // Both happen, or neither.
    outbox
        .transaction(&pool, async |tx| {
            sqlx::query("INSERT INTO orders VALUES (42, 1250)").execute(tx.conn()).await?;
            let event = Event::json("OrderPlaced", &OrderPlaced { total_cents: 1250 })?;
            tx.write(event.aggregate("Order", 42)).await?;
            Ok::<_, Box<dyn std::error::Error>>(())
        })
        .await?;

    let order = deliveries.recv().await.ok_or("the outbox has stopped")?;
    let OrderPlaced { total_cents } = order.read_json()?;
    println!("{} {}: {total_cents} cents", order.event_type(), order.key().unwrap_or_default());

    outbox.shutdown().await;
    let stats = outbox.stats().await?;
    println!("delivered {}, pending {}", stats.done, stats.pending);
    Ok(())
}
