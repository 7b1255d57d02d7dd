//! A store, and the ways in which a program writes to it.

use std::{path::PathBuf, sync::Arc};

use postrider::{
    Error, EventId, IntoEvent, Outbox, OutboxBuilder, Store, memory::MemoryStore, sqlite::SqliteStore,
    store::EventStatus,
};
use sqlx::SqlitePool;

/// A folder of its own, gone when it is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("postrider-{}", EventId::ulid()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self) -> String {
        self.0.join("outbox.db").to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) enum Database {
    Memory(MemoryStore),
    Sqlite(SqlitePool, Option<Folder>),
}

/// An empty, migrated database that no other test sees.
pub(crate) struct Site {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) database: Database,
}

impl Site {
    pub(crate) fn memory(lanes: u32) -> Self {
        let store = MemoryStore::new(lanes);
        Self { store: Arc::new(store.clone()), database: Database::Memory(store) }
    }

    pub(crate) async fn sqlite() -> Self {
        let folder = Folder::new();
        let store = SqliteStore::connect(&folder.file()).await.unwrap();
        Self::of_sqlite(store, Some(folder)).await
    }

    pub(crate) async fn sqlite_in_memory() -> Self {
        Self::of_sqlite(SqliteStore::connect("sqlite::memory:").await.unwrap(), None).await
    }

    async fn of_sqlite(store: SqliteStore, folder: Option<Folder>) -> Self {
        store.migrate().await.unwrap();
        let pool = store.pool().clone();
        sqlx::query("CREATE TABLE orders (name TEXT PRIMARY KEY)").execute(&pool).await.unwrap();
        Self { store: Arc::new(store), database: Database::Sqlite(pool, folder) }
    }

    /// The store of a site in memory.
    pub(crate) fn memory_store(&self) -> &MemoryStore {
        match &self.database {
            Database::Memory(store) => store,
            Database::Sqlite(..) => panic!("this site is in SQLite"),
        }
    }

    /// The pool of a site in SQLite.
    pub(crate) fn pool(&self) -> &SqlitePool {
        match &self.database {
            Database::Sqlite(pool, _) => pool,
            Database::Memory(_) => panic!("this site is in memory"),
        }
    }

    /// Whether time is the host's: tests then keep their waits short.
    pub(crate) fn is_sqlite(&self) -> bool {
        matches!(self.database, Database::Sqlite(..))
    }

    /// The file of a site in SQLite.
    pub(crate) fn file(&self) -> String {
        match &self.database {
            Database::Sqlite(_, Some(folder)) => folder.file(),
            _ => panic!("this site has no file"),
        }
    }

    /// Begins to put an outbox of this site together. Its seed is fixed.
    pub(crate) fn outbox(&self) -> OutboxBuilder {
        Outbox::builder().shared_store(self.store.clone()).seed(7)
    }

    /// Writes an event and a business row in a transaction of the caller's, commits it and tells the receipt.
    pub(crate) async fn write(&self, outbox: &Outbox, event: impl IntoEvent) -> EventId {
        self.write_all(outbox, [event]).await.remove(0)
    }

    pub(crate) async fn write_all(
        &self,
        outbox: &Outbox,
        events: impl IntoIterator<Item = impl IntoEvent>,
    ) -> Vec<EventId> {
        let receipt = self.commit_all(outbox, events).await;
        let ids = receipt.ids().to_vec();
        receipt.committed();
        ids
    }

    /// As [`write`](Site::write), but nobody tells the engine.
    pub(crate) async fn write_untold(&self, outbox: &Outbox, event: impl IntoEvent) -> EventId {
        self.commit_all(outbox, [event]).await.ids()[0].clone()
    }

    pub(crate) async fn write_all_untold(
        &self,
        outbox: &Outbox,
        events: impl IntoIterator<Item = impl IntoEvent>,
    ) -> Vec<EventId> {
        self.commit_all(outbox, events).await.ids().to_vec()
    }

    async fn commit_all(
        &self,
        outbox: &Outbox,
        events: impl IntoIterator<Item = impl IntoEvent>,
    ) -> postrider::Receipts {
        match &self.database {
            Database::Memory(store) => {
                let mut tx = store.begin();
                let receipt = outbox.write_all(&mut tx, events).await.unwrap();
                tx.commit().await.unwrap();
                receipt
            }
            Database::Sqlite(pool, _) => {
                let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
                let receipt = outbox.write_all(&mut tx, events).await.unwrap();
                tx.commit().await.unwrap();
                receipt
            }
        }
    }

    /// Writes an event in a transaction that the outbox owns.
    pub(crate) async fn write_hot(&self, outbox: &Outbox, event: impl IntoEvent) -> EventId {
        let event = event.into_event().unwrap();
        match &self.database {
            Database::Memory(store) => outbox.transaction(store, async |tx| tx.write(event).await).await,
            Database::Sqlite(pool, _) => outbox.transaction(pool, async |tx| tx.write(event).await).await,
        }
        .unwrap()
    }

    /// Writes several events in one transaction that the outbox owns.
    pub(crate) async fn write_all_hot(&self, outbox: &Outbox, events: Vec<impl IntoEvent>) -> Vec<EventId> {
        match &self.database {
            Database::Memory(store) => {
                outbox.transaction::<_, _, _, Error, _>(store, async |tx| tx.write_all(events).await).await
            }
            Database::Sqlite(pool, _) => {
                outbox.transaction::<_, _, _, Error, _>(pool, async |tx| tx.write_all(events).await).await
            }
        }
        .unwrap()
    }

    /// Deletes the row of an event, as somebody's `DELETE` would.
    pub(crate) async fn delete_row(&self, id: &EventId) {
        match &self.database {
            Database::Memory(store) => store.delete_row(id),
            Database::Sqlite(pool, _) => {
                let delete = sqlx::query("DELETE FROM postrider_event WHERE event_id = ?");
                delete.bind(id.to_string()).execute(pool).await.unwrap();
            }
        }
    }

    pub(crate) async fn status(&self, id: &EventId) -> EventStatus {
        self.store.status(id).await.unwrap()
    }

    pub(crate) async fn is_done(&self, id: &EventId) -> bool {
        matches!(self.status(id).await, EventStatus::Done { .. })
    }

    /// Waits until the event is delivered and settled.
    pub(crate) async fn until_done(&self, id: &EventId) {
        super::eventually("the event is done", async || self.is_done(id).await).await;
    }

    /// Waits until so many events are delivered and settled.
    pub(crate) async fn until_all_done(&self, count: u64) {
        super::eventually(&format!("{count} events are done"), async || {
            self.store.stats().await.unwrap().done >= count
        })
        .await;
    }

    /// Waits until so many dead letters lie there.
    pub(crate) async fn until_dead(&self, count: usize) {
        super::eventually(&format!("{count} events are dead"), async || {
            self.store.dead(0, count + 1).await.unwrap().len() >= count
        })
        .await;
    }
}
