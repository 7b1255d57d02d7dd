//! Testing code that writes events.
//!
//! # Code that takes a transaction of any database
//!
//! `TestOutbox` of the crate `postrider-testkit` is a real outbox on a store in memory. It remembers what was written:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use postrider::{Error, Event, OwnedTx, Tx};
//! use postrider_testkit::outbox::TestOutbox;
//!
//! async fn place_order(tx: &mut Tx<impl OwnedTx>, id: u32, total: u32) -> Result<(), Error> {
//!     if total > 0 {
//!         let order = Event::json_text("OrderPlaced", format!(r#"{{"id":{id},"total":{total}}}"#));
//!         tx.write(order.aggregate("Order", id)).await?;
//!     }
//!     Ok(())
//! }
//!
//! let outbox = TestOutbox::new().await?;
//! outbox.transaction(async |tx| place_order(tx, 41, 0).await).await?;
//! outbox.assert_nothing_written();
//!
//! outbox.transaction(async |tx| place_order(tx, 42, 12).await).await?;
//! outbox.assert_written("OrderPlaced").once().with_key("Order:42").with_json(r#"{"total":12}"#);
//! # Ok(()) }
//! ```
//!
//! # Handlers
//!
//! Give it the builder that your program uses. Its store is replaced by one in memory.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use postrider::{Delivery, Event, Outbox};
//! use postrider_testkit::outbox::TestOutbox;
//!
//! let charge = async |order: Delivery| if order.attempt < 3 { Err("the bank is asleep") } else { Ok(()) };
//! let at_once = |_: u32, _: &str| std::time::Duration::ZERO;
//! let outbox = TestOutbox::with(Outbox::builder().on("CardCharged", charge).retry(at_once)).await?;
//!
//! outbox.transaction(async |tx| tx.write(Event::json_text("CardCharged", "{}")).await).await?;
//! outbox.drain().await?;
//! assert_eq!(outbox.delivered()[0].attempt, 3);
//! # Ok(()) }
//! ```
//!
//! # Code that runs SQL
//!
//! Code that runs statements of its own database is tested on that database. Attach a `Recorder` of `postrider-testkit` to the outbox, or deliver and look:
//! [`drain`](crate::Outbox::drain) waits until everything that is due was delivered, or has failed and waits.
//!
//! # Time
//!
//! On a store in memory, time is tokio's. In a test with `start_paused = true` nothing waits, and an event that is due in an hour is delivered after
//! `tokio::time::advance`.
//!
//! # Stores and sinks of your own
//!
//! `postrider-testkit` has the conformance suites that the stores and sinks here pass.
