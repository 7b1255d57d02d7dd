//! Business code on sea-orm, delivery by the engine from the same PostgreSQL database.
//!
//! Needs the feature `sea-orm` of `postrider`.
//!
//! ```text
//! cargo run -p postrider-examples --bin postgres_sea_orm
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::env;

use postrider::{Delivery, Event, EventBuilder, Outbox, connect};
use sea_orm::{ConnectionTrait, Database, DbBackend, Statement, TransactionTrait};
use tokio::sync::mpsc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn placed(order: i64) -> EventBuilder {
    Event::json_text("OrderPlaced", "{}").aggregate("Order", order)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = env::var("POSTRIDER_TEST_POSTGRES_URL")
        .map_err(|_| "POSTRIDER_TEST_POSTGRES_URL is not set: give the URL of a PostgreSQL database")?;
    let db = Database::connect(&url).await?;
    db.execute_unprepared("CREATE TABLE IF NOT EXISTS example_orders (id bigint)").await?;

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
    let tx = db.begin().await?;
    tx.execute_unprepared("INSERT INTO example_orders VALUES (1)").await?;
    let receipt = outbox.write(&tx, placed(1)).await?;
    tx.commit().await?;
    receipt.committed();
    println!("delivered: {}", deliveries.recv().await.ok_or("the outbox has stopped")?);

    // Rolled back: neither the order nor its event is there.
    let tx = db.begin().await?;
    tx.execute_unprepared("INSERT INTO example_orders VALUES (2)").await?;
    let receipt = outbox.write(&tx, placed(2)).await?;
    tx.rollback().await?;
    receipt.rolled_back();

    // Several events in one statement; those of one key come in this order.
    let tx = db.begin().await?;
    tx.execute_unprepared("INSERT INTO example_orders VALUES (3)").await?;
    let shipped = Event::json_text("OrderShipped", "{}").aggregate("Order", 3);
    let receipts = outbox.write_all(&tx, [placed(3), shipped]).await?;
    tx.commit().await?;
    receipts.committed();
    for _ in 0..2 {
        println!("delivered: {}", deliveries.recv().await.ok_or("the outbox has stopped")?);
    }

    outbox.shutdown().await;
    let count = Statement::from_string(DbBackend::Postgres, "SELECT count(*) FROM example_orders");
    let count = db.query_one_raw(count).await?.ok_or("no count")?;
    println!("orders {}", count.try_get_by_index::<i64>(0)?);
    Ok(())
}
