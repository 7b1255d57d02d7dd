//! The store conformance suite on MySQL or MariaDB, in a database of its own for each test.

use std::{
    env, process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider_core::{CallerTx, Event, EventId, Result, Store, tx::OnDuplicate};
use postrider_sqlx::MysqlStore;
use postrider_testkit::{
    conformance::{Failure, StoreHarness},
    store_conformance,
};
use sqlx::{AssertSqlSafe, Connection, MySql, MySqlConnection, Transaction};

/// What names the server. A user of it must be allowed to create databases.
const VARIABLE: &str = "POSTRIDER_TEST_MYSQL_URL";

fn server() -> Result<String, Failure> {
    env::var(VARIABLE).map_err(|_| {
        format!(
            "{VARIABLE} names no server: run `cargo xtask services up` and `eval $(cargo xtask services env)`, \
             or set it to mysql://user:password@host:port/database"
        )
        .into()
    })
}

async fn on_server(sql: String) -> Result<(), Failure> {
    let mut conn = MySqlConnection::connect(&server()?).await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
    conn.close().await?;
    Ok(())
}

/// A database that goes away with its test.
struct Database {
    name: String,
}

impl Database {
    async fn new() -> Result<Self, Failure> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let name = format!("postrider_test_{}_{}", process::id(), NUMBERS.fetch_add(1, Relaxed));
        on_server(format!("DROP DATABASE IF EXISTS {name}; CREATE DATABASE {name}")).await?;
        Ok(Self { name })
    }

    /// The server's URL with this database in place of its own.
    fn url(&self) -> Result<String, Failure> {
        let server = server()?;
        let (scheme, rest) = server.split_once("://").ok_or("the URL has no scheme")?;
        let authority = rest.split(['/', '?']).next().unwrap_or(rest);
        Ok(format!("{scheme}://{authority}/{}", self.name))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let name = self.name.clone();
        // The runtime of the test is about to end, so this has one of its own.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(drop_database(name)).is_ok())
        });
        let _ = dropped.join();
    }
}

/// A test that failed may have left transactions open, which would keep its tables for ever: their sessions end first.
async fn drop_database(name: String) -> Result<(), Failure> {
    let mut conn = MySqlConnection::connect(&server()?).await?;
    let sessions = sqlx::query_scalar::<_, i64>(
        "SELECT CAST(id AS SIGNED) FROM information_schema.processlist WHERE db = ?",
    );
    for session in sessions.bind(name.clone()).fetch_all(&mut conn).await? {
        let _gone_already = sqlx::raw_sql(AssertSqlSafe(format!("KILL {session}"))).execute(&mut conn).await;
    }
    sqlx::raw_sql(AssertSqlSafe(format!("DROP DATABASE IF EXISTS {name}"))).execute(&mut conn).await?;
    Ok(conn.close().await?)
}

struct MysqlHarness {
    store: MysqlStore,
    _database: Database,
}

impl StoreHarness for MysqlHarness {
    type Tx = Transaction<'static, MySql>;

    async fn fresh() -> Result<Self, Failure> {
        let database = Database::new().await?;
        let store = MysqlStore::connect(&database.url()?).await?;
        store.migrate().await?;
        sqlx::raw_sql("CREATE TABLE business (name VARCHAR(255) NOT NULL PRIMARY KEY)")
            .execute(store.pool())
            .await?;
        Ok(Self { store, _database: database })
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    /// The server's clock cannot be moved for all sessions: so everything stored becomes older.
    async fn pass(&self, time: Duration) -> Result<(), Failure> {
        let time_us = i64::try_from(time.as_micros())?;
        for update in [
            "UPDATE postrider_event SET available_at = available_at - INTERVAL ? MICROSECOND, \
             created_at = created_at - INTERVAL ? MICROSECOND",
            "UPDATE postrider_done SET done_at = done_at - INTERVAL ? MICROSECOND",
            "UPDATE postrider_hold SET until = until - INTERVAL ? MICROSECOND",
            "UPDATE postrider_lane SET leased_until = leased_until - INTERVAL ? MICROSECOND",
        ] {
            let query = update.matches('?').fold(sqlx::query(update), |query, _| query.bind(time_us));
            query.execute(self.store.pool()).await?;
        }
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
        sqlx::query("INSERT INTO business (name) VALUES (?)")
            .bind(name.to_owned())
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    async fn has(&self, name: &str) -> Result<bool, Failure> {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM business WHERE name = ?")
            .bind(name.to_owned())
            .fetch_one(self.store.pool())
            .await?;
        Ok(count > 0)
    }

    async fn fail_statement(&self, tx: &mut Self::Tx) -> Result<(), Failure> {
        let failed = sqlx::query("INSERT INTO business (name) VALUES (NULL)").execute(&mut **tx).await;
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

    async fn insert_undecodable(&self) -> Result<EventId, Failure> {
        let id = EventId::ulid();
        sqlx::query("INSERT INTO postrider_event (event_id, event_type, payload, headers) VALUES (?, 'Broken', '{}', ?)")
            .bind(id.to_string())
            .bind("{\"half a map\":")
            .execute(self.store.pool())
            .await?;
        Ok(id)
    }
}

store_conformance!(MysqlHarness);
