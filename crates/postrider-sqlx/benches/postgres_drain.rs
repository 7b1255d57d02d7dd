//! How fast the PostgreSQL store drains a backlog, beside what the server can do at all.
//!
//! 200,000 events of 1 KiB over 1,000 keys, retention 0, nothing between claim and settle. `select` and `delete` are the two halves
//! of any drain alone; the serial bound is one after the other. `skip locked` is the design that claims rows one by one and writes
//! each twice. Run it with
//! `POSTRIDER_TEST_POSTGRES_URL=postgres://… cargo bench -p postrider-sqlx --features postgres --bench postgres_drain`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a bench has nobody to return an error to"
)]

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use postrider_core::{
    Store,
    rng::Rng,
    store::{
        Change, Claim, Claimed, ClaimedEvent, Lane, LaneClaim, Lease, LeaseRequest, Position, Seq, Settlement,
    },
};
use postrider_sqlx::PgStore;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

const EVENTS: usize = 200_000;
const KEYS: usize = 1_000;
const BATCH: usize = 500;
const ROUNDS: usize = 3;

#[tokio::main]
async fn main() {
    let admin = std::env::var("POSTRIDER_TEST_POSTGRES_URL").expect(
        "POSTRIDER_TEST_POSTGRES_URL is not set: `cargo xtask services up`, then `eval $(cargo xtask services env)`",
    );
    let name = format!("drain_{}", std::process::id());
    let mut conn = PgConnection::connect(&admin).await.unwrap();
    run(&mut conn, format!("CREATE DATABASE {name}")).await;
    let (base, _) = admin.rsplit_once('/').unwrap();
    let store = PgStore::connect(&format!("{base}/{name}")).await.unwrap();
    store.migrate().await.unwrap();
    let leases = store
        .lease(&LeaseRequest {
            owner: "bench".to_owned(),
            ttl: Duration::from_secs(3600),
            nonces: Rng::seeded(1),
            most: usize::MAX,
        })
        .await
        .unwrap()
        .leases();
    println!("{EVENTS} events of 1 KiB, {KEYS} keys, batches of {BATCH}; events/s");
    println!(
        "round   select   delete    bound   serial overlapped  skip locked   serial/bound overlapped/bound overlapped/skip"
    );
    for round in 1..=ROUNDS {
        fill(&store).await;
        let select = rate(select(&store)).await;
        let delete = rate(delete(&store)).await;
        fill(&store).await;
        let serial = rate(serial(&store, &leases)).await;
        fill(&store).await;
        let overlapped = rate(overlapped(&store, &leases)).await;
        fill(&store).await;
        let skip = rate(skip_locked(&store)).await;
        let bound = 1.0 / (1.0 / select + 1.0 / delete);
        println!(
            "{round:>5} {select:>8.0} {delete:>8.0} {bound:>8.0} {serial:>8.0} {overlapped:>10.0} {skip:>12.0} {:>14.2} {:>16.2} {:>15.2}",
            serial / bound,
            overlapped / bound,
            overlapped / skip
        );
    }
    store.close().await;
    run(&mut conn, format!("DROP DATABASE {name} WITH (FORCE)")).await;
}

async fn run(conn: &mut PgConnection, sql: String) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await.unwrap();
}

async fn rate(work: impl Future<Output = usize>) -> f64 {
    let started = Instant::now();
    let count = work.await;
    assert_eq!(count, EVENTS);
    count as f64 / started.elapsed().as_secs_f64()
}

async fn fill(store: &PgStore) {
    let mut conn = store.pool().acquire().await.unwrap();
    run(&mut conn, "TRUNCATE postrider_event, postrider_hold; DROP INDEX IF EXISTS skip_locked".to_owned())
        .await;
    let fill = format!(
        "INSERT INTO postrider_event (event_type, ordering_key, payload)
         SELECT 'Bench', 'key ' || i % {KEYS}, repeat('x', 1024) FROM generate_series(1, {EVENTS}) AS i"
    );
    run(&mut conn, fill).await;
    run(&mut conn, "VACUUM ANALYZE postrider_event".to_owned()).await;
    run(&mut conn, "CHECKPOINT".to_owned()).await;
}

