//! Connections that are dead without a word, locks of others, and a program that uses up its own pool: none of them costs a lease.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use postrider::{Delivery, Outbox, Store, postgres::PgStore, sqlite::SqliteStore};
use postrider_testkit::{conformance::Failure, proxy::Proxy};
use sqlx::{
    AssertSqlSafe, Connection, MySqlConnection, PgConnection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions},
};
use tokio::sync::Semaphore;

use crate::{
    database::{Database, Kind, TempFile, lazy_store},
    time::{TIMEOUT, pass, until},
};

const LEASE: Duration = Duration::from_secs(6);

/// How long a busy machine may take for what takes no time.
const BUSY: Duration = Duration::from_secs(3);

async fn start(store: Arc<dyn Store>, received: &Arc<AtomicU64>) -> Result<Outbox, Failure> {
    let counted = Arc::clone(received);
    let builder = Outbox::builder().shared_store(store).lease(LEASE);
    Ok(builder
        .poll(Duration::from_millis(20), Duration::from_millis(200))
        .drain_timeout(Duration::from_secs(1))
        .on("Tested", move |_: Delivery| {
            counted.fetch_add(1, SeqCst);
            std::future::ready(())
        })
        .start()
        .await?)
}

/// Writes an event into a lane of its own, and says how long its way through took.
async fn delivered(database: &Database, store: &Arc<dyn Store>, lane: u32) -> Result<Duration, Failure> {
    let done = store.stats().await?.done;
    let began = Instant::now();
    let insert = format!(
        "INSERT INTO postrider_event (event_type, payload, lane_hint) VALUES ('Tested', '{{}}', {lane})"
    );
    database.run(&insert).await?;
    let is_done = async || Ok((store.stats().await?.done > done).then_some(()));
    until("it is delivered and settled", TIMEOUT, is_done).await?;
    Ok(began.elapsed())
}

async fn dead_connections_cost_no_more_than_a_lease(kind: Kind) -> Result<(), Failure> {
    let database = Database::new(kind).await?;
    let beside = lazy_store(kind, &database.url()?)?;
    beside.migrate().await?;
    let proxy = Proxy::start(database.address()?).await?;
    let url = database.url_by(&proxy.address().to_string())?;
    let received = Arc::default();
    let outbox = start(lazy_store(kind, &url)?, &received).await?;
    delivered(&database, &beside, 1).await?;
    for _ in 0..2 {
        proxy.silence();
        let took = delivered(&database, &beside, 2).await?;
        assert!(took < LEASE + BUSY, "it took {took:?}");
    }
    assert_eq!(received.load(SeqCst), 3, "nothing came twice");
    outbox.shutdown().await;
    Ok(())
}

#[tokio::test]
async fn dead_connections_to_postgresql_cost_no_more_than_a_lease() -> Result<(), Failure> {
    dead_connections_cost_no_more_than_a_lease(Kind::Postgres).await
}

#[tokio::test]
async fn dead_connections_to_mysql_cost_no_more_than_a_lease() -> Result<(), Failure> {
    dead_connections_cost_no_more_than_a_lease(Kind::Mysql).await
}

/// A session of somebody else's that has locked a row, until it is dropped.
enum Session {
    Postgres(PgConnection),
    Mysql(MySqlConnection),
}

impl Session {
    async fn locking(database: &Database, sql: &str) -> Result<Self, Failure> {
        let sql = AssertSqlSafe(format!("BEGIN; {sql} FOR UPDATE"));
        Ok(match database.kind {
            Kind::Postgres => {
                let mut conn = PgConnection::connect(&database.url()?).await?;
                sqlx::raw_sql(sql).execute(&mut conn).await?;
                Self::Postgres(conn)
            }
            Kind::Mysql => {
                let mut conn = MySqlConnection::connect(&database.url()?).await?;
                sqlx::raw_sql(sql).execute(&mut conn).await?;
                Self::Mysql(conn)
            }
        })
    }

    async fn end(self) -> Result<(), Failure> {
        match self {
            Self::Postgres(conn) => Ok(conn.close().await?),
            Self::Mysql(conn) => Ok(conn.close().await?),
        }
    }
}

