//! The event, its limits and ids, and the seams of Postrider.
//!
//! This crate knows no driver, no runtime and no database. It holds what the other rooms agree on:
//!
//! # Layout
//!
//! * [`event`]: what business code wants the world to know, and the limits it is built under
//! * [`id`]: monotonic ULIDs, TSIDs, and the id that an event carries
//! * [`tx`]: the caller's transaction ([`CallerTx`]), which an event is written through
//! * [`store`]: the verbs that an engine speaks to a database ([`Store`])
//! * [`select`](mod@select): the rules by which every store chooses what a claim returns
//! * [`sink`]: where an event goes ([`Sink`]), and what delivery said of it ([`Outcome`])
//! * [`format`](mod@format): how an event looks outside: raw, or as a CloudEvent
//! * [`interceptor`], [`hook`], [`retry`], [`metrics`], [`trace`], [`pattern`]: the seams around these

pub mod error;
pub mod event;
pub mod format;
pub mod hook;
pub mod id;
pub mod interceptor;
pub mod metrics;
pub mod pattern;
pub mod retry;
pub mod rng;
pub mod select;
pub mod sink;
pub mod store;
pub mod time;
pub mod trace;
pub mod tx;
pub mod types;

use std::{future::Future, pin::Pin};

pub use error::{ConfigError, Error, SchemaError, StoreError, StoreErrorKind};
pub use event::{Event, EventBuilder, EventError, IntoEvent, Payload};
pub use hook::{TxOutcome, WriteHook};
pub use id::EventId;
pub use interceptor::Interceptor;
pub use metrics::Metrics;
pub use pattern::Pattern;
pub use retry::{Backoff, BackoffTerms, RetryPolicy};
pub use sink::{
    BatchOrder, Delivery, Health, IntoOutcome, Outcome, Sink, SinkTraits, Source, handler, named,
};
pub use store::Store;
pub use time::Timestamp;
pub use trace::TraceContext;
pub use tx::{BlockingCallerTx, CallerTx, OwnedTx, Target, TxSource};
pub use types::{AggregateType, EventType, GLOBAL_AGGREGATE};

/// A boxed future that can cross threads: what the object-safe seams return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The result of what can fail with Postrider's own [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
