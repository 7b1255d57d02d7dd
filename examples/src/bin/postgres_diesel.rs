//! Business code on diesel-async, delivery by the engine from the same PostgreSQL database.
//!
//! Needs the feature `diesel-async` of `postrider`.
//!
//! ```text
//! cargo run -p postrider-examples --bin postgres_diesel
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::env;

use diesel::{QueryableByName, sql_query, sql_types::BigInt};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use postrider::{Delivery, Event, EventBuilder, Outbox, connect};
use tokio::sync::mpsc;

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    orders: i64,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn placed(order: i64) -> EventBuilder {
    Event::json_text("OrderPlaced", "{}").aggregate("Order", order)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = env::var("POSTRIDER_TEST_POSTGRES_URL")
        .map_err(|_| "POSTRIDER_TEST_POSTGRES_URL is not set: give the URL of a PostgreSQL database")?;
    let mut conn = AsyncPgConnection::establish(&url).await?;
    conn.batch_execute("CREATE TABLE IF NOT EXISTS example_orders (id bigint)").await?;

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
    let receipt = conn
        .transaction(async |conn| {
            sql_query("INSERT INTO example_orders VALUES (1)").execute(conn).await?;
            Ok::<_, Failure>(outbox.write(&mut *conn, placed(1)).await?)
        })
        .await?;
    receipt.committed();
    println!("delivered: {}", deliveries.recv().await.ok_or("the outbox has stopped")?);

    // Rolled back: neither the order nor its event is there.
    let refused: Result<(), Failure> = conn
        .transaction(async |conn| {
            sql_query("INSERT INTO example_orders VALUES (2)").execute(conn).await?;
            outbox.write(&mut *conn, placed(2)).await?.rolled_back();
            Err("out of stock".into())
        })
        .await;
    assert!(refused.is_err());

    // Several events in one statement; those of one key come in this order.
    let receipts = conn
        .transaction(async |conn| {
            sql_query("INSERT INTO example_orders VALUES (3)").execute(conn).await?;
            let shipped = Event::json_text("OrderShipped", "{}").aggregate("Order", 3);
            Ok::<_, Failure>(outbox.write_all(&mut *conn, [placed(3), shipped]).await?)
        })
        .await?;
    receipts.committed();
    for _ in 0..2 {
        println!("delivered: {}", deliveries.recv().await.ok_or("the outbox has stopped")?);
    }

    // A transaction of diesel's has the type of its connection, so the connection is asked whether it is in one.
    if let Err(error) = outbox.write(&mut conn, placed(4)).await {
        println!("refused: {error}");
    }

    outbox.shutdown().await;
    let count: Count =
        sql_query("SELECT count(*) AS orders FROM example_orders").get_result(&mut conn).await?;
    println!("orders {}", count.orders);
    Ok(())
}
