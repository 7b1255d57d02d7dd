//! Delivery from an external outbox table: FlowCatalyst's, with rows that its own program wrote.
//!
//! Needs the features `postgres` and `profiles` of `postrider`.
//!
//! ```text
//! cargo run -p postrider-examples --bin postgres_profile
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::env;

use postrider::{
    Delivery, Outbox, Outcome,
    profile::{Profile, ProfileStore},
};
use sqlx::{Connection, PgConnection};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The table as its own system made it, and what a program wrote to it in its own transactions.
const THEIRS: &str = "
    CREATE TABLE outbox_events (id VARCHAR(13) PRIMARY KEY, type VARCHAR(20) NOT NULL, message_group VARCHAR(255),
      payload TEXT NOT NULL, status VARCHAR(20) NOT NULL, retry_count INT NOT NULL DEFAULT 0, created_at TIMESTAMP NOT NULL,
      processed_at TIMESTAMP, error_message TEXT);
    CREATE INDEX idx_outbox_events_status ON outbox_events(status, message_group, created_at);
    INSERT INTO outbox_events (id, type, message_group, payload, status, created_at) VALUES
      ('0HZXEQ5Y8JY5A', 'EVENT', 'order-1', '{\"placed\": 1}', 'PENDING', '2026-01-01 10:00:00'),
      ('0HZXEQ5Y8JY5B', 'EVENT', 'order-1', '{\"broken\": 1}', 'PENDING', '2026-01-01 10:00:01'),
      ('0HZXEQ5Y8JY5C', 'EVENT', 'order-1', '{\"shipped\": 1}', 'PENDING', '2026-01-01 10:00:02')";

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = env::var("POSTRIDER_TEST_POSTGRES_URL")
        .map_err(|_| "POSTRIDER_TEST_POSTGRES_URL is not set: give the URL of a PostgreSQL database")?;
    let mut theirs = PgConnection::connect(&url).await?;
    sqlx::raw_sql(THEIRS).execute(&mut theirs).await?;

    // Looks at the table: what is missing is named. `store.guarantees()` says what holds on it, and so does the log.
    let store = ProfileStore::connect(&url, Profile::flowcatalyst_events()).await?;
    let outbox = Outbox::builder()
        .store(store.clone()) // with that system's own settings: three retries at once, a dead item stops nobody
        .otherwise(async |item: Delivery| {
            let payload = item.payload().as_text().unwrap_or_default();
            if payload.contains("broken") {
                return Outcome::retry("nobody understands it");
            }
            println!("{}: {payload}", item.key().unwrap_or("no group"));
            Outcome::Delivered
        })
        .start()
        .await?;
    outbox.drain().await?;
    outbox.shutdown().await;

    let rows: Vec<(String, i32, Option<String>)> =
        sqlx::query_as("SELECT status, retry_count, error_message FROM outbox_events ORDER BY id")
            .fetch_all(&mut theirs)
            .await?;
    for (status, retries, error) in rows {
        println!("{status}, {retries} retries, {}", error.unwrap_or_else(|| "no error".to_owned()));
    }
    store.close().await;
    Ok(())
}
