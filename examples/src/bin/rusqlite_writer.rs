//! A writer that blocks: business code on rusqlite, delivery by the engine on the same file.
//!
//! Needs the feature `rusqlite` of `postrider`.
//!
//! ```text
//! cargo run -p postrider-examples --bin rusqlite_writer
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::{error::Error, time::Duration};

use postrider::{Delivery, Event, Outbox, sqlite::SqliteStore};
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::mpsc;

/// Ordinary rusqlite code with one more line in its transaction.
fn place_order(conn: &mut Connection, outbox: &Outbox, id: i64) -> Result<(), Box<dyn Error + Send + Sync>> {
    // The engine writes too, so the lock is taken at the beginning: one that is taken later can be refused.
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute("INSERT INTO orders VALUES (?1)", [id])?;
    let receipt = outbox.write_blocking(&tx, Event::json_text("OrderPlaced", "{}").aggregate("Order", id))?;
    tx.commit()?;
    receipt.committed();
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let folder = std::env::temp_dir().join(format!("postrider-rusqlite-writer-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("shop.db");

    let (delivered, mut deliveries) = mpsc::unbounded_channel();
    let outbox = Outbox::builder()
        .store(SqliteStore::connect(&file.to_string_lossy()).await?)
        .on("OrderPlaced", move |order: Delivery| {
            let delivered = delivered.clone();
            async move { delivered.send(order) }
        })
        .start()
        .await?;

    let writer = outbox.clone();
    let writing = tokio::task::spawn_blocking(move || {
        let mut conn = Connection::open(file)?;
        conn.busy_timeout(Duration::from_secs(5))?;
        conn.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY)")?;
        place_order(&mut conn, &writer, 1)?;
        place_order(&mut conn, &writer, 2)?;
        // The order exists already, so this is rolled back before its event is written.
        Ok::<_, Box<dyn Error + Send + Sync>>(place_order(&mut conn, &writer, 2).is_err())
    });
    println!("a second order 2 fails: {}", writing.await??);

    let mut orders = Vec::new();
    for _ in 0..2 {
        let order = deliveries.recv().await.ok_or("the outbox has stopped")?;
        orders.push(order.key().unwrap_or_default().to_owned());
    }
    orders.sort(); // two keys have no order between them
    println!("delivered: {}", orders.join(", "));

    outbox.shutdown().await;
    println!("pending {}", outbox.stats().await?.pending);
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
