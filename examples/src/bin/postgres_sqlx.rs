//! Business code on sqlx and PostgreSQL, with transactions of its own; delivery by the engine from the same database.
//!
//! Needs the feature `postgres` of `postrider`.
//!
//! ```text
//! cargo run -p postrider-examples --bin postgres_sqlx
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::env;

use postrider::{Delivery, Event, EventBuilder, Outbox, postgres::PgStore};
use tokio::sync::mpsc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn placed(order: i64) -> EventBuilder {
    Event::json_text("OrderPlaced", "{}").aggregate("Order", order)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = env::var("POSTRIDER_TEST_POSTGRES_URL")
        .map_err(|_| "POSTRIDER_TEST_POSTGRES_URL is not set: give the URL of a PostgreSQL database")?;
    let store = PgStore::connect(&url).await?;
    let pool = store.pool().clone();
    sqlx::query("CREATE TABLE IF NOT EXISTS example_orders (id bigint)").execute(&pool).await?;

    let (delivered, mut deliveries) = mpsc::unbounded_channel();
    let outbox = Outbox::builder()
        .store(store)
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
    let mut tx = pool.begin().await?;
    sqlx::query("INSERT INTO example_orders VALUES (1)").execute(&mut *tx).await?;
    let receipt = outbox.write(&mut tx, placed(1)).await?;
    tx.commit().await?;
    receipt.committed();
    println!("delivered: {}", deliveries.recv().await.ok_or("the outbox has stopped")?);

    // Rolled back: neither the order nor its event is there.
    let mut tx = pool.begin().await?;
    sqlx::query("INSERT INTO example_orders VALUES (2)").execute(&mut *tx).await?;
    let receipt = outbox.write(&mut tx, placed(2)).await?;
    tx.rollback().await?;
    receipt.rolled_back();

    // Several events in one statement; those of one key come in this order.
    let mut tx = pool.begin().await?;
    sqlx::query("INSERT INTO example_orders VALUES (3)").execute(&mut *tx).await?;
    let shipped = Event::json_text("OrderShipped", "{}").aggregate("Order", 3);
    let receipts = outbox.write_all(&mut tx, [placed(3), shipped]).await?;
    tx.commit().await?;
    receipts.committed();
    for _ in 0..2 {
        println!("delivered: {}", deliveries.recv().await.ok_or("the outbox has stopped")?);
    }

    outbox.shutdown().await;
    println!(
        "orders {}",
        sqlx::query_scalar::<_, i64>("SELECT count(*) FROM example_orders").fetch_one(&pool).await?
    );
    Ok(())
}
