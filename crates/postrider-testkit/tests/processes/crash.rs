//! A crash of PostgreSQL that nothing but the ids of its transactions tells of: those that were rolled back before it are given again, and its log
//! is longer than it was when the store asks next.

use std::time::Duration;

use postrider::{
    Error, Store, StoreErrorKind,
    postgres::PgStore,
    rng::Rng,
    store::{Claim, LaneClaim, LeaseRequest, Position},
};
use postrider_testkit::conformance::Failure;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::server::{End, Server};

pub(crate) fn prove() -> Result<(), Failure> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run())
}

async fn run() -> Result<(), Failure> {
    let mut server = Server::borrow("postgres")?;
    // What is not committed stays in memory until the crash.
    execute(&server.url, &["ALTER SYSTEM SET wal_writer_delay = '10s'", "SELECT pg_reload_conf()"]).await?;
    let store = PgStore::builder().connections(2).connect(&server.url).await?;
    store.migrate().await?;
    let leased = store
        .lease(&LeaseRequest {
            owner: "one".to_owned(),
            ttl: Duration::from_secs(600),
            nonces: Rng::from_entropy(),
            most: 64,
        })
        .await?;
    let mut lanes: Vec<LaneClaim> =
        leased.taken.iter().map(|taken| LaneClaim::after(taken.lease, Position::START)).collect();
    claim(&store, &mut lanes).await?;

    let insert =
        "INSERT INTO postrider_event (event_type, ordering_key, payload) VALUES ('Tested', 'k', '{}')";
    let rolled_back = ["BEGIN", insert, "ROLLBACK"].repeat(3);
    execute(&server.url, &rolled_back).await?;
    if !claim(&store, &mut lanes).await?.is_empty() {
        return Err("a claim has met what was rolled back".into());
    }
    let lost = next_transaction(&server.url).await?;
    server.restart(End::Crash)?;
    let given_again = next_transaction(&server.url).await?;
    if given_again >= lost {
        return Err(
            format!("the next transaction was {lost} and is {given_again}: nothing is given again").into()
        );
    }
    execute(&server.url, &[insert, insert, insert]).await?;
    let filler = "CREATE TABLE filler AS SELECT repeat('x', 100) FROM generate_series(1, 100000)";
    execute(&server.url, &[filler, insert]).await?;

    let mut seqs = Vec::new();
    let mut went_back = 0;
    while seqs.is_empty() && went_back < 2 {
        match claim(&store, &mut lanes).await {
            Ok(claimed) => seqs = claimed,
            Err(Error::Store(told)) if told.kind() == StoreErrorKind::WentBack => {
                went_back += 1;
                lanes.iter_mut().for_each(|lane| lane.from = Position::START);
            }
            // The connections from before the crash.
            Err(Error::Store(told)) if told.kind() == StoreErrorKind::Unreachable => {}
            Err(error) => return Err(error.into()),
        }
    }
    println!("  transactions from {given_again} on were given again, and {} events came", seqs.len());
    if went_back != 1 || seqs.len() != 4 || !seqs.is_sorted() {
        return Err(format!("it went back {went_back} times, and {seqs:?} came").into());
    }
    store.close().await;
    Ok(())
}

/// Claims, and goes on from there next time. Returns the numbers of the events.
async fn claim(store: &PgStore, lanes: &mut [LaneClaim]) -> postrider::Result<Vec<u64>> {
    let claimed = store.claim(&Claim::new(lanes.to_vec(), 10)).await?;
    for lane in lanes {
        let reached = claimed.positions.iter().find(|(number, _)| *number == lane.lease.lane);
        lane.from = reached.map_or(lane.from, |(_, position)| *position);
    }
    Ok(claimed.events.iter().map(|event| event.seq).collect())
}

/// The id that the next transaction will have.
async fn next_transaction(url: &str) -> Result<i64, Failure> {
    let mut conn = PgConnection::connect(url).await?;
    let next = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
    let next = sqlx::query_scalar(next).fetch_one(&mut conn).await?;
    conn.close().await?;
    Ok(next)
}

/// Runs each of these by itself.
async fn execute(url: &str, statements: &[&str]) -> Result<(), Failure> {
    let mut conn = PgConnection::connect(url).await?;
    for statement in statements {
        sqlx::raw_sql(AssertSqlSafe((*statement).to_owned())).execute(&mut conn).await?;
    }
    Ok(conn.close().await?)
}
