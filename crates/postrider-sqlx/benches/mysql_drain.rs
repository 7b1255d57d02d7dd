//! A backlog is drained: claim and settle, beside reading alone, deleting alone, and the bound that both together set.
//!
//! `cargo bench -p postrider-sqlx --features mysql --bench mysql_drain -- [events] [claim size]`, with the server named by
//! `POSTRIDER_TEST_MYSQL_URL`. It makes a database of its own and drops it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench prints, and ends when something fails"
)]

use std::{
    env,
    time::{Duration, Instant},
};

use postrider_core::{
    CallerTx, Event, Store,
    rng::Rng,
    store::{Change, Claim, LaneClaim, Lease, LeaseRequest, Position, Settlement},
    tx::OnDuplicate,
};
use postrider_sqlx::MysqlStore;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

const KEYS: usize = 1000;
const PAYLOAD_BYTES: usize = 1024;
const ROUNDS: usize = 3;

#[tokio::main]
async fn main() {
    let mut numbers = env::args().skip(1).filter_map(|argument| argument.parse::<usize>().ok());
    let (events, claim) = (numbers.next().unwrap_or(50_000), numbers.next().unwrap_or(500));
    let server = env::var("POSTRIDER_TEST_MYSQL_URL").unwrap();
    let name = format!("postrider_bench_{}", std::process::id());
    on_server(&server, format!("CREATE DATABASE {name}")).await;
    let (scheme, rest) = server.split_once("://").unwrap();
    let authority = rest.split('/').next().unwrap();
    let store = MysqlStore::connect(&format!("{scheme}://{authority}/{name}")).await.unwrap();
    store.migrate().await.unwrap();
    println!("{events} events of {PAYLOAD_BYTES} bytes over {KEYS} keys, {claim} at a time; events a second");
    for round in 1..=ROUNDS {
        fill(&store, events).await;
        let select = rate(events, select(&store, claim).await);
        let delete = rate(events, delete(&store, claim).await);
        fill(&store, events).await;
        let (claiming, settling) = drain(&store, events, claim).await;
        let drained = rate(events, claiming + settling);
        let bound = 1.0 / (1.0 / select + 1.0 / delete);
        println!(
            "round {round}: select {select:.0}, delete {delete:.0}, bound {bound:.0}; claim {:.0}, settle {:.0}, drain {drained:.0}, \
             ratio {:.2}",
            rate(events, claiming),
            rate(events, settling),
            drained / bound
        );
    }
    store.close().await;
    on_server(&server, format!("DROP DATABASE {name}")).await;
}

fn rate(events: usize, time: Duration) -> f64 {
    events as f64 / time.as_secs_f64()
}

async fn on_server(server: &str, sql: String) {
    let mut conn = MySqlConnection::connect(server).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
}

async fn fill(store: &MysqlStore, events: usize) {
    let payload = "x".repeat(PAYLOAD_BYTES);
    for first in (0..events).step_by(1000) {
        let event =
            |n: usize| Event::json_text("Drained", payload.as_str()).key(format!("key {}", n % KEYS)).build();
        let events: Vec<Event> = (first..events.min(first + 1000)).map(|n| event(n).unwrap()).collect();
        let mut tx = store.pool().begin().await.unwrap();
        (&mut tx).insert(store.target(), &events, OnDuplicate::Fail).await.unwrap();
        tx.commit().await.unwrap();
    }
}

/// Reads all of it by its key, so many at a time.
async fn select(store: &MysqlStore, limit: usize) -> Duration {
    let (mut conn, mut after) = (store.pool().acquire().await.unwrap(), 0_u64);
    let began = Instant::now();
    loop {
        let rows: Vec<(u64, Vec<u8>, String, Vec<u8>)> = sqlx::query_as(
            "SELECT seq, CAST(event_id AS BINARY), event_type, CAST(payload AS BINARY) FROM postrider_event
             WHERE seq > ? ORDER BY seq LIMIT ?",
        )
        .bind(after)
        .bind(limit as u64)
        .fetch_all(&mut *conn)
        .await
        .unwrap();
        match rows.last() {
            Some((seq, ..)) => after = *seq,
            None => return began.elapsed(),
        }
    }
}

/// Deletes all of it by its key, so many in one transaction.
async fn delete(store: &MysqlStore, limit: usize) -> Duration {
    let mut conn = store.pool().acquire().await.unwrap();
    let seqs: Vec<u64> = sqlx::query_scalar("SELECT seq FROM postrider_event ORDER BY seq")
        .fetch_all(&mut *conn)
        .await
        .unwrap();
    let began = Instant::now();
    for seqs in seqs.chunks(limit) {
        let sql = format!("DELETE FROM postrider_event WHERE seq IN ({})", vec!["?"; seqs.len()].join(", "));
        let query = seqs.iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, seq| query.bind(*seq));
        query.execute(&mut *conn).await.unwrap();
    }
    began.elapsed()
}

/// Claims and settles all of it, without retention. Says how long each took.
async fn drain(store: &MysqlStore, events: usize, limit: usize) -> (Duration, Duration) {
    let request = LeaseRequest {
        owner: "bench".to_owned(),
        ttl: Duration::from_secs(600),
        nonces: Rng::from_entropy(),
        most: usize::MAX,
    };
    let leases: Vec<Lease> = store.lease(&request).await.unwrap().leases();
    let mut positions = vec![Position::START; leases.len()];
    let (mut claiming, mut settling, mut drained) = (Duration::ZERO, Duration::ZERO, 0);
    while drained < events {
        let began = Instant::now();
        let lanes =
            leases.iter().zip(&positions).map(|(lease, from)| LaneClaim::after(*lease, *from)).collect();
        let claimed = store.claim(&Claim::new(lanes, limit)).await.unwrap();
        claiming += began.elapsed();
        for (lane, position) in claimed.positions {
            positions[lane as usize] = position;
        }
        let settlements: Vec<Settlement> = claimed
            .events
            .iter()
            .map(|event| Settlement {
                lane: event.lane,
                seq: event.seq,
                event_id: event.id().clone(),
                key: event.event.as_ref().unwrap().shared_key().cloned(),
                held: event.held,
                change: Change::Done,
            })
            .collect();
        let began = Instant::now();
        let settled = store.settle(&leases, &settlements, Duration::ZERO).await.unwrap();
        settling += began.elapsed();
        assert_eq!(settled.applied, settlements.len() as u64);
        drained += settlements.len();
    }
    store.release(&leases.iter().map(|lease| (*lease, 0)).collect::<Vec<_>>()).await.unwrap();
    (claiming, settling)
}
