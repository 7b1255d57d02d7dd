//! Functions whose result is the event: `#[publish]` writes what they return, in the transaction that they were given.
//!
//! ```text
//! cargo run -p postrider-examples --bin publish
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use postrider::{
    Delivery, Outbox, Tx, publish,
    sqlite::{SqliteStore, SqliteTx},
};
use serde::Serialize;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Serialize)]
struct Order {
    id: i64,
    total: i64,
}

#[derive(Serialize)]
struct Line {
    order: i64,
    article: &'static str,
}

/// The order that it returns is written as an event. If it fails, nothing is.
#[publish(event_type = "OrderPlaced", aggregate = ("Order", |order| order.id))]
async fn place(tx: &mut Tx<SqliteTx>, total: i64) -> Result<Order> {
    let placed = sqlx::query("INSERT INTO orders (total) VALUES (?)").bind(total).execute(tx.conn()).await?;
    if total <= 0 {
        return Err("an order of nothing".into());
    }
    Ok(Order { id: placed.last_insert_rowid(), total })
}

/// A list: one event for each line, behind the order's own because they have its key.
#[publish(event_type = "LineAdded", each, aggregate = ("Order", |line| line.order))]
async fn add_lines(tx: &mut Tx<SqliteTx>, order: i64, articles: &[&'static str]) -> Result<Vec<Line>> {
    sqlx::query("UPDATE orders SET lines = ? WHERE id = ?")
        .bind(i64::try_from(articles.len())?)
        .bind(order)
        .execute(tx.conn())
        .await?;
    Ok(articles.iter().map(|article| Line { order, article }).collect())
}

#[tokio::main]
async fn main() -> Result<()> {
    let store = SqliteStore::connect("sqlite::memory:").await?;
    sqlx::query("CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER, lines INTEGER DEFAULT 0)")
        .execute(store.pool())
        .await?;
    let outbox = Outbox::builder()
        .store(store.clone())
        .otherwise(async |event: Delivery| {
            let payload = event.payload().as_text().unwrap_or_default();
            println!("{} of {}: {payload}", event.event_type(), event.key().unwrap_or_default());
        })
        .start()
        .await?;

    let order = outbox
        .transaction(&store, async |tx| {
            let order = place(tx, 12).await?;
            add_lines(tx, order.id, &["pen", "ink"]).await?;
            Result::Ok(order)
        })
        .await?;
    outbox.drain().await?;
    println!("order {} over {} is placed", order.id, order.total);

    // The transaction goes with the error, so neither the row nor an event is left.
    if let Err(error) = outbox.transaction(&store, async |tx| place(tx, 0).await).await {
        println!("refused: {error}");
    }
    outbox.drain().await?;
    outbox.shutdown().await;
    println!("delivered {}, pending {}", outbox.stats().await?.done, outbox.stats().await?.pending);
    Ok(())
}
