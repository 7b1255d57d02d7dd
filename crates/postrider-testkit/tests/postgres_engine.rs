//! The engine on PostgreSQL: two processes' worth of engines on one outbox, woken by each other, each key in order.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by a panic")]

use std::{
    collections::BTreeMap,
    env,
    sync::{Arc, Mutex},
    time::Duration,
};

use postrider::{Delivery, Event, Outbox, postgres::PgStore};
use postrider_testkit::conformance::Failure;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

const KEYS: usize = 20;
const OF_A_KEY: usize = 30;

type Delivered = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

fn server() -> Result<String, Failure> {
    env::var("POSTRIDER_TEST_POSTGRES_URL").map_err(|_| {
        "POSTRIDER_TEST_POSTGRES_URL is not set: start the servers with `cargo xtask services up` and name them to this \
         shell with `eval $(cargo xtask services env)`"
            .into()
    })
}

async fn run(url: &str, sql: String) -> Result<(), Failure> {
    let mut conn = PgConnection::connect(url).await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
    Ok(conn.close().await?)
}

/// One instance, with a pool and a listener of its own. It polls so seldom that only wake-ups explain a quick delivery.
async fn instance(url: &str, delivered: &Delivered) -> Result<(PgStore, Outbox), Failure> {
    let store = PgStore::builder().connections(4).connect(url).await?;
    let delivered = Arc::clone(delivered);
    let outbox = Outbox::builder()
        .store(store.clone())
        .poll(Duration::from_millis(20), Duration::from_secs(60))
        .lease(Duration::from_secs(3))
        .on("Tested", move |event: Delivery| {
            let delivered = Arc::clone(&delivered);
            async move {
                let mut delivered = delivered.lock().unwrap();
                let key = event.key().unwrap_or_default().to_owned();
                delivered
                    .entry(key)
                    .or_default()
                    .push(event.payload().as_text().unwrap_or_default().to_owned());
            }
        })
        .start()
        .await?;
    Ok((store, outbox))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_deliver_every_key_in_order_and_wake_each_other() -> Result<(), Failure> {
    let name = format!("engine_{}", std::process::id());
    let server = server()?;
    run(&server, format!("CREATE DATABASE {name}")).await?;
    let (base, _) = server.rsplit_once('/').ok_or("a name has a database")?;
    let url = format!("{base}/{name}");
    let delivered = Delivered::default();
    let (store, one) = instance(&url, &delivered).await?;
    let (_, two) = instance(&url, &delivered).await?;

    let started = std::time::Instant::now();
    let owners = "SELECT count(DISTINCT owner) FROM postrider_lane";
    while sqlx::query_scalar::<_, i64>(owners).fetch_one(store.pool()).await? < 2 {
        assert!(started.elapsed() < Duration::from_secs(30), "the lanes are not shared");
    }
    for n in 0..OF_A_KEY {
        for key in 0..KEYS {
            let event = Event::json_text("Tested", n.to_string()).key(format!("key {key}"));
            one.transaction(&store, async |tx| tx.write(event).await).await?;
        }
    }
    let all = || delivered.lock().unwrap().values().map(Vec::len).sum::<usize>();
    while all() < KEYS * OF_A_KEY && started.elapsed() < Duration::from_secs(80) {
        tokio::task::yield_now().await;
    }
    let expected: Vec<String> = (0..OF_A_KEY).map(|n| n.to_string()).collect();
    for (key, got) in &*delivered.lock().unwrap() {
        assert_eq!(got, &expected, "{key}");
    }
    assert_eq!(all(), KEYS * OF_A_KEY);
    assert!(one.shutdown().await.released && two.shutdown().await.released);
    store.close().await;
    run(&server, format!("DROP DATABASE {name} WITH (FORCE)")).await
}
