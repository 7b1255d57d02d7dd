//! The conformance suite's harness over any of the drivers.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use postrider_core::{
    Event, EventId, Result, Store, Target,
    tx::{OnDuplicate, Prefix},
};
use postrider_sqlx::PgStore;
use postrider_testkit::conformance::{Failure, StoreHarness};
use sqlx::{AssertSqlSafe, Row};
use tokio::sync::{mpsc, oneshot};

use super::{
    Database,
    drivers::{Command, Driver},
};

/// How a driver comes to the server.
pub(crate) trait Way: Send + Sync + 'static {
    const SERVER: &'static str;
    /// Whether statements may stay prepared.
    const PREPARED: bool;
}

pub(crate) struct Direct;

impl Way for Direct {
    const SERVER: &'static str = "POSTRIDER_TEST_POSTGRES_URL";
    const PREPARED: bool = true;
}

/// By PgBouncer in transaction mode.
pub(crate) struct Pooled;

impl Way for Pooled {
    const SERVER: &'static str = "POSTRIDER_TEST_PGBOUNCER_URL";
    const PREPARED: bool = false;
}

/// A store of sqlx's, and transactions of a driver on it.
pub(crate) struct DriverHarness<D, W> {
    pub(crate) store: PgStore,
    pub(crate) target: Target,
    database: Database,
    _driver: PhantomData<(D, W)>,
}

/// A transaction in a task of its own; without this it is dropped.
#[derive(Debug)]
pub(crate) struct Held(mpsc::UnboundedSender<Command>);

impl Held {
    async fn tell<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> T {
        let (answer, told) = oneshot::channel();
        self.0.send(command(answer)).expect("the driver has ended");
        told.await.expect("the driver has ended")
    }
}

impl<D: Driver, W: Way> DriverHarness<D, W> {
    async fn count(&self, sql: String) -> Result<i64, Failure> {
        Ok(sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(self.store.pool()).await?.try_get(0)?)
    }

    /// Runs a statement in the transaction.
    pub(crate) async fn run(&self, tx: &Held, sql: &str) -> Result<(), Failure> {
        tx.tell(|answer| Command::Run(sql.to_owned(), answer)).await
    }
}

impl<D: Driver, W: Way> StoreHarness for DriverHarness<D, W> {
    type Tx = Held;

    async fn fresh() -> Result<Self, Failure> {
        let database = Database::new().await;
        let store = PgStore::builder().pooled(false).connections(4).connect(&database.url()).await?;
        store.migrate().await?;
        sqlx::raw_sql("CREATE TABLE business (name text PRIMARY KEY)").execute(store.pool()).await?;
        let target = postrider_drivers::postgres::target(&Prefix::default(), W::PREPARED);
        Ok(Self { store, target, database, _driver: PhantomData })
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn pass(&self, _time: Duration) -> Result<(), Failure> {
        Err("no check of writers lets time pass".into())
    }

    async fn begin(&self) -> Result<Held, Failure> {
        let (sender, commands) = mpsc::unbounded_channel();
        let serve = D::serve(self.database.url_by(W::SERVER), self.target.clone(), commands);
        tokio::spawn(async move { serve.await.expect("the driver") });
        let held = Held(sender);
        held.tell(|answer| Command::Run("SELECT 1".to_owned(), answer)).await?;
        Ok(held)
    }

    async fn insert(&self, tx: &mut Held, events: &[Event], on_duplicate: OnDuplicate) -> Result<Vec<bool>> {
        tx.tell(|answer| Command::Insert(events.to_vec(), on_duplicate, answer)).await
    }

    async fn put(&self, tx: &mut Held, name: &str) -> Result<(), Failure> {
        let put = format!("INSERT INTO business (name) VALUES ('{name}')");
        tx.tell(|answer| Command::Run(put, answer)).await
    }

    async fn has(&self, name: &str) -> Result<bool, Failure> {
        Ok(self.count(format!("SELECT count(*) FROM business WHERE name = '{name}'")).await? > 0)
    }

    async fn fail_statement(&self, tx: &mut Held) -> Result<(), Failure> {
        let fails = "INSERT INTO business (name) VALUES (NULL)".to_owned();
        assert!(tx.tell(|answer| Command::Run(fails, answer)).await.is_err());
        Ok(())
    }

    async fn savepoint(&self, tx: &mut Held) -> Result<(), Failure> {
        tx.tell(|answer| Command::Run("SAVEPOINT suite".to_owned(), answer)).await
    }

    async fn rollback_to_savepoint(&self, tx: &mut Held) -> Result<(), Failure> {
        tx.tell(|answer| Command::Run("ROLLBACK TO suite".to_owned(), answer)).await
    }

    async fn commit(&self, tx: Held) -> Result<(), Failure> {
        tx.tell(Command::Commit).await
    }

    async fn rollback(&self, tx: Held) -> Result<(), Failure> {
        tx.tell(Command::Rollback).await
    }

    async fn insert_undecodable(&self) -> Result<EventId, Failure> {
        let id = EventId::ulid();
        let insert = format!(
            "INSERT INTO postrider_event (event_id, event_type, payload, headers)
             VALUES ('{id}', 'Broken', '{{}}', '{{\"half a map\":')"
        );
        sqlx::raw_sql(AssertSqlSafe(insert)).execute(self.store.pool()).await?;
        Ok(id)
    }
}
