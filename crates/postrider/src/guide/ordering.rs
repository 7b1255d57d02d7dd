//! Ordering and keys.
//!
//! # The key
//!
//! An event with an aggregate has the key `type:id`; [`EventBuilder::key`](crate::EventBuilder::key) sets another. Events of one key are delivered one
//! after the other. Events of different keys are delivered at the same time, and an event without a key has no order.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use postrider::{Delivery, Event, Outbox, memory::MemoryStore};
//! use std::sync::{Arc, Mutex};
//!
//! let seen = Arc::new(Mutex::new(Vec::new()));
//! let log = seen.clone();
//! let store = MemoryStore::new(1);
//! let outbox = Outbox::builder()
//!     .store(store.clone())
//!     .otherwise(move |event: Delivery| {
//!         log.lock().unwrap().push(event.event_type().to_owned());
//!         async {}
//!     })
//!     .start()
//!     .await?;
//!
//! for event_type in ["OrderPlaced", "OrderPaid", "OrderShipped"] {
//!     let event = Event::json_text(event_type, "{}").aggregate("Order", 42);
//!     outbox.transaction(&store, async |tx| tx.write(event).await).await?;
//! }
//! outbox.drain().await?;
//! outbox.shutdown().await;
//! assert_eq!(*seen.lock().unwrap(), ["OrderPlaced", "OrderPaid", "OrderShipped"]);
//! # Ok(()) }
//! ```
//!
//! # What comes before what
//!
//! Event *a* comes before event *b* of the same key if one transaction wrote both in that order, or if *a*'s transaction had committed before *b* was inserted.
//! Two transactions that overlap have no order. So lock the aggregate (`SELECT … FOR UPDATE`, or an update of its row) before you write its events, as most programs
//! do anyway.
//!
//! The first deliveries of a key follow this order, over any number of instances, and through retries, crashes and dead letters.
//!
//! # When an event waits
//!
//! The event that a key waits for is its **head**. While it waits for another attempt, later events of its key wait behind it (they are **parked**), and nothing
//! else does. [`Outbox::why`](crate::Outbox::why) says what a key waits for.
//!
//! An event that is written for later (`deliver_after`, `available_at`) does not hold its key until it is due.
//!
//! # Lanes
//!
//! Keys are hashed into **lanes**, 64 by default. An instance delivers the lanes that it has a lease on, and instances share the lanes fairly. SQLite has one
//! lane: one process delivers, and the others stand by.
//!
//! # Without order
//!
//! [`KeyOrder::Ignored`](crate::KeyOrder::Ignored) delivers events of one key in any order. Then all events may take the
//! [hot path](super::writing#the-hot-path).
