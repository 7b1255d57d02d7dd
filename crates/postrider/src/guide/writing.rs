//! Writing events in your own transaction.
//!
//! # Three ways to write
//!
//! All three insert the event in the transaction of your change. If that rolls back, there is no event.
//!
#![cfg_attr(feature = "sqlite", doc = "```")]
#![cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use postrider::{Event, Outbox, sqlite::SqliteStore};
//!
//! let store = SqliteStore::connect("sqlite::memory:").await?;
//! sqlx::query("CREATE TABLE orders (id INTEGER PRIMARY KEY)").execute(store.pool()).await?;
//! let outbox = Outbox::builder().store(store.clone()).write_only().await?;
//! let placed = |id: u32| Event::json_text("OrderPlaced", "{}").aggregate("Order", id);
//!
//! // 1. A closure. Postrider begins and commits; an error or a panic rolls back.
//! outbox
//!     .transaction(&store, async |tx| {
//!         sqlx::query("INSERT INTO orders VALUES (1)").execute(tx.conn()).await?;
//!         tx.write(placed(1)).await?;
//!         Ok::<_, Box<dyn std::error::Error>>(())
//!     })
//!     .await?;
//!
//! // 2. A guard. Dropping it rolls back.
//! let mut tx = outbox.begin(&store).await?;
//! sqlx::query("INSERT INTO orders VALUES (2)").execute(tx.conn()).await?;
//! tx.write(placed(2)).await?;
//! tx.commit().await?;
//!
//! // 3. Your own transaction. The receipt wakes the engine after the commit.
//! let mut tx = store.pool().begin().await?;
//! sqlx::query("INSERT INTO orders VALUES (3)").execute(&mut *tx).await?;
//! let receipt = outbox.write(&mut tx, placed(3)).await?;
//! tx.commit().await?;
//! receipt.committed();
//! # assert_eq!(outbox.stats().await?.pending, 3);
//! # Ok(()) }
//! ```
//!
//! A receipt is a hint. If you forget [`Receipt::committed`](crate::Receipt::committed), the engine finds the event by itself a little later. If you
//! call it although the transaction rolled back, nothing is delivered: the engine reads the table and finds no row.
//!
//! Any transaction of sqlx, tokio-postgres, deadpool-postgres, diesel-async, sea-orm and rusqlite is taken; each driver other than sqlx is a feature of this
//! crate. rusqlite blocks, so it has [`Outbox::write_blocking`](crate::Outbox::write_blocking).
//!
//! # What an event holds
//!
//! ```
//! use postrider::Event;
//! use std::time::Duration;
//!
//! let reminder = Event::json_text("InvoiceDue", r#"{"total":12}"#)
//!     .aggregate("Invoice", "2026-17") // its key is "Invoice:2026-17"
//!     .tenant("acme")                  // carried through, never interpreted
//!     .header("source", "billing")
//!     .deliver_after(Duration::from_secs(3600))
//!     .build()?;
//! assert_eq!(reminder.key(), Some("Invoice:2026-17"));
//! # Ok::<(), postrider::EventError>(())
//! ```
//!
//! [`Event::json`](crate::Event::json) serialises a value, [`Event::json_text`](crate::Event::json_text) takes JSON that exists already, and
//! [`Event::bytes`](crate::Event::bytes) takes bytes of any content type. Every limit has a name in [`event::limits`](crate::event::limits); an event that
//! breaks one is refused with an error that says which.
//!
//! # Writing once
//!
//! The event ID is unique among undelivered events. Where a request may be repeated, derive the ID from it:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use postrider::{Event, Outbox, memory::MemoryStore};
//!
//! let store = MemoryStore::new(1);
//! let outbox = Outbox::builder().store(store.clone()).write_only().await?;
//! for is_first in [true, false] {
//!     let event = Event::json_text("OrderPlaced", "{}").id("order-42-placed");
//!     let is_new = outbox.transaction(&store, async |tx| tx.write_if_absent(event).await).await?;
//!     assert_eq!(is_new, is_first);
//! }
//! # Ok(()) }
//! ```
//!
//! [`write`](crate::Outbox::write) fails instead if the ID is there already.
//!
//! # Types that cannot be misspelt
//!
//! An enum can stand wherever an event type or an aggregate type does. With
//! [`known_types`](crate::OutboxBuilder::known_types) a write of any other type is refused.
//!
#![cfg_attr(feature = "macros", doc = "```")]
#![cfg_attr(not(feature = "macros"), doc = "```ignore")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use postrider::{Event, EventType, Outbox, memory::MemoryStore};
//!
//! #[derive(EventType)]
//! enum OrderEvent {
//!     OrderPlaced,
//!     OrderShipped,
//! }
//!
//! let store = MemoryStore::new(1);
//! let outbox =
//!     Outbox::builder().store(store.clone()).known_types(OrderEvent::EVENT_TYPES).write_only().await?;
//! let write = async |event| outbox.transaction(&store, async |tx| tx.write(event).await).await;
//! assert!(write(Event::json_text(OrderEvent::OrderPlaced, "{}")).await.is_ok());
//! assert!(write(Event::json_text("OrderPlacd", "{}")).await.is_err());
//! # let _ = OrderEvent::OrderShipped;
//! # Ok(()) }
//! ```
//!
//! # What is refused
//!
//! * A pool: it does not compile, since nothing would tie the event to your change.
//! * A bare connection outside of a transaction: [`Error::NotInTransaction`](crate::Error::NotInTransaction).
//! * An ID that is there already, an event over a limit, and a type that is not known.
//! * A transaction of another database product than the outbox's.
//!
//! # The hot path
//!
//! An event without a key that is written by way 1 or 2 goes to its handler in memory, right after the commit. All others, and those for which there is no room
//! in memory, are read from the table. Nothing depends on the hot path: if the process dies after the commit, another engine reads the event from the
//! table.
