//! What the tests of this crate share.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy takes functions beside the tests for no tests"
)]

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use postrider_core::{
    CallerTx, Event, EventId, Store,
    event::EventBuilder,
    rng::Rng,
    store::{
        Change, Claim, Claimed, ClaimedEvent, HoldReason, LaneClaim, Lease, LeaseRequest, Position, Seq,
        Settled, Settlement,
    },
    tx::OnDuplicate,
};
use postrider_sqlx::SqliteStore;

/// A folder that ends with the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("postrider-sqlx-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// What the real `sqlite3` shell answers; Debian's, which is older than the SQLite that we link.
pub fn shell(file: impl AsRef<Path>, sql: &str) -> String {
    let output = Command::new("sqlite3").arg("-bail").arg(file.as_ref()).arg(sql).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub async fn in_memory() -> SqliteStore {
    let store = SqliteStore::connect("sqlite::memory:").await.unwrap();
    store.migrate().await.unwrap();
    store
}

pub async fn execute(store: &SqliteStore, sql: &'static str) {
    sqlx::raw_sql(sql).execute(store.pool()).await.unwrap();
}

pub async fn number(store: &SqliteStore, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(store.pool()).await.unwrap()
}

pub fn event(id: &str) -> EventBuilder {
    Event::json_text("Tested", "{}").id(id)
}

/// Writes and commits.
pub async fn write(store: &SqliteStore, events: impl IntoIterator<Item = EventBuilder>) {
    let events: Vec<Event> = events.into_iter().map(|event| event.build().unwrap()).collect();
    let mut tx = store.pool().begin().await.unwrap();
    (&mut tx).insert(store.target(), &events, OnDuplicate::Fail).await.unwrap();
    tx.commit().await.unwrap();
}

/// An instance that holds the lane.
pub struct Instance {
    pub store: SqliteStore,
    pub lease: Lease,
    pub from: Position,
}

impl Instance {
    pub async fn new(store: &SqliteStore) -> Self {
        let lease = take(store, Duration::from_secs(60)).await.unwrap();
        Self::with_lease(store, lease)
    }

    /// The same with a lease that is given by hand.
    pub fn with_lease(store: &SqliteStore, lease: Lease) -> Self {
        Self { store: store.clone(), lease, from: Position::START }
    }

    pub fn plan(&self, limit: usize) -> Claim {
        Claim::new(vec![LaneClaim::after(self.lease, self.from)], limit)
    }

    /// Claims, and moves on.
    pub async fn claim(&mut self, limit: usize) -> Claimed {
        let claimed = self.store.claim(&self.plan(limit)).await.unwrap();
        assert!(claimed.lost.is_empty());
        self.from = claimed.positions[0].1;
        claimed
    }

    pub async fn settle(&self, settlements: &[Settlement]) -> Settled {
        self.store.settle(&[self.lease], settlements, Duration::from_secs(60)).await.unwrap()
    }
}

pub async fn take(store: &SqliteStore, ttl: Duration) -> Option<Lease> {
    let request =
        LeaseRequest { owner: "test".to_owned(), ttl, nonces: Rng::from_entropy(), most: usize::MAX };
    store.lease(&request).await.unwrap().leases().first().copied()
}

pub fn ids(claimed: &Claimed) -> Vec<String> {
    claimed.events.iter().map(|claimed| id(claimed).to_string()).collect()
}

pub fn id(claimed: &ClaimedEvent) -> EventId {
    claimed.event.as_ref().map_or_else(|row| row.id.clone(), |event| event.id().clone())
}

pub fn seqs(claimed: &Claimed) -> Vec<Seq> {
    claimed.events.iter().map(|claimed| claimed.seq).collect()
}

pub fn settlement(claimed: &ClaimedEvent, change: Change) -> Settlement {
    let key = match &claimed.event {
        Ok(event) => event.shared_key().cloned(),
        Err(row) => row.key.clone(),
    };
    Settlement {
        lane: claimed.lane,
        seq: claimed.seq,
        event_id: claimed.id().clone(),
        key,
        held: claimed.held,
        change,
    }
}

pub fn retry(after: Duration, attempts: u32) -> Change {
    Change::Wait { after, attempts, error: Some("refused".to_owned()), reason: HoldReason::Retry }
}

pub fn dead(block: bool) -> Change {
    Change::Dead { attempts: 3, error: "hopeless".to_owned(), block }
}

pub const HOUR: Duration = Duration::from_secs(3600);

pub async fn in_file(file: &str) -> SqliteStore {
    let store = SqliteStore::connect(file).await.unwrap();
    store.migrate().await.unwrap();
    store
}