async fn a_lane_that_another_session_locks_stops_no_other_lane(kind: Kind) -> Result<(), Failure> {
    let database = Database::new(kind).await?;
    let store = lazy_store(kind, &database.url()?)?;
    store.migrate().await?;
    let received = Arc::default();
    let outbox = start(lazy_store(kind, &database.url()?)?, &received).await?;
    delivered(&database, &store, 1).await?;
    let locked = Session::locking(&database, "SELECT * FROM postrider_lane WHERE lane = 5").await?;
    let member = Session::locking(&database, "SELECT * FROM postrider_member").await?;
    for _ in 0..4 {
        pass(LEASE / 2).await;
        let took = delivered(&database, &store, 6).await?;
        assert!(took < BUSY, "it took {took:?}");
    }
    locked.end().await?;
    member.end().await?;
    let took = delivered(&database, &store, 5).await?;
    assert!(took < LEASE + BUSY, "the lane came back after {took:?}");
    outbox.shutdown().await;
    Ok(())
}

#[tokio::test]
async fn a_lane_that_another_session_of_postgresql_locks_stops_no_other_lane() -> Result<(), Failure> {
    a_lane_that_another_session_locks_stops_no_other_lane(Kind::Postgres).await
}

#[tokio::test]
async fn a_lane_that_another_session_of_mysql_locks_stops_no_other_lane() -> Result<(), Failure> {
    a_lane_that_another_session_locks_stops_no_other_lane(Kind::Mysql).await
}

#[tokio::test]
async fn a_program_that_uses_up_its_own_pool_keeps_its_leases_and_its_outcomes() -> Result<(), Failure> {
    let database = Database::new(Kind::Postgres).await?;
    let beside = lazy_store(Kind::Postgres, &database.url()?)?;
    beside.migrate().await?;
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1).connect(&database.url()?).await?;
    let received = Arc::default();
    let outbox = start(Arc::new(PgStore::new(pool.clone())?), &received).await?;
    let all_of_it = pool.acquire().await?;
    for _ in 0..3 {
        pass(LEASE / 2).await;
        let took = delivered(&database, &beside, 6).await?;
        assert!(took < BUSY, "it took {took:?}");
    }
    drop(all_of_it);
    outbox.shutdown().await;
    Ok(())
}

/// SQLite's counterpart: the program keeps every connection of its pool, and writes through another one.
#[tokio::test]
async fn a_program_that_uses_up_its_own_pool_of_sqlite_keeps_its_leases_and_its_outcomes()
-> Result<(), Failure> {
    let file = TempFile::new("used_up.db")?;
    let options = SqliteConnectOptions::new().filename(file.path()).create_if_missing(true);
    let options = options.journal_mode(SqliteJournalMode::Wal).busy_timeout(Duration::from_secs(5));
    let beside = SqliteStore::new(SqlitePool::connect_with(options.clone()).await?);
    beside.migrate().await?;
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
    // Claims go through the program's own pool: so it is used up from when the event is claimed on.
    let (received, gate) = (Arc::new(AtomicU64::new(0)), Arc::new(Semaphore::new(0)));
    let (counted, let_through) = (Arc::clone(&received), Arc::clone(&gate));
    let outbox = Outbox::builder()
        .store(SqliteStore::new(pool.clone()))
        .lease(LEASE)
        .poll(Duration::from_millis(20), Duration::from_millis(200))
        .on("Tested", move |_: Delivery| {
            counted.fetch_add(1, SeqCst);
            let gate = Arc::clone(&let_through);
            async move { gate.acquire().await.map(|permit| permit.forget()).unwrap_or_default() }
        })
        .start()
        .await?;
    sqlx::raw_sql("INSERT INTO postrider_event (event_type, payload) VALUES ('Tested', '{}')")
        .execute(beside.pool())
        .await?;
    until("the handler has it", TIMEOUT, async || Ok((received.load(SeqCst) == 1).then_some(()))).await?;
    let all_of_it = pool.acquire().await?;
    pass(LEASE + BUSY).await;
    gate.add_permits(1);
    let is_done = async || Ok((beside.stats().await?.done == 1).then_some(()));
    until("its outcome is written", LEASE, is_done).await?;
    assert_eq!(received.load(SeqCst), 1, "the lease was kept, so that it came once");
    drop(all_of_it);
    outbox.shutdown().await;
    Ok(())
}
