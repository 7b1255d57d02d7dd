//! What an insert into an outbox says and binds, for every driver alike; and the writers for drivers other than sqlx.
//!
//! # Layout
//!
//! * [`postgres`]: the insert into PostgreSQL, for anyone who teaches Postrider a driver. The writer for sqlx is in `postrider-sqlx`
//! * `tokio_postgres`, `deadpool_postgres`, `diesel_async`, `sea_orm`: the drivers, each a feature of the same name with hyphens
//!
//! | driver | what is passed | round trips of a `write` or `write_all` |
//! | --- | --- | --- |
//! | tokio-postgres | `&Transaction`; `&Client`, which is asked | one; a client one more |
//! | deadpool-postgres | `&Transaction` | one |
//! | diesel-async | `&mut AsyncPgConnection`, which is asked | two, and those that prepare a statement the first time, or each time behind a pooler |
//! | sea-orm | `&DatabaseTransaction` on PostgreSQL | one, and those that prepare a statement the first time; behind a pooler one for an event, two for a batch, more for a batch with duplicates |
//!
//! More than 5000 events or 8 MiB of payload are several statements.
//!
//! A program never names anything of this crate. It passes its transaction to `outbox.write`:
//!
#![cfg_attr(feature = "tokio-postgres", doc = "```no_run")]
#![cfg_attr(not(feature = "tokio-postgres"), doc = "```ignore")]
//! # use postrider_drivers as _;
//! # use postrider_core::{CallerTx, Event, Result, Target, tx::OnDuplicate};
//! # async fn place(client: &mut tokio_postgres::Client, target: &Target) -> Result<(), Box<dyn std::error::Error>> {
//! let tx = client.transaction().await?;
//! tx.execute("UPDATE orders SET state = 'placed' WHERE id = 42", &[]).await?;
//! let event = Event::json_text("OrderPlaced", "{}").aggregate("Order", 42).build()?;
//! (&tx).insert(target, &[event], OnDuplicate::Fail).await?; // what outbox.write(&tx, event) does
//! tx.commit().await?;
//! # Ok(()) }
//! ```

#[cfg(feature = "deadpool-postgres")]
mod deadpool_postgres;
#[cfg(feature = "diesel-async")]
mod diesel_async;
pub mod postgres;
#[cfg(feature = "sea-orm")]
mod sea_orm;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

#[cfg(feature = "deadpool-postgres")]
pub use self::deadpool_postgres::DeadpoolPostgres;
#[cfg(feature = "diesel-async")]
pub use self::diesel_async::DieselAsync;
#[cfg(feature = "sea-orm")]
pub use self::sea_orm::SeaOrm;
#[cfg(feature = "tokio-postgres")]
pub use self::tokio_postgres::TokioPostgres;
