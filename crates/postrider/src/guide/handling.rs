//! Handlers, sinks, and what runs around them.
//!
//! # A handler
//!
//! A handler is an async function of a [`Delivery`](crate::Delivery). Calls may run at the same time, so a handler that captures something clones it
//! for each call:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use postrider::{Delivery, Event, Outbox, Outcome, memory::MemoryStore};
//! use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
//!
//! let shipped = Arc::new(AtomicU32::new(0));
//! let counter = shipped.clone();
//! let store = MemoryStore::new(1);
//! let outbox = Outbox::builder()
//!     .store(store.clone())
//!     .on("OrderPlaced", async |_: Delivery| ()) // captures nothing
//!     .on("OrderShipped", move |order: Delivery| {
//!         let shipped = counter.clone();
//!         async move {
//!             if order.aggregate_id().is_none() {
//!                 return Outcome::rejected("no order is named"); // it will never be accepted
//!             }
//!             shipped.fetch_add(1, Ordering::Relaxed);
//!             Outcome::Delivered
//!         }
//!     })
//!     .otherwise(async |event: Delivery| Err::<(), _>(format!("not ready for {}", event.event_type())))
//!     .start()
//!     .await?;
//!
//! let event = Event::json_text("OrderShipped", "{}").aggregate("Order", 42);
//! outbox.transaction(&store, async |tx| tx.write(event).await).await?;
//! outbox.drain().await?;
//! outbox.shutdown().await;
//! assert_eq!(shipped.load(Ordering::Relaxed), 1);
//! # Ok(()) }
//! ```
//!
//! A handler returns nothing, a `Result` with any error, or an [`Outcome`](crate::Outcome). What each of them means is in [`retries`](super::retries).
//! Handlers must be idempotent: an event may be delivered twice, and both deliveries carry the same ID.
//!
//! # Which handler an event goes to
//!
//! In this order: the exact pair of aggregate type and event type, the exact event type, the first pattern that fits, and `otherwise`. An event that no
//! route takes is dead at once and does not block its key. Two handlers for the same events are an error; `on_list` runs several in order.
//! `always` runs for every event, after the handler of its route.
//!
//! # A sink
//!
//! A sink is an outside system that takes batches. It returns one outcome for each event, in the order of the batch.
//!
//! ```
//! use postrider::{BoxFuture, Delivery, Outcome, Sink, SinkTraits};
//! use std::time::Duration;
//!
//! struct Log;
//!
//! impl Sink for Log {
//!     fn traits(&self) -> SinkTraits {
//!         SinkTraits { batch_max: 50, send_timeout: Some(Duration::from_secs(5)), ..SinkTraits::SINK }
//!     }
//!
//!     fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
//!         Box::pin(async move {
//!             batch.iter().for_each(|event| println!("{} {}", event.event_type(), event.id()));
//!             vec![Outcome::Delivered; batch.len()]
//!         })
//!     }
//! }
//! # let _ = postrider::Outbox::builder().sink_otherwise(std::sync::Arc::new(Log));
//! ```
//!
//! [`SinkTraits::order`](crate::SinkTraits::order) says whether a batch may hold several events of a key. Implement
//! [`health`](crate::Sink::health) if the system can be asked whether it is up: that tells an outage from an event that always fails.
//! `postrider-testkit` has a conformance suite, `sink_conformance!`, that proves a sink.
//!
//! # Interceptors
//!
//! An interceptor runs around every delivery. An error of `before` is a failed attempt, and the handler is not called.
//!
//! ```
//! use postrider::{Delivery, Outbox, Outcome, interceptor};
//!
//! let builder = Outbox::builder()
//!     .interceptor(interceptor::before(async |delivery: Delivery| {
//!         if delivery.tenant_id() == Some("test") { Err("test tenants are not delivered")?; }
//!         Ok(())
//!     }))
//!     .interceptor(interceptor::after(async |delivery: Delivery, outcome: Outcome| {
//!         println!("{} attempt {}: {outcome:?}", delivery.id(), delivery.attempt);
//!         Ok(())
//!     }));
//! # let _ = builder;
//! ```
