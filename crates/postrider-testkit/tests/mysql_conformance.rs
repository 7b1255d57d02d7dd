//! The store conformance suite on MySQL or MariaDB, in a database of its own for each test.

#[path = "mysql/database.rs"]
mod database;

use std::{sync::Arc, time::Duration};

use database::Database;
use postrider_core::{
    CallerTx, Event, EventId, Result, Store,
    store::{Lane, Seq},
    tx::OnDuplicate,
};
use postrider_sqlx::MysqlStore;
use postrider_testkit::{
    conformance::{Failure, StoreHarness},
    store_conformance,
};
use sqlx::{MySql, Transaction};

struct MysqlHarness {
    store: MysqlStore,
    locker: tokio::sync::Mutex<Option<Transaction<'static, MySql>>>,
    _database: Database,
}

impl MysqlHarness {
    async fn make_older(&self, time_us: i64) -> Result<(), Failure> {
        for update in [
            "UPDATE postrider_event SET available_at = available_at - INTERVAL ? MICROSECOND, \
             created_at = created_at - INTERVAL ? MICROSECOND",
            "UPDATE postrider_done SET done_at = done_at - INTERVAL ? MICROSECOND",
            "UPDATE postrider_hold SET until = until - INTERVAL ? MICROSECOND",
            "UPDATE postrider_lane SET leased_until = leased_until - INTERVAL ? MICROSECOND",
            "UPDATE postrider_member SET until = until - INTERVAL ? MICROSECOND",
        ] {
            let query = update.matches('?').fold(sqlx::query(update), |query, _| query.bind(time_us));
            query.execute(self.store.pool()).await?;
        }
        Ok(())
    }
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
        Ok(Self { store, locker: tokio::sync::Mutex::default(), _database: database })
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    /// The server's clock cannot be moved for all sessions: so everything stored becomes older.
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

    async fn lock_row(&self, event: &Event) -> Result<bool, Failure> {
        let mut tx = self.store.pool().begin().await?;
        let lock = sqlx::query("SELECT 1 FROM postrider_event WHERE event_id = ? FOR UPDATE");
        lock.bind(event.id().to_string()).fetch_one(&mut *tx).await?;
        *self.locker.lock().await = Some(tx);
        Ok(true)
    }

    async fn lock_lane(&self, lane: Lane) -> Result<bool, Failure> {
        let mut tx = self.store.pool().begin().await?;
        let lock = sqlx::query("SELECT 1 FROM postrider_lane WHERE lane = ? FOR UPDATE");
        lock.bind(lane).fetch_one(&mut *tx).await?;
        *self.locker.lock().await = Some(tx);
        Ok(true)
    }

    async fn unlock_row(&self) -> Result<(), Failure> {
        if let Some(tx) = self.locker.lock().await.take() {
            tx.rollback().await?;
        }
        Ok(())
    }

    async fn go_back(&self) -> Result<bool, Failure> {
        let lost = "DELETE FROM postrider_event; ALTER TABLE postrider_event AUTO_INCREMENT = 1";
        sqlx::raw_sql(lost).execute(self.store.pool()).await?;
        Ok(true)
    }

    async fn number_from(&self, seq: Seq) -> Result<bool, Failure> {
        // An ALTER TABLE would wait for the transaction that a check has open.
        let far = format!(
            "INSERT INTO postrider_event (seq, event_type, payload) VALUES ({seq} - 1, 'Far', '{{}}')"
        );
        let mut tx = self.store.pool().begin().await?;
        sqlx::raw_sql(sqlx::AssertSqlSafe(far)).execute(&mut *tx).await?;
        tx.rollback().await?;
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

store_conformance!(MysqlHarness);
