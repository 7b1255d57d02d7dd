//! A server that goes away in every phase of an engine's life: before it starts, while it has nothing to do, while an event is with its
//! receiver, for longer than a lease, and while it ends. It goes on by itself, loses nothing, and says so without a flood of lines.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use postrider::{Delivery, Error, Outbox, Store, StoreErrorKind, connect};
use postrider_testkit::{conformance::Failure, proxy::Proxy};
use tokio::sync::Semaphore;
use tracing::Level;

use crate::{
    database::{Database, Kind, lazy_store},
    log::Log,
    time::{TIMEOUT, pass, until},
};

const LEASE: Duration = Duration::from_secs(6);

/// Most lines about a server that is away, in a second: each loop backs off by itself.
const LINES_PER_SECOND: f64 = 40.0;

struct Scene {
    database: Database,
    /// What the test itself looks through, beside the proxy.
    store: Arc<dyn Store>,
    proxy: Proxy,
    log: Log,
    written: u64,
}

impl Scene {
    async fn set(kind: Kind, log: Log) -> Result<Self, Failure> {
        let database = Database::new(kind).await?;
        let store = lazy_store(kind, &database.url()?)?;
        store.migrate().await?;
        let proxy = Proxy::start(database.address()?).await?;
        Ok(Self { database, store, proxy, log, written: 0 })
    }

    fn url(&self) -> Result<String, Failure> {
        self.database.url_by(&self.proxy.address().to_string())
    }

    fn go_away(&self) {
        self.proxy.refuse();
        self.proxy.cut();
    }

    async fn write(&mut self) -> Result<(), Failure> {
        self.written += 1;
        self.database.run("INSERT INTO postrider_event (event_type, payload) VALUES ('Tested', '{}')").await
    }

    async fn all_delivered(&self) -> Result<(), Failure> {
        let all = async || Ok((self.store.stats().await?.done == self.written).then_some(()));
        until("all is delivered and settled", TIMEOUT, all).await
    }

    fn lines(&self) -> usize {
        self.log.count(Level::WARN, "") + self.log.count(Level::ERROR, "")
    }

    async fn says(&self, text: &str, since: usize) -> Result<(), Failure> {
        let count = || self.log.count(Level::WARN, text) + self.log.count(Level::ERROR, text);
        until(text, TIMEOUT, async || Ok((count() > since).then_some(()))).await
    }
}

async fn a_server_goes_away_in_every_phase(kind: Kind) -> Result<(), Failure> {
    let (log, _guard) = Log::listen();
    let mut scene = Scene::set(kind, log).await?;
    let started = Instant::now();

    // Before anything began.
    scene.go_away();
    let error = connect(&scene.url()?).await.err().ok_or("it connected")?;
    assert!(
        matches!(&error, Error::Store(error) if error.kind() == StoreErrorKind::Unreachable),
        "{error:?}"
    );
    let (received, gate) = (Arc::new(AtomicU64::new(0)), Arc::new(Semaphore::new(0)));
    let (counted, let_through) = (Arc::clone(&received), Arc::clone(&gate));
    let outbox = Outbox::builder()
        .shared_store(lazy_store(kind, &scene.url()?)?)
        .migrate(false)
        .lease(LEASE)
        .poll(Duration::from_millis(20), Duration::from_millis(200))
        .drain_timeout(Duration::from_secs(1))
        .on("Tested", move |_: Delivery| {
            counted.fetch_add(1, SeqCst);
            let gate = Arc::clone(&let_through);
            async move { gate.acquire().await.map(|permit| permit.forget()).unwrap_or_default() }
        })
        .start()
        .await?;
    scene.write().await?;
    scene.says("membership heartbeat failed", 0).await?;
    scene.proxy.admit();
    gate.add_permits(1);
    scene.all_delivered().await?;

    // While it has nothing to do but to look.
    scene.go_away();
    scene.write().await?;
    scene.says("claim failed: retrying", 0).await?;
    scene.proxy.admit();
    gate.add_permits(1);
    scene.all_delivered().await?;

    // While an event is with its receiver: what it said is settled when the server is back.
    scene.write().await?;
    until("the receiver has it", TIMEOUT, async || Ok((received.load(SeqCst) == 3).then_some(()))).await?;
    scene.go_away();
    gate.add_permits(1);
    scene.says("settle failed: retrying", 0).await?;
    scene.proxy.admit();
    scene.all_delivered().await?;
    assert_eq!(received.load(SeqCst), 3, "nothing came twice");

    // For longer than the lease: the lanes are taken anew.
    scene.go_away();
    scene.says("lease renewal failed", 0).await?;
    pass(LEASE).await;
    scene.write().await?;
    scene.proxy.admit();
    gate.add_permits(1);
    scene.all_delivered().await?;

    // While it ends.
    scene.go_away();
    let ending = Instant::now();
    let report = outbox.shutdown().await;
    assert!(!report.released && ending.elapsed() < TIMEOUT, "{report:?}");

    let (lines, seconds) = (scene.lines(), started.elapsed().as_secs_f64());
    assert!((lines as f64) < LINES_PER_SECOND * seconds, "{lines} lines in {seconds:.0} s");
    let password = scene.database.password()?;
    for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
        assert_eq!(scene.log.count(level, password), 0, "the password is in a line of {level}");
    }
    assert!(!format!("{error} {error:?}").contains(password));
    Ok(())
}

#[tokio::test]
async fn a_postgresql_server_goes_away_in_every_phase_and_nothing_is_lost() -> Result<(), Failure> {
    a_server_goes_away_in_every_phase(Kind::Postgres).await
}

#[tokio::test]
async fn a_mysql_server_goes_away_in_every_phase_and_nothing_is_lost() -> Result<(), Failure> {
    a_server_goes_away_in_every_phase(Kind::Mysql).await
}
