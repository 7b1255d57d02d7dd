//! A database for each test, and an owner of its lanes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    reason = "clippy takes functions beside the tests for no tests, and no test file needs all of them"
)]

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider_core::{
    Error, Event, OwnedTx, Store, TxSource,
    rng::Rng,
    store::{
        Admission, Change, Claim, Claimed, ClaimedEvent, Lane, LaneClaim, Lease, LeaseRequest, Position, Seq,
        Settlement,
    },
    tx::OnDuplicate,
};
use postrider_sqlx::PgStore;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

pub(crate) fn server() -> String {
    std::env::var("POSTRIDER_TEST_POSTGRES_URL").expect(
        "POSTRIDER_TEST_POSTGRES_URL is not set: start the servers with `cargo xtask services up` and name them to this \
         shell with `eval $(cargo xtask services env)`",
    )
}

pub(crate) fn with_database(url: &str, database: &str) -> String {
    let (base, _) = url.rsplit_once('/').unwrap();
    format!("{base}/{database}")
}

pub(crate) struct Database {
    pub(crate) name: String,
}

impl Database {
    pub(crate) async fn new() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let name = format!("sqlx_{}_{}", std::process::id(), NUMBERS.fetch_add(1, Relaxed));
        run(&server(), &format!("CREATE DATABASE {name}")).await;
        Self { name }
    }

    pub(crate) fn url(&self) -> String {
        with_database(&server(), &self.name)
    }

    pub(crate) fn url_of(&self, user: &str, password: &str) -> String {
        let url = self.url();
        let (_, place) = url.rsplit_once('@').unwrap();
        format!("postgres://{user}:{password}@{place}")
    }

    pub(crate) async fn connect(&self) -> PgStore {
        PgStore::builder().pooled(false).connections(4).connect(&self.url()).await.unwrap()
    }

    pub(crate) async fn migrated(&self) -> PgStore {
        let store = self.connect().await;
        store.migrate().await.unwrap();
        store
    }

    pub(crate) async fn raw(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.unwrap()
    }

    pub(crate) async fn run(&self, sql: &str) {
        run(&self.url(), sql).await;
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let mut conn = self.raw().await;
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_one(&mut conn).await.unwrap().get(0)
    }

    /// Returns when a session waits for a lock.
    pub(crate) async fn until_somebody_waits(&self) {
        let waiting = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while self.number(waiting).await == 0 {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let name = self.name.clone();
        // The test's own runtime is about to end, so this one is.
        let _ = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(run(&server(), &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")));
        })
        .join();
    }
}

pub(crate) async fn run(url: &str, sql: &str) {
    let mut conn = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut conn).await.unwrap();
    let _ = conn.close().await;
}

pub(crate) fn event(key: &str) -> Event {
    Event::json_text("Tested", "{}").key(key).build().unwrap()
}

pub(crate) async fn write(store: &PgStore, events: &[Event]) {
    let mut tx = TxSource::begin(store).await.unwrap();
    tx.insert(store.target(), events, OnDuplicate::Fail).await.unwrap();
    tx.commit().await.unwrap();
}

pub(crate) fn settlement(event: &ClaimedEvent, change: Change) -> Settlement {
    let key = event.event.as_ref().ok().and_then(|event| event.shared_key().cloned());
    Settlement {
        lane: event.lane,
        seq: event.seq,
        event_id: event.id().clone(),
        key,
        held: event.held,
        change,
    }
}

/// One instance that holds all lanes, and keeps between claims what an engine keeps.
pub(crate) struct Owner {
    leases: Vec<Lease>,
    positions: BTreeMap<Lane, Position>,
    again: Vec<(Lane, Seq)>,
    admission: Option<Arc<dyn Admission>>,
}

impl Owner {
    pub(crate) async fn lease(store: &PgStore) -> Self {
        let request = LeaseRequest {
            owner: "test".to_owned(),
            ttl: Duration::from_secs(600),
            nonces: Rng::from_entropy(),
            most: usize::MAX,
        };
        let leases = store.lease(&request).await.unwrap().leases();
        Self { leases, positions: BTreeMap::new(), again: Vec::new(), admission: None }
    }

    /// Has its claims ask which rows are wanted.
    pub(crate) fn admit(&mut self, admission: Arc<dyn Admission>) {
        self.admission = Some(admission);
    }

    pub(crate) fn leases(&self) -> &[Lease] {
        &self.leases
    }

    pub(crate) fn lease_of(&self, lane: Lane) -> Lease {
        *self.leases.iter().find(|lease| lease.lane == lane).unwrap()
    }

    pub(crate) fn again(&mut self, events: &[ClaimedEvent]) {
        self.again.extend(events.iter().map(|event| (event.lane, event.seq)));
    }

    /// Forgets how far it has come.
    pub(crate) fn look_from_the_start(&mut self) {
        self.positions.clear();
    }

    /// Up to where a scan behind the forward reads has come that is not over.
    pub(crate) fn scanned_to(&self) -> Option<Seq> {
        let rescans = self.positions.values().map(|position| position.late.rescan);
        rescans.filter(|rescan| rescan.is_under_way()).map(|rescan| rescan.reached).max()
    }

    pub(crate) async fn claim(&mut self, store: &PgStore) -> Claimed {
        self.try_claim(store).await.unwrap()
    }

    /// Claims what is due and settles it as delivered. Says how many events that were.
    pub(crate) async fn deliver(&mut self, store: &PgStore) -> usize {
        let events = self.claim(store).await.events;
        let done: Vec<_> = events.iter().map(|event| settlement(event, Change::Done)).collect();
        if !done.is_empty() {
            store.settle(&self.leases, &done, Duration::ZERO).await.unwrap();
        }
        events.len()
    }

    pub(crate) async fn try_claim(&mut self, store: &PgStore) -> Result<Claimed, Error> {
        let again = std::mem::take(&mut self.again);
        let lane = |lease: &Lease| LaneClaim {
            again: again.iter().filter(|(lane, _)| *lane == lease.lane).map(|(_, seq)| *seq).collect(),
            ..LaneClaim::after(*lease, self.positions.get(&lease.lane).copied().unwrap_or(Position::START))
        };
        let admission = self.admission.clone();
        let claim = Claim { admission, ..Claim::new(self.leases.iter().map(lane).collect(), 500) };
        let claimed = store.claim(&claim).await?;
        self.positions.extend(claimed.positions.iter().copied());
        self.again.extend(claimed.again.iter().copied());
        Ok(claimed)
    }
}
