//! Retries, outages and dead letters.
//!
//! # Outcomes
//!
//! | outcome | attempt counted | what follows |
//! | --- | --- | --- |
//! | [`Delivered`](crate::Outcome::Delivered), `()`, `Ok(())` | | done |
//! | [`retry`](crate::Outcome::retry), `Err(error)`, a panic | yes | another attempt after the backoff; dead after `max_attempts` |
//! | [`rejected`](crate::Outcome::rejected) | yes | dead at once |
//! | [`unknown`](crate::Outcome::unknown) | yes | another attempt; the event may have arrived |
//! | [`deferred`](crate::Outcome::deferred) | no | another attempt after the given time; the sink gets less from then on |
//! | [`later`](crate::Outcome::later) | no | another attempt of this event after the given time; nothing else changes |
//! | [`unavailable`](crate::Outcome::unavailable) | no | the breaker opens, and events wait in the table until the receiver is back |
//! | [`batch_failed`](crate::Outcome::batch_failed) | no | the events of the batch are sent again, by key and then one by one |
//!
//! # Backoff
//!
//! By default a failed event waits for `min(60 s, 200 ms × 2ⁿ)`, times a random factor of 0.5 to 1.5, and is dead after ten attempts.
//!
//! ```
//! use postrider::{Backoff, Outbox};
//! use std::time::Duration;
//!
//! let builder = Outbox::builder()
//!     .retry(Backoff::new(Duration::from_secs(1)).multiplier(3.0).max(Duration::from_secs(600)))
//!     .max_attempts(5);
//! # let _ = builder;
//!
//! // Or a rule of your own: the attempt that failed (the first is 1), and its error.
//! let builder = Outbox::builder().retry_with(|attempt, error| match error {
//!     "rate limited" => Duration::from_secs(60),
//!     _ => Duration::from_secs(1) * attempt,
//! });
//! # let _ = builder;
//! ```
//!
//! # An outage is not a failure
//!
//! A sink may be down as a whole or in part (one topic, one URL). A failed attempt counts only if it is about the event: the event was alone in its batch or the sink
//! named it, *and* its destination works, which another delivery or a health check shows. So an outage of any length kills nothing. While
//! it lasts, one event at a time probes the receiver: after 200 ms, then after twice as long each time, up to 30 s.
//!
//! An event whose failures cannot be told from an outage is dead after [`unavailable_for`](crate::OutboxBuilder::unavailable_for), 24 h by default.
//!
//! # Dead letters
//!
//! A dead event blocks its key until somebody decides. Nothing else waits for it.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use postrider::{Delivery, Event, Outbox, Outcome, memory::MemoryStore};
//!
//! let store = MemoryStore::new(1);
//! let outbox = Outbox::builder()
//!     .store(store.clone())
//!     .on("CardCharged", async |_: Delivery| Outcome::rejected("no such card"))
//!     .start()
//!     .await?;
//!
//! let charge = Event::json_text("CardCharged", "{}").id("a1").aggregate("Card", 7);
//! outbox.transaction(&store, async |tx| tx.write(charge).await).await?;
//! outbox.drain().await?;
//!
//! let dead = outbox.dead(0, 100).await?;
//! assert_eq!((dead[0].id.as_str(), &*dead[0].error), ("a1", "no such card"));
//! assert!(outbox.why("Card:7").await?.is_some());
//!
//! outbox.discard(["a1"]).await?; // or redrive: try it again, with its attempts counted from zero
//! assert!(outbox.dead(0, 100).await?.is_empty());
//! # outbox.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! With [`OnDead::Skip`](crate::OnDead::Skip) a key goes on without its dead event.
