//! Business code on a pool of deadpool-postgres, delivery by the engine from the same PostgreSQL database.
//!
//! Needs the feature `deadpool-postgres` of `postrider`.
//!
//! ```text
//! cargo run -p postrider-examples --bin postgres_deadpool
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::env;

use deadpool_postgres::{Manager, Pool, tokio_postgres::NoTls};
use postrider::{Delivery, Event, EventBuilder, Outbox, connect};
use tokio::sync::mpsc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn placed(order: i64) -> EventBuilder {
    Event::json_text("OrderPlaced", "{}").aggregate("Order", order)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = env::var("POSTRIDER_TEST_POSTGRES_URL")
        .map_err(|_| "POSTRIDER_TEST_POSTGRES_URL is not set: give the URL of a PostgreSQL database")?;
    let pool = Pool::builder(Manager::new(url.parse()?, NoTls)).max_size(4).build()?;
    let mut client = pool.get().await?;
    client.batch_execute("CREATE TABLE IF NOT EXISTS example_orders (id bigint)").await?;

    let (delivered, mut deliveries) = mpsc::unbounded_channel();
    let outbox = Outbox::builder()
        .shared_store(connect(&url).await?.store)
        .workers(1) // several would print in any order
        .otherwise(move |event: Delivery| {
            let delivered = delivered.clone();
            async move {
                delivered.send(format!("{} of {}", event.event_type(), event.key().unwrap_or("nothing")))
            }
        })
        .start()
        .await?;

    // The change and its event in one transaction. The receipt wakes the engine; without it the next poll finds the event.
    let tx = client.transaction().await?;
    tx.batch_execute("INSERT INTO example_orders VALUES (1)").await?;
    let receipt = outbox.write(&tx, placed(1)).await?;
    tx.commit().await?;
    receipt.committed();
    println!("delivered: {}", deliveries.recv().await.ok_or("the outbox has stopped")?);

    // Rolled back: neither the order nor its event is there.
    let tx = client.transaction().await?;
    tx.batch_execute("INSERT INTO example_orders VALUES (2)").await?;
    let receipt = outbox.write(&tx, placed(2)).await?;
    tx.rollback().await?;
    receipt.rolled_back();

    // Several events in one statement; those of one key come in this order.
    let tx = client.transaction().await?;
    tx.batch_execute("INSERT INTO example_orders VALUES (3)").await?;
    let shipped = Event::json_text("OrderShipped", "{}").aggregate("Order", 3);
    let receipts = outbox.write_all(&tx, [placed(3), shipped]).await?;
    tx.commit().await?;
    receipts.committed();
    for _ in 0..2 {
        println!("delivered: {}", deliveries.recv().await.ok_or("the outbox has stopped")?);
    }

    outbox.shutdown().await;
    println!(
        "orders {}",
        client.query_one("SELECT count(*) FROM example_orders", &[]).await?.try_get::<_, i64>(0)?
    );
    Ok(())
}
