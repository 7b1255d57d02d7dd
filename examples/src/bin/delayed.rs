//! Events for later: after a delay that the database counts, or at a point in time.
//!
//! ```text
//! cargo run -p postrider-examples --bin delayed
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::time::{Duration, SystemTime};

use postrider::{Delivery, Event, Outbox, sqlite::SqliteStore, store::EventStatus};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = SqliteStore::connect("sqlite::memory:").await?;
    let (delivered, mut deliveries) = mpsc::unbounded_channel();
    let outbox = Outbox::builder()
        .store(store.clone())
        .workers(1) // several would overtake each other on a busy machine
        .on("Reminder", move |reminder: Delivery| {
            let delivered = delivered.clone();
            async move { delivered.send(reminder.id().clone()) }
        })
        .start()
        .await?;

    // The last one written is the first one due.
    let soon = SystemTime::now() + Duration::from_millis(40);
    let reminders = [
        Event::json_text("Reminder", "{}").id("tomorrow").deliver_after(Duration::from_secs(86_400)),
        Event::json_text("Reminder", "{}").id("second").available_at(soon),
        Event::json_text("Reminder", "{}").id("third").deliver_after(Duration::from_millis(80)),
        Event::json_text("Reminder", "{}").id("first"),
    ];
    outbox.transaction(&store, async |tx| tx.write_all(reminders).await).await?;
    for _ in 0..3 {
        println!("{}", deliveries.recv().await.ok_or("the outbox has stopped")?);
    }

    outbox.shutdown().await;
    if let EventStatus::Waiting { attempts, .. } = outbox.status("tomorrow").await? {
        println!("tomorrow still waits, after {attempts} attempts");
    }
    Ok(())
}
