//! Postrider's SQL stores, through sqlx.
//!
//! # Layout
//!
//! * [`postgres`]: the outbox in a PostgreSQL database, and the writers for the transactions of `sqlx`
//! * [`sqlite`]: the outbox in a SQLite database, and the writers for the transactions of `sqlx` and `rusqlite`
//! * [`mysql`]: the outbox in a MySQL or MariaDB database, and the writers for the transactions of `sqlx`
//! * `connections`: what verbs run on, for how long, and again
//! * `shared_verbs`, `caller_tx`: what all three stores do in the same way; what a claim returns is chosen by [`postrider_core::select`](mod@postrider_core::select)
//! * `high_water`: whether a database went back in time
//! * [`Server`]: which product a database is, and which version of it
//! * `profile`: delivery from external outbox tables, in PostgreSQL, MySQL and MariaDB
//!
#![cfg_attr(feature = "sqlite", doc = "```")]
#![cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
//! use postrider_core::{CallerTx, Event, Store, tx::OnDuplicate};
//! use postrider_sqlx::SqliteStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = SqliteStore::connect("sqlite::memory:").await?;
//! store.migrate().await?;
//!
//! let event = Event::json_text("OrderPlaced", "{}").aggregate("Order", 42).build()?;
//! let mut tx = store.pool().begin().await?;
//! (&mut tx).insert(store.target(), &[event], OnDuplicate::Fail).await?;
//! tx.commit().await?;
//!
//! assert_eq!(store.stats().await?.pending, 1);
//! # Ok(())
//! # }
//! ```

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod caller_tx;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod connections;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod dropped;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod high_water;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod oldest;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(all(feature = "profiles", any(feature = "mysql", feature = "postgres")))]
pub mod profile;
mod server;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod shared_verbs;
#[cfg(feature = "sqlite")]
pub mod sqlite;

#[cfg(feature = "mysql")]
pub use mysql::{MysqlStore, MysqlTx};
#[cfg(feature = "postgres")]
pub use postgres::{PgStore, PgTx};
#[cfg(all(feature = "profiles", any(feature = "mysql", feature = "postgres")))]
pub use profile::{Profile, ProfileStore};
pub use server::{Product, Server, Version};
#[cfg(feature = "rusqlite")]
pub use sqlite::Rusqlite;
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteStore, SqliteTx};

/// Whether TLS is asked for and sqlx was built without it. sqlx says so in words only; the program itself may have built it with TLS,
/// whatever the features of this crate are.
#[cfg(any(feature = "mysql", feature = "postgres"))]
fn is_without_tls(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Tls(told) if told.to_string().contains("built without TLS support"))
}

/// What the adapters of sqlx are known by to [`CallerTx`](postrider_core::CallerTx). Callers never name it.
#[derive(Debug, Clone, Copy)]
pub struct Sqlx;
