//! The first program of the README, word for word. It makes `hello.db` in the current folder.
//!
//! Run it with `cargo run -p postrider-examples --bin hello`.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use postrider::{Delivery, Event, Outbox, sqlite::SqliteStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = SqliteStore::connect("hello.db").await?; // creates the file; or "sqlite::memory:"
    sqlx::query("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, total INTEGER)")
        .execute(store.pool()) // a plain sqlx pool, for your own tables
        .await?;

    let outbox = Outbox::builder()
        .store(store.clone())
        .on("OrderPlaced", async |order: Delivery| {
            // runs after the commit; again if it fails
            println!(
                "placed {}: {}",
                order.aggregate_id().unwrap_or("?"),
                order.payload().as_text().unwrap_or("?")
            );
        })
        .start() // creates its tables, starts to deliver
        .await?;

    outbox
        .transaction(&store, async |tx| {
            let order = sqlx::query("INSERT INTO orders (total) VALUES (12)").execute(tx.conn()).await?;
            let id = order.last_insert_rowid();
            tx.write(Event::json_text("OrderPlaced", r#"{"total":12}"#).aggregate("Order", id)).await?;
            Ok::<_, Box<dyn std::error::Error>>(()) // an Err here rolls back the order and the event
        })
        .await?;

    outbox.drain().await?; // a service runs on; this program ends here
    outbox.shutdown().await;
    Ok(())
}
