//! A transactional outbox: write events inside your own database transaction, have them delivered in order.
//!
//! A service changes its database *and* must tell the world. If it crashes in between, the message is lost, or sent for a
//! change that was rolled back. An outbox writes the event in the same transaction and delivers it afterwards.
//!
#![cfg_attr(feature = "sqlite", doc = "```")]
#![cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use postrider::{Delivery, Event, Outbox, sqlite::SqliteStore};
//!
//! let store = SqliteStore::connect("sqlite::memory:").await?;
//! sqlx::query("CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER)").execute(store.pool()).await?;
//!
//! let outbox = Outbox::builder()
//!     .store(store.clone())
//!     .on("OrderPlaced", async |order: Delivery| println!("placed: {}", order.aggregate_id().unwrap_or("?")))
//!     .start()
//!     .await?;
//!
//! // One transaction for the change and the event: both happen, or neither.
//! outbox
//!     .transaction(&store, async |tx| {
//!         sqlx::query("INSERT INTO orders VALUES (42, 12)").execute(tx.conn()).await?;
//!         tx.write(Event::json_text("OrderPlaced", r#"{"total":12}"#).aggregate("Order", 42)).await?;
//!         Ok::<_, Box<dyn std::error::Error>>(())
//!     })
//!     .await?;
//!
//! outbox.drain().await?; // a program that goes on does not wait; this one ends here
//! outbox.shutdown().await;
//! # assert_eq!(outbox.stats().await?.done, 1);
//! # Ok(()) }
//! ```
//!
//! # Where to look
//!
//! * [`guide`]: chapters on writing, handling, ordering, retries, the relay and testing. Read this first
//! * [`Outbox`] and [`OutboxBuilder`]: the outbox, and everything that can be set
//! * [`Event`]: what is written; [`Delivery`] and [`Outcome`]: what a handler receives and returns
//! * [`connect`]: the store of a database, by its URL alone
//! * `sqlite`, `postgres` and `mysql`, each a feature: the stores; [`memory`]: a store without a database, for tests
//! * `tls-rustls`, or `tls-rustls-native-roots` for the root certificates of the host: TLS to PostgreSQL, MySQL and MariaDB. The URL asks for
//!   it (`sslmode=verify-full`, `ssl-mode=VERIFY_IDENTITY`)
//! * `tokio-postgres`, `deadpool-postgres`, `diesel-async`, `sea-orm` and `rusqlite`, each a feature: transactions of these drivers are passed to
//!   [`Outbox::write`] like sqlx's
//! * `file`, `http`, `kafka`, `nats`, `rabbitmq` and `redis`, each a feature: the sinks; [`format`](mod@format): what they send
//! * `profiles`, a feature: delivery from external outbox tables
//! * [`store`]: the store trait, for those who write a store of their own

mod connect;
pub mod guide;

pub use connect::{ConnectOptions, Connected, connect};
pub use postrider_core::{
    AggregateType, Backoff, BackoffTerms, BatchOrder, BlockingCallerTx, BoxFuture, CallerTx, ConfigError,
    Delivery, Error, Event, EventBuilder, EventError, EventId, EventType, GLOBAL_AGGREGATE, Health,
    Interceptor, IntoEvent, IntoOutcome, Metrics, Outcome, OwnedTx, Pattern, Payload, Result, RetryPolicy,
    SchemaError, Sink, SinkTraits, Source, Store, StoreError, StoreErrorKind, Target, Timestamp,
    TraceContext, TxOutcome, TxSource, WriteHook, event, format, handler, id, interceptor, metrics, named,
    rng, sink, store, tx::Prefix,
};
pub use postrider_engine::{
    Drained, Engine, EngineHealth, KeyOrder, OnDead, Outbox, OutboxBuilder, Parts, Receipt, Receipts, Route,
    RouteSettings, Routes, Settings, ShutdownReport, Tx, Writer, memory, routes, trace,
};
#[cfg(feature = "macros")]
pub use postrider_macros::{AggregateType, EventType};

/// Writes the result of a function as an event, in the transaction that the function was given.
///
#[cfg_attr(feature = "sqlite", doc = "```")]
#[cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use postrider::{Delivery, Outbox, Tx, publish, sqlite::{SqliteStore, SqliteTx}};
/// use std::{collections::BTreeMap, error::Error};
///
/// type Order = BTreeMap<&'static str, i64>; // or anything else that is `Serialize`
///
/// #[publish(event_type = "OrderPlaced", aggregate = ("Order", |order| order["id"]))]
/// async fn place_order(tx: &mut Tx<SqliteTx>, total: i64) -> Result<Order, Box<dyn Error>> {
///     let placed = sqlx::query("INSERT INTO orders (total) VALUES (?)").bind(total).execute(tx.conn()).await?;
///     Ok(Order::from([("id", placed.last_insert_rowid()), ("total", total)]))
/// }
///
/// let store = SqliteStore::connect("sqlite::memory:").await?;
/// sqlx::query("CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER NOT NULL)").execute(store.pool()).await?;
/// let outbox = Outbox::builder()
///     .store(store.clone())
///     .on("OrderPlaced", async |order: Delivery| {
///         assert_eq!(order.key(), Some("Order:1"));
///         assert_eq!(order.payload().as_text(), Some(r#"{"id":1,"total":12}"#));
///     })
///     .start()
///     .await?;
///
/// let order = outbox.transaction(&store, async |tx| place_order(tx, 12).await).await?;
/// assert_eq!(order["total"], 12);
/// outbox.drain().await?;
/// # outbox.shutdown().await;
/// # assert_eq!(outbox.stats().await?.done, 1);
/// # Ok(()) }
/// ```
///
#[cfg(feature = "macros")]
pub use postrider_macros::publish;

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use postrider_sqlx::{Product, Server, Version};

/// The MySQL and MariaDB store and its writers.
#[cfg(feature = "mysql")]
pub mod mysql {
    pub use postrider_sqlx::mysql::*;
}

/// Delivery from external outbox tables: tables that another system designed and writes to.
#[cfg(all(feature = "profiles", any(feature = "mysql", feature = "postgres")))]
pub mod profile {
    pub use postrider_sqlx::profile::*;
}

/// The SQLite store and its writers.
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use postrider_sqlx::sqlite::*;
}

/// The PostgreSQL store and its writers.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use postrider_sqlx::postgres::*;
}

/// The writers for drivers other than sqlx. A program names nothing of it: it passes its transaction to [`Outbox::write`].
#[cfg(any(
    feature = "tokio-postgres",
    feature = "deadpool-postgres",
    feature = "diesel-async",
    feature = "sea-orm"
))]
pub mod drivers {
    pub use postrider_drivers::*;
}

/// Lines of JSON in a file or on standard output as sinks.
#[cfg(feature = "file")]
pub mod file {
    pub use postrider_file::*;
}

/// HTTP batches and webhooks as sinks.
#[cfg(feature = "http")]
pub mod http {
    pub use postrider_http::*;
}

/// Kafka as a sink.
#[cfg(feature = "kafka")]
pub mod kafka {
    pub use postrider_kafka::*;
}

/// NATS JetStream as a sink.
#[cfg(feature = "nats")]
pub mod nats {
    pub use postrider_nats::*;
}

/// RabbitMQ as a sink.
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq {
    pub use postrider_rabbitmq::*;
}

/// Redis Streams as a sink.
#[cfg(feature = "redis")]
pub mod redis {
    pub use postrider_redis::*;
}

/// The programs of the README compile.
#[cfg(all(doctest, feature = "sqlite", feature = "postgres"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
