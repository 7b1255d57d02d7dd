//! The store conformance suite on SQLite, in a file of its own for each test.

use std::{
    env, fs,
    path::PathBuf,
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider_core::{CallerTx, Event, EventId, Result, Store, store::Seq, tx::OnDuplicate};
use postrider_sqlx::SqliteStore;
use postrider_testkit::{
    conformance::{Failure, StoreHarness},
    store_conformance,
};
use sqlx::{Sqlite, Transaction};

/// A folder that goes away with its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let name = format!("postrider-conformance-{}-{}", process::id(), NUMBERS.fetch_add(1, Relaxed));
        let path = env::temp_dir().join(name);
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct SqliteHarness {
    store: SqliteStore,
    _folder: Folder,
}

impl SqliteHarness {
    async fn make_older(&self, time_us: i64) -> Result<(), Failure> {
        for update in [
            "UPDATE postrider_event SET available_at = available_at - ?1, created_at = created_at - ?1",
            "UPDATE postrider_done SET done_at = done_at - ?1",
            "UPDATE postrider_hold SET until = until - ?1",
            "UPDATE postrider_lane SET leased_until = leased_until - ?1",
            "UPDATE postrider_member SET until = until - ?1",
        ] {
            sqlx::query(update).bind(time_us).execute(self.store.pool()).await?;
        }
        Ok(())
    }
}

impl StoreHarness for SqliteHarness {
    type Tx = Transaction<'static, Sqlite>;

    async fn fresh() -> Result<Self, Failure> {
        let folder = Folder::new()?;
        let store = SqliteStore::connect(&folder.0.join("outbox.db").to_string_lossy()).await?;
        store.migrate().await?;
        sqlx::raw_sql("CREATE TABLE business (name TEXT NOT NULL PRIMARY KEY)").execute(store.pool()).await?;
        Ok(Self { store, _folder: folder })
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    /// SQLite's clock is the host's, which tests cannot move: so everything stored becomes older.
    async fn pass(&self, time: Duration) -> Result<(), Failure> {
        self.make_older(i64::try_from(time.as_micros())?).await
    }

    async fn set_back(&self, by: Duration) -> Result<(), Failure> {
        self.make_older(-i64::try_from(by.as_micros())?).await
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

    async fn insert_plain(&self, sql: &str) -> Option<Result<(), Failure>> {
        let done = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(self.store.pool()).await;
        Some(done.map(drop).map_err(Failure::from))
    }

    async fn go_back(&self) -> Result<bool, Failure> {
        let lost =
            "DELETE FROM postrider_event; UPDATE sqlite_sequence SET seq = 0 WHERE name = 'postrider_event'";
        sqlx::raw_sql(lost).execute(self.store.pool()).await?;
        Ok(true)
    }

    async fn number_from(&self, seq: Seq) -> Result<bool, Failure> {
        let last = "UPDATE sqlite_sequence SET seq = ? WHERE name = 'postrider_event'";
        sqlx::query(last).bind(i64::try_from(seq)? - 1).execute(self.store.pool()).await?;
        Ok(true)
    }

    async fn delete_row(&self, event: &Event) -> Result<bool, Failure> {
        let delete = sqlx::query("DELETE FROM postrider_event WHERE event_id = ?");
        delete.bind(event.id().to_string()).execute(self.store.pool()).await?;
        Ok(true)
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

store_conformance!(SqliteHarness);
