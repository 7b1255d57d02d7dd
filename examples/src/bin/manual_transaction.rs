//! Events in a transaction of your own: commit and tell the receipt, roll back and nothing is ever delivered. Then the
//! form between that and `Outbox::transaction`: a guard that Postrider commits, and that rolls back when it is dropped.
//!
//! ```text
//! cargo run -p postrider-examples --bin manual_transaction
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use postrider::{Delivery, Event, Outbox, sqlite::SqliteStore};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = SqliteStore::connect("sqlite::memory:").await?;
    let pool = store.pool().clone();
    sqlx::query("CREATE TABLE orders (id INTEGER PRIMARY KEY)").execute(&pool).await?;

    let (delivered, mut deliveries) = mpsc::unbounded_channel();
    let outbox = Outbox::builder()
        .store(store)
        .on("OrderPlaced", move |order: Delivery| {
            let delivered = delivered.clone();
            async move { delivered.send(order.id().clone()) }
        })
        .start()
        .await?;

    // Your own transaction. The receipt wakes the engine; without it the next poll would find the event.
    let mut tx = pool.begin().await?;
    sqlx::query("INSERT INTO orders VALUES (1)").execute(&mut *tx).await?;
    let receipt = outbox.write(&mut tx, Event::json_text("OrderPlaced", "{}").id("placed-1")).await?;
    tx.commit().await?;
    receipt.committed();
    println!("delivered: {}", deliveries.recv().await.ok_or("the outbox has stopped")?);

    // Rolled back: the order does not exist, and neither does its event.
    let mut tx = pool.begin().await?;
    sqlx::query("INSERT INTO orders VALUES (2)").execute(&mut *tx).await?;
    let receipt = outbox.write(&mut tx, Event::json_text("OrderPlaced", "{}").id("placed-2")).await?;
    tx.rollback().await?;
    receipt.rolled_back();
    println!("placed-2 is {:?}", outbox.status("placed-2").await?);

    // A guard. Postrider sees the commit, so there is no receipt to tell.
    let mut tx = outbox.begin(&pool).await?;
    sqlx::query("INSERT INTO orders VALUES (3)").execute(tx.conn()).await?;
    tx.write(Event::json_text("OrderPlaced", "{}").id("placed-3")).await?;
    tx.commit().await?;
    println!("delivered: {}", deliveries.recv().await.ok_or("the outbox has stopped")?);

    // A guard that goes out of scope rolls back.
    {
        let mut tx = outbox.begin(&pool).await?;
        sqlx::query("INSERT INTO orders VALUES (4)").execute(tx.conn()).await?;
        tx.write(Event::json_text("OrderPlaced", "{}").id("placed-4")).await?;
    }
    println!("placed-4 is {:?}", outbox.status("placed-4").await?);

    outbox.shutdown().await;
    let orders: Vec<i64> = sqlx::query_scalar("SELECT id FROM orders ORDER BY id").fetch_all(&pool).await?;
    println!("orders {orders:?}, events delivered: {}", outbox.stats().await?.done);
    Ok(())
}
