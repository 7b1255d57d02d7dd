//! The SQLite files of one run, all in one temporary folder and so on the same file system.

use std::{fs, path::PathBuf};

use postrider::{Event, EventBuilder, Outbox, sqlite::SqliteStore};
use postrider_relay::{Failure, TemporaryFolder};

use super::rounds::bar;

/// Events in one transaction that fills a table.
const BATCH: u64 = 2000;

/// A folder of databases; dropping it removes them.
pub(super) struct Files(TemporaryFolder);

impl Files {
    pub(super) fn create() -> Result<Self, Failure> {
        Ok(Self(TemporaryFolder::create("bench")?))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(format!("{name}.db"))
    }

    /// The store in the file of this name.
    pub(super) async fn open(&self, name: &str) -> Result<SqliteStore, Failure> {
        let path = self.path(name);
        let path = path.to_str().ok_or_else(|| Failure::usage("the temporary folder's name is not UTF-8"))?;
        Ok(SqliteStore::connect(path).await?)
    }

    /// The store in a copy of a closed file.
    pub(super) async fn open_copy(&self, of: &str, name: &str) -> Result<SqliteStore, Failure> {
        // A file that an earlier round left under this name would belong to another database.
        for suffix in ["-wal", "-shm"] {
            let _ = fs::remove_file(self.path(name).with_extension(format!("db{suffix}")));
        }
        fs::copy(self.path(of), self.path(name)).map_err(|error| {
            Failure::unreachable(format!("cannot copy {}", self.path(of).display()), &error)
        })?;
        self.open(name).await
    }
}

/// Writes events, many per transaction, as a service would that does nothing else.
pub(super) async fn fill(
    bench: &'static str,
    store: &SqliteStore,
    count: u64,
    event: impl Fn(u64) -> EventBuilder,
) -> Result<(), Failure> {
    let outbox = Outbox::builder().store(store.clone()).write_only().await?;
    let bar = bar(bench, "write", count);
    let mut written = 0;
    while written < count {
        let until = count.min(written + BATCH);
        let events: Vec<_> = (written..until).map(&event).collect();
        outbox.transaction(store, async |tx| tx.write_all(events).await).await?;
        written = until;
        bar.set_position(written);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Closes a store; its last connection moves the write-ahead log into the file.
pub(super) async fn close(store: SqliteStore) {
    store.close().await;
}

/// An event of an aggregate of its own with this many bytes of payload.
pub(super) fn event(number: u64, payload_bytes: usize) -> EventBuilder {
    let around = r#"{"note":""}"#.len();
    let text = format!(r#"{{"note":"{}"}}"#, "x".repeat(payload_bytes.saturating_sub(around)));
    Event::json_text("OrderPlaced", text).aggregate("Order", number)
}
