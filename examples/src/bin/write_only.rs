//! One process writes, another delivers: they share nothing but the database file. The program starts itself a second time,
//! with the file as its argument, to be the one that delivers.
//!
//! ```text
//! cargo run -p postrider-examples --bin write_only
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use postrider::{Delivery, Event, Outbox, sqlite::SqliteStore};
use tokio::sync::mpsc;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ORDERS: i64 = 3;

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::args().nth(1) {
        None => write().await,
        Some(file) => deliver(&file).await,
    }
}

/// A service that takes orders. Its outbox has no engine: no polling, no lease, no handlers.
async fn write() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("postrider-write-only-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("shop.db");
    let store = SqliteStore::connect(&file.to_string_lossy()).await?;
    let outbox = Outbox::builder().store(store.clone()).write_only().await?;

    let mut other = Command::new(std::env::current_exe()?).arg(&file).stdout(Stdio::piped()).spawn()?;
    for id in 1..=ORDERS {
        let event = Event::json_text("OrderPlaced", format!(r#"{{"id":{id}}}"#)).key("orders");
        outbox.transaction(&store, async |tx| tx.write(event).await).await?;
    }
    println!("written: {ORDERS}");

    // What the other process prints, until it ends.
    for line in BufReader::new(other.stdout.take().ok_or("no output")?).lines() {
        println!("the other process: {}", line?);
    }
    println!("it ended well: {}", other.wait()?.success());
    println!("pending {}", outbox.stats().await?.pending);
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

/// A process that delivers what others write. Nobody wakes it, so it polls: every 20 ms while something comes, less often
/// while nothing does.
async fn deliver(file: &str) -> Result<()> {
    let (delivered, mut deliveries) = mpsc::unbounded_channel();
    let outbox = Outbox::builder()
        .store(SqliteStore::connect(file).await?)
        .poll(Duration::from_millis(20), Duration::from_millis(200))
        .on("OrderPlaced", move |order: Delivery| {
            let delivered = delivered.clone();
            async move { delivered.send(order) }
        })
        .start()
        .await?;
    for _ in 0..ORDERS {
        let order = deliveries.recv().await.ok_or("the outbox has stopped")?;
        println!("delivered {}", order.payload().as_text().unwrap_or_default());
    }
    outbox.shutdown().await; // settles what was delivered
    Ok(())
}
