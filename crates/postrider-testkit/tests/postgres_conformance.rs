//! The store conformance suite on PostgreSQL: the newest, the oldest that is promised, and through PgBouncer in transaction mode.
//! Each test has a database of its own.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider_core::{CallerTx, Event, EventId, Result, Store, tx::OnDuplicate};
use postrider_sqlx::PgStore;
use postrider_testkit::{
    conformance::{Failure, StoreHarness},
    store_conformance,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Postgres, Transaction};

/// The name of a server by the variable that has it. A server that is not there is a failed test, never one that was left out.
fn server(variable: &str) -> Result<String, Failure> {
    env::var(variable).map_err(|_| {
        format!(
            "{variable} is not set: start the servers with `cargo xtask services up` and name them to this shell with \
             `eval $(cargo xtask services env)`"
        )
        .into()
    })
}

/// The same server, another database.
fn with_database(url: &str, database: &str) -> String {
    let (place, parameters) = url.split_once('?').unwrap_or((url, ""));
    let base = place.rfind('/').filter(|at| *at > "postgresql:/".len()).map_or(place, |at| &place[..at]);
    format!("{base}/{database}?{parameters}")
}

/// A database that goes away with its test, by way of the server that it lies on.
struct Database {
    admin: String,
    name: String,
}

impl Database {
    async fn new(admin: String) -> Result<Self, Failure> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let name = format!("conformance_{}_{}", std::process::id(), NUMBERS.fetch_add(1, Relaxed));
        run(&admin, format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")).await?;
        Ok(Self { admin, name })
    }
}

async fn run(url: &str, sql: String) -> Result<(), Failure> {
    let mut conn = PgConnection::connect(url).await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
    Ok(conn.close().await?)
}

impl Drop for Database {
    fn drop(&mut self) {
        let (admin, name) = (self.admin.clone(), self.name.clone());
        // The test's own runtime is about to end, so this one is.
        let _ = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(run(&admin, format!("DROP DATABASE {name} WITH (FORCE)")))
        })
        .join();
    }
}

/// Where a suite runs: the server that databases are made on, and the way to them.
trait Way: Send + Sync + 'static {
    const SERVER: &'static str;
    const DOOR: &'static str;
    const POOLED: bool;
}

struct PgHarness<W> {
    store: PgStore,
    locker: tokio::sync::Mutex<Option<Transaction<'static, Postgres>>>,
    _database: Database,
    _way: std::marker::PhantomData<W>,
}

impl<W: Way> StoreHarness for PgHarness<W> {
    type Tx = Transaction<'static, Postgres>;

    async fn fresh() -> Result<Self, Failure> {
        let (admin, door) = (server(W::SERVER)?, server(W::DOOR)?);
        let database = Database::new(admin).await?;
        let store = PgStore::builder().connections(4).connect(&with_database(&door, &database.name)).await?;
        assert_eq!(
            store.is_pooled(),
            W::POOLED,
            "whether a pooler stands before the server was not found out"
        );
        store.migrate().await?;
        sqlx::raw_sql("CREATE TABLE business (name text PRIMARY KEY)").execute(store.pool()).await?;
        Ok(Self {
            store,
            locker: tokio::sync::Mutex::default(),
            _database: database,
            _way: std::marker::PhantomData,
        })
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    /// The server's clock cannot be moved: so everything stored becomes older.
    async fn pass(&self, time: Duration) -> Result<(), Failure> {
        let by = format!("interval '{} microseconds'", time.as_micros());
        let updates = format!(
            "UPDATE postrider_event SET available_at = available_at - {by}, created_at = created_at - {by};
             UPDATE postrider_done SET done_at = done_at - {by};
             UPDATE postrider_hold SET until = until - {by};
             UPDATE postrider_lane SET leased_until = leased_until - {by};"
        );
        sqlx::raw_sql(AssertSqlSafe(updates)).execute(self.store.pool()).await?;
        Ok(())
    }

    async fn begin(&self) -> Result<Self::Tx, Failure> {
        Ok(self.store.pool().begin().await?)
    }

    async fn insert(
        &self,
        tx: &mut Self::Tx,
        events: &[Event],
        on_duplicate: OnDuplicate,
    ) -> Result<Vec<bool>> {
        CallerTx::insert(tx, self.store.target(), events, on_duplicate).await
    }

    async fn put(&self, tx: &mut Self::Tx, name: &str) -> Result<(), Failure> {
        let put = sqlx::query("INSERT INTO business (name) VALUES ($1)").persistent(false);
        put.bind(name.to_owned()).execute(&mut **tx).await?;
        Ok(())
    }

    async fn has(&self, name: &str) -> Result<bool, Failure> {
        let mut tx = self.store.pool().begin().await?;
        let count = sqlx::query_scalar("SELECT count(*) FROM business WHERE name = $1").persistent(false);
        let count: i64 = count.bind(name.to_owned()).fetch_one(&mut *tx).await?;
        tx.commit().await?;
        Ok(count > 0)
    }

    async fn fail_statement(&self, tx: &mut Self::Tx) -> Result<(), Failure> {
        let failed = sqlx::raw_sql("INSERT INTO business (name) VALUES (NULL)").execute(&mut **tx).await;
        assert!(failed.is_err());
        Ok(())
    }

    async fn savepoint(&self, tx: &mut Self::Tx) -> Result<(), Failure> {
        sqlx::raw_sql("SAVEPOINT suite").execute(&mut **tx).await?;
        Ok(())
    }

    async fn rollback_to_savepoint(&self, tx: &mut Self::Tx) -> Result<(), Failure> {
        sqlx::raw_sql("ROLLBACK TO suite").execute(&mut **tx).await?;
        Ok(())
    }

    async fn commit(&self, tx: Self::Tx) -> Result<(), Failure> {
        Ok(tx.commit().await?)
    }

    async fn rollback(&self, tx: Self::Tx) -> Result<(), Failure> {
        Ok(tx.rollback().await?)
    }

    async fn lock_row(&self, event: &Event) -> Result<bool, Failure> {
        let mut tx = self.store.pool().begin().await?;
        let lock =
            sqlx::query("SELECT 1 FROM postrider_event WHERE event_id = $1 FOR UPDATE").persistent(false);
        lock.bind(event.id().to_string()).fetch_one(&mut *tx).await?;
        *self.locker.lock().await = Some(tx);
        Ok(true)
    }

    async fn unlock_row(&self) -> Result<(), Failure> {
        if let Some(tx) = self.locker.lock().await.take() {
            tx.rollback().await?;
        }
        Ok(())
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

mod newest {
    use super::*;

    pub(super) struct Direct;

    impl Way for Direct {
        const SERVER: &'static str = "POSTRIDER_TEST_POSTGRES_URL";
        const DOOR: &'static str = Self::SERVER;
        const POOLED: bool = false;
    }

    store_conformance!(PgHarness<Direct>);
}

mod oldest {
    use super::*;

    pub(super) struct Direct;

    impl Way for Direct {
        const SERVER: &'static str = "POSTRIDER_TEST_POSTGRES15_URL";
        const DOOR: &'static str = Self::SERVER;
        const POOLED: bool = false;
    }

    store_conformance!(PgHarness<Direct>);
}

mod pgbouncer {
    use super::*;

    pub(super) struct Pooled;

    impl Way for Pooled {
        const SERVER: &'static str = "POSTRIDER_TEST_POSTGRES_URL";
        const DOOR: &'static str = "POSTRIDER_TEST_PGBOUNCER_URL";
        const POOLED: bool = true;
    }

    store_conformance!(PgHarness<Pooled>);
}
