//! Business code on tokio-postgres, delivery by the engine from the same PostgreSQL database.
//!
//! Needs the feature `tokio-postgres` of `postrider`.
//!
//! ```text
//! cargo run -p postrider-examples --bin postgres_tokio
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::env;

use postrider::{Delivery, Event, EventBuilder, Outbox, connect};
use tokio::sync::mpsc;
use tokio_postgres::NoTls;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn placed(order: i64) -> EventBuilder {
    Event::json_text("OrderPlaced", "{}").aggregate("Order", order)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = env::var("POSTRIDER_TEST_POSTGRES_URL")
        .map_err(|_| "POSTRIDER_TEST_POSTGRES_URL is not set: give the URL of a PostgreSQL database")?;
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
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

    // A bare client is asked whether it is in a transaction.
    if let Err(error) = outbox.write(&client, placed(4)).await {
        println!("refused: {error}");
    }

    outbox.shutdown().await;
    println!(
        "orders {}",
        client.query_one("SELECT count(*) FROM example_orders", &[]).await?.try_get::<_, i64>(0)?
    );
    Ok(())
}
