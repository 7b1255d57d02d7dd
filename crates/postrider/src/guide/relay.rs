//! The relay: one program that delivers what others write.
//!
//! `postrider run` reads a YAML file that says from where to where. It needs no code, and it delivers for programs in any language.
//!
//! ```yaml
//! sources:
//!   shop:
//!     url: ${DATABASE_URL}
//!     routes:
//!       - { event_type: "Order*", sink: orders }
//!       - { event_type: "*", sink: log }
//! sinks:
//!   orders: { format: cloud-events-structured, http: { url: "https://orders.example/events", token: "${ORDERS_TOKEN}" } }
//!   log: { stdout: {} }
//! ```
//!
//! ```sh
//! postrider init               # creates the tables
//! postrider check --connect    # finds mistakes in the file, asks every database and sink
//! postrider run
//! postrider why --key Order:42 # what does this key wait for?
//! ```
//!
//! # Writing for a relay
//!
//! A Rust program that only writes builds an outbox without an engine:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use postrider::{Event, Outbox, memory::MemoryStore};
//!
//! let store = MemoryStore::new(1);
//! let outbox = Outbox::builder().store(store.clone()).write_only().await?;
//! outbox.transaction(&store, async |tx| tx.write(Event::json_text("OrderPlaced", "{}")).await).await?;
//! assert_eq!(outbox.stats().await?.pending, 1);
//! # Ok(()) }
//! ```
//!
//! Any other program inserts a row. The database computes the rest, and refuses what could never be delivered:
//!
//! ```sql
//! INSERT INTO postrider_event (event_type, aggregate_type, aggregate_id, payload)
//! VALUES ('OrderPlaced', 'Order', '42', '{"total": 12}');
//! ```
//!
//! The relay finds such rows within milliseconds: while it is idle it peeks at the sequence of the table, and claims only when that moved.
//!
//! # Library or relay
//!
//! Both run the same engine on the same tables, and they can share them: lanes go to whichever instances are alive. Use the library if your handlers are
//! Rust functions. Use the relay if events go to a broker or to HTTP and you want to deploy, watch and restart delivery by itself.