async fn select(store: &PgStore) -> usize {
    let mut conn = store.pool().acquire().await.unwrap();
    let (mut after, mut count) = (0_i64, 0);
    loop {
        let rows = sqlx::query("SELECT * FROM postrider_event WHERE seq > $1 ORDER BY seq LIMIT $2")
            .bind(after)
            .bind(BATCH as i64)
            .fetch_all(&mut *conn)
            .await
            .unwrap();
        let Some(last) = rows.last() else { return count };
        after = last.get("seq");
        count += rows.len();
    }
}

async fn delete(store: &PgStore) -> usize {
    let mut conn = store.pool().acquire().await.unwrap();
    let seqs: Vec<i64> = sqlx::query_scalar("SELECT seq FROM postrider_event ORDER BY seq")
        .fetch_all(&mut *conn)
        .await
        .unwrap();
    let mut count = 0;
    for batch in seqs.chunks(BATCH) {
        let delete = sqlx::query("DELETE FROM postrider_event WHERE seq = ANY ($1)").bind(batch.to_vec());
        count += usize::try_from(delete.execute(&mut *conn).await.unwrap().rows_affected()).unwrap();
    }
    count
}

/// One instance: what the engine keeps between claims.
struct Reader<'a> {
    store: &'a PgStore,
    leases: &'a [Lease],
    positions: BTreeMap<Lane, Position>,
}

impl Reader<'_> {
    async fn claim(&mut self, in_flight: Vec<Seq>) -> Claimed {
        let lane = |lease: &Lease| {
            LaneClaim::after(*lease, self.positions.get(&lease.lane).copied().unwrap_or(Position::START))
        };
        let lanes = self.leases.iter().map(lane).collect();
        let claim = Claim { in_flight, ..Claim::new(lanes, BATCH) };
        let claimed = self.store.claim(&claim).await.unwrap();
        self.positions.extend(claimed.positions.iter().copied());
        claimed
    }
}

async fn settle(store: &PgStore, leases: &[Lease], events: &[ClaimedEvent]) -> usize {
    let settlements: Vec<Settlement> = events
        .iter()
        .map(|event| Settlement {
            lane: event.lane,
            seq: event.seq,
            event_id: event.id().clone(),
            key: event.event.as_ref().ok().and_then(|event| event.shared_key().cloned()),
            held: event.held,
            change: Change::Done,
        })
        .collect();
    let settled = store.settle(leases, &settlements, Duration::ZERO).await.unwrap();
    usize::try_from(settled.applied).unwrap()
}

async fn serial(store: &PgStore, leases: &[Lease]) -> usize {
    let mut reader = Reader { store, leases, positions: BTreeMap::new() };
    let mut count = 0;
    loop {
        let claimed = reader.claim(Vec::new()).await;
        if claimed.events.is_empty() && !claimed.more {
            return count;
        }
        count += settle(store, leases, &claimed.events).await;
    }
}

/// The next claim runs while the last batch is being settled, as in the engine.
async fn overlapped(store: &PgStore, leases: &[Lease]) -> usize {
    let mut reader = Reader { store, leases, positions: BTreeMap::new() };
    let (mut count, mut batch) = (0, reader.claim(Vec::new()).await);
    loop {
        let in_flight = batch.events.iter().map(|event| event.seq).collect();
        let (settled, next) = tokio::join!(settle(store, leases, &batch.events), reader.claim(in_flight));
        count += settled;
        if next.events.is_empty() && !next.more {
            return count;
        }
        batch = next;
    }
}

async fn skip_locked(store: &PgStore) -> usize {
    let mut conn = store.pool().acquire().await.unwrap();
    // The index that this design wants.
    run(
        &mut conn,
        "CREATE INDEX IF NOT EXISTS skip_locked ON postrider_event (seq) WHERE status = 0".to_owned(),
    )
    .await;
    let mut count = 0;
    loop {
        let rows = sqlx::query(
            "UPDATE postrider_event SET status = 2 WHERE seq IN (
                 SELECT seq FROM postrider_event WHERE status = 0 ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING *",
        )
        .bind(BATCH as i64)
        .fetch_all(&mut *conn)
        .await
        .unwrap();
        if rows.is_empty() {
            return count;
        }
        let seqs: Vec<i64> = rows.iter().map(|row| row.get("seq")).collect();
        let done = sqlx::query("UPDATE postrider_event SET status = 3 WHERE seq = ANY ($1)").bind(seqs);
        count += usize::try_from(done.execute(&mut *conn).await.unwrap().rows_affected()).unwrap();
    }
}
