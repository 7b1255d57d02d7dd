//! The store conformance suite on PostgreSQL: the newest, the oldest that is promised, through PgBouncer in transaction mode, and in a database
//! whose settings are against us.
//! Each test has a database of its own.

use std::{
    env,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider_core::{
    CallerTx, Event, EventId, Result, Store,
    store::{Lane, Seq},
    tx::OnDuplicate,
};
use postrider_sqlx::PgStore;
use postrider_testkit::{
    conformance::{Failure, StoreHarness},
    store_conformance,
};
use sqlx::{
    AssertSqlSafe, Connection, PgConnection, PgPool, Postgres, Transaction, postgres::PgConnectOptions,
};

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
    /// What sessions of the database begin with, unless they say otherwise.
    const SETTINGS: &'static [(&'static str, &'static str)] = &[];
}

struct PgHarness<W> {
    store: PgStore,
    /// What the harness itself uses.
    own: PgPool,
    locker: tokio::sync::Mutex<Option<Transaction<'static, Postgres>>>,
    _database: Database,
    _way: std::marker::PhantomData<W>,
}

/// A pool with the settings that a session has elsewhere.
fn calm(url: &str) -> Result<PgPool, Failure> {
    let settings = [
        ("default_transaction_isolation", "read committed"),
        ("statement_timeout", "0"),
        ("lock_timeout", "0"),
        ("idle_in_transaction_session_timeout", "0"),
        ("idle_session_timeout", "0"),
    ];
    Ok(PgPool::connect_lazy_with(PgConnectOptions::from_str(url)?.options(settings)))
}

impl<W: Way> PgHarness<W> {
    async fn make_older(&self, by: &str) -> Result<(), Failure> {
        let updates = format!(
            "UPDATE postrider_event SET available_at = available_at - {by}, created_at = created_at - {by};
             UPDATE postrider_done SET done_at = done_at - {by};
             UPDATE postrider_hold SET until = until - {by};
             UPDATE postrider_lane SET leased_until = leased_until - {by};
             UPDATE postrider_member SET until = until - {by};"
        );
        sqlx::raw_sql(AssertSqlSafe(updates)).execute(&self.own).await?;
        Ok(())
    }
}

impl<W: Way> StoreHarness for PgHarness<W> {
    type Tx = Transaction<'static, Postgres>;

    async fn fresh() -> Result<Self, Failure> {
        let (admin, door) = (server(W::SERVER)?, server(W::DOOR)?);
        let database = Database::new(admin).await?;
        for (name, value) in W::SETTINGS {
            run(&database.admin, format!("ALTER DATABASE {} SET {name} = {value}", database.name)).await?;
        }
        let url = with_database(&door, &database.name);
        let store = PgStore::builder().connections(4).connect(&url).await?;
        assert_eq!(
            store.is_pooled(),
            W::POOLED,
            "whether a pooler stands before the server was not found out"
        );
        store.migrate().await?;
        let own = if W::SETTINGS.is_empty() { store.pool().clone() } else { calm(&url)? };
        sqlx::raw_sql("CREATE TABLE business (name text PRIMARY KEY)").execute(&own).await?;
        Ok(Self {
            store,
            own,
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
        self.make_older(&format!("interval '{} microseconds'", time.as_micros())).await
    }

    async fn set_back(&self, by: Duration) -> Result<(), Failure> {
        self.make_older(&format!("interval '-{} microseconds'", by.as_micros())).await
    }

    async fn begin(&self) -> Result<Self::Tx, Failure> {
        Ok(self.own.begin().await?)
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
        let mut tx = self.own.begin().await?;
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

    async fn insert_plain(&self, sql: &str) -> Option<Result<(), Failure>> {
        let done = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(&self.own).await;
        Some(done.map(drop).map_err(Failure::from))
    }

    async fn lock_row(&self, event: &Event) -> Result<bool, Failure> {
        let mut tx = self.own.begin().await?;
        let lock =
            sqlx::query("SELECT 1 FROM postrider_event WHERE event_id = $1 FOR UPDATE").persistent(false);
        lock.bind(event.id().to_string()).fetch_one(&mut *tx).await?;
        *self.locker.lock().await = Some(tx);
        Ok(true)
    }

    async fn lock_lane(&self, lane: Lane) -> Result<bool, Failure> {
        let mut tx = self.own.begin().await?;
        let lock = sqlx::query("SELECT 1 FROM postrider_lane WHERE lane = $1 FOR UPDATE").persistent(false);
        lock.bind(i32::try_from(lane)?).fetch_one(&mut *tx).await?;
        *self.locker.lock().await = Some(tx);
        Ok(true)
    }

    async fn unlock_row(&self) -> Result<(), Failure> {
        if let Some(tx) = self.locker.lock().await.take() {
            tx.rollback().await?;
        }
        Ok(())
    }

    /// Neither the log nor the transactions nor the tables tell of it.
    async fn go_back(&self) -> Result<bool, Failure> {
        sqlx::raw_sql("TRUNCATE postrider_event RESTART IDENTITY").execute(&self.own).await?;
        Ok(true)
    }

    async fn number_from(&self, seq: Seq) -> Result<bool, Failure> {
        // One message, which a pooler gives to one connection.
        let restart =
            format!("SELECT setval(pg_get_serial_sequence('postrider_event', 'seq'), {seq}, false)");
        sqlx::raw_sql(AssertSqlSafe(restart)).execute(&self.own).await?;
        Ok(true)
    }

    async fn delete_row(&self, event: &Event) -> Result<bool, Failure> {
        let delete = format!("DELETE FROM postrider_event WHERE event_id = '{}'", event.id());
        sqlx::raw_sql(AssertSqlSafe(delete)).execute(&self.own).await?;
        Ok(true)
    }

    async fn insert_undecodable(&self) -> Result<EventId, Failure> {
        let id = EventId::ulid();
        let insert = format!(
            "INSERT INTO postrider_event (event_id, event_type, payload, headers)
             VALUES ('{id}', 'Broken', '{{}}', '{{\"half a map\":')"
        );
        sqlx::raw_sql(AssertSqlSafe(insert)).execute(&self.own).await?;
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

mod hostile {
    use super::*;

    pub(super) struct Hostile;

    impl Way for Hostile {
        const SERVER: &'static str = "POSTRIDER_TEST_POSTGRES_URL";
        const DOOR: &'static str = Self::SERVER;
        const POOLED: bool = false;
        const SETTINGS: &'static [(&'static str, &'static str)] = &[
            ("default_transaction_isolation", "'serializable'"),
            ("default_transaction_deferrable", "on"),
            ("statement_timeout", "'20ms'"),
            ("lock_timeout", "'1ms'"),
            ("idle_in_transaction_session_timeout", "'20ms'"),
            ("idle_session_timeout", "'2s'"),
            ("TimeZone", "'Asia/Kathmandu'"),
            ("DateStyle", "'German, DMY'"),
            ("IntervalStyle", "'sql_standard'"),
            ("client_encoding", "'LATIN1'"),
            ("bytea_output", "'escape'"),
            ("standard_conforming_strings", "off"),
            ("plan_cache_mode", "'force_generic_plan'"),
            ("search_path", "public, pg_catalog"),
        ];
    }

    store_conformance!(PgHarness<Hostile>);
}
