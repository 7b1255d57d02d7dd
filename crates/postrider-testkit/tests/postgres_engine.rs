//! The engine on PostgreSQL: two processes' worth of engines on one outbox, woken by each other, each key in order.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by a panic")]

use std::{
    collections::BTreeMap,
    env,
    sync::{Arc, Mutex},
    time::Duration,
};

use postrider::{Delivery, Event, Outbox, metrics::Recording, postgres::PgStore, store::Subject};
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

/// Writes all events, those of all keys in turn.
async fn write_all(store: &PgStore, outbox: &Outbox) -> Result<(), Failure> {
    for n in 0..OF_A_KEY {
        for key in 0..KEYS {
            let event = Event::json_text("Tested", n.to_string()).key(format!("key {key}"));
            outbox.transaction(store, async |tx| tx.write(event).await).await?;
        }
    }
    Ok(())
}

/// Waits until two instances share the lanes.
async fn until_shared(store: &PgStore) -> Result<(), Failure> {
    let started = std::time::Instant::now();
    let owners = "SELECT count(DISTINCT owner) FROM postrider_lane";
    while sqlx::query_scalar::<_, i64>(owners).fetch_one(store.pool()).await? < 2 {
        assert!(started.elapsed() < Duration::from_secs(30), "the lanes are not shared");
    }
    Ok(())
}

/// Waits until so many events were delivered.
async fn until_delivered(delivered: &Delivered, count: usize) {
    let started = std::time::Instant::now();
    let all = || delivered.lock().unwrap().values().map(Vec::len).sum::<usize>();
    while all() < count && started.elapsed() < Duration::from_secs(80) {
        tokio::task::yield_now().await;
    }
    assert_eq!(all(), count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_paused_waits_on_two_instances_and_comes_in_order_when_it_is_resumed()
-> Result<(), Failure> {
    let name = format!("pauses_{}", std::process::id());
    let server = server()?;
    run(&server, format!("CREATE DATABASE {name}")).await?;
    let (base, _) = server.rsplit_once('/').ok_or("a name has a database")?;
    let url = format!("{base}/{name}");
    let delivered = Delivered::default();
    let (store, one) = instance(&url, &delivered).await?;
    let (_, two) = instance(&url, &delivered).await?;
    until_shared(&store).await?;
    let paused = Subject::key("key 7");
    // Each looks at once when it is told; otherwise it would within a second.
    assert!(one.pause(&paused, "").await?.new && !two.pause(&paused, "").await?.new);
    write_all(&store, &one).await?;
    until_delivered(&delivered, (KEYS - 1) * OF_A_KEY).await;
    assert!(!delivered.lock().unwrap().contains_key("key 7"));
    // The other one hears of it by itself.
    assert!(one.resume(&paused).await?.is_some());
    until_delivered(&delivered, KEYS * OF_A_KEY).await;
    let expected: Vec<String> = (0..OF_A_KEY).map(|n| n.to_string()).collect();
    assert_eq!(delivered.lock().unwrap().get("key 7"), Some(&expected));
    assert!(one.shutdown().await.released && two.shutdown().await.released);
    store.close().await;
    run(&server, format!("DROP DATABASE {name} WITH (FORCE)")).await
}

/// An event of a paused key that commits late, when thousands of others have been delivered, keeps none of the next ones back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_event_that_commits_late_keeps_nothing_back() -> Result<(), Failure> {
    const PASSED: usize = 6000;
    let name = format!("late_{}", std::process::id());
    let server = server()?;
    run(&server, format!("CREATE DATABASE {name}")).await?;
    let (base, _) = server.rsplit_once('/').ok_or("a name has a database")?;
    let url = format!("{base}/{name}");
    let delivered = Delivered::default();
    let (store, outbox) = instance(&url, &delivered).await?;
    let paused = Subject::key("paused");
    assert!(outbox.pause(&paused, "").await?.new);
    let insert = |keys: &str, count: usize| {
        format!(
            "INSERT INTO postrider_event (event_type, ordering_key, payload)
             SELECT 'Tested', {keys}, '{{}}' FROM generate_series(1, {count}) AS i"
        )
    };
    let mut conn = PgConnection::connect(&url).await?;
    let mut late = conn.begin().await?;
    sqlx::raw_sql(AssertSqlSafe(insert("'paused'", 1))).execute(&mut *late).await?;
    run(&url, insert("'key ' || i % 400", PASSED)).await?;
    outbox.wake();
    until_delivered(&delivered, PASSED).await;
    late.commit().await?;
    run(&url, insert("'key ' || i % 400", PASSED)).await?;
    outbox.wake();
    until_delivered(&delivered, PASSED * 2).await;
    assert!(!delivered.lock().unwrap().contains_key("paused"));
    assert!(outbox.resume(&paused).await?.is_some());
    until_delivered(&delivered, PASSED * 2 + 1).await;
    assert!(outbox.shutdown().await.released);
    store.close().await;
    run(&server, format!("DROP DATABASE {name} WITH (FORCE)")).await
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
    until_shared(&store).await?;
    write_all(&store, &one).await?;
    until_delivered(&delivered, KEYS * OF_A_KEY).await;
    let expected: Vec<String> = (0..OF_A_KEY).map(|n| n.to_string()).collect();
    for (key, got) in &*delivered.lock().unwrap() {
        assert_eq!(got, &expected, "{key}");
    }
    assert!(one.shutdown().await.released && two.shutdown().await.released);
    store.close().await;
    run(&server, format!("DROP DATABASE {name} WITH (FORCE)")).await
}

/// An engine that polls once a minute, on a database of its own, after its first claim.
async fn that_never_polls(
    name: &str,
    delivered: &Delivered,
) -> Result<(String, PgStore, Outbox, Arc<Recording>), Failure> {
    let server = server()?;
    let name = format!("{name}_{}", std::process::id());
    run(&server, format!("CREATE DATABASE {name}")).await?;
    let (base, _) = server.rsplit_once('/').ok_or("a name has a database")?;
    let store = PgStore::connect(&format!("{base}/{name}")).await?;
    let (delivered, metrics) = (Arc::clone(delivered), Arc::new(Recording::default()));
    let outbox = Outbox::builder()
        .store(store.clone())
        .poll(Duration::from_secs(60), Duration::from_secs(60))
        .metrics(metrics.clone())
        .on("Tested", move |event: Delivery| {
            delivered.lock().unwrap().entry(event.id().to_string()).or_default().push(String::new());
            std::future::ready(())
        })
        .start()
        .await?;
    while metrics.snapshot().claims == 0 {
        tokio::task::yield_now().await;
    }
    Ok((name, store, outbox, metrics))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_insert_is_delivered_without_a_poll_and_without_a_word() -> Result<(), Failure> {
    let delivered = Delivered::default();
    let (name, store, outbox, metrics) = that_never_polls("peeks", &delivered).await?;
    let insert = "INSERT INTO postrider_event (event_type, payload) VALUES ('Tested', '{}')";
    for count in 1..=20 {
        let written = std::time::Instant::now();
        sqlx::raw_sql(insert).execute(store.pool()).await?;
        until_delivered(&delivered, count).await;
        assert!(written.elapsed() < Duration::from_secs(5), "it took {:?}", written.elapsed());
    }
    // One that is open for a while is found when it commits, and one that is rolled back is no end of claims.
    let mut late = store.pool().begin().await?;
    sqlx::raw_sql(insert).execute(&mut *late).await?;
    let mut never = store.pool().begin().await?;
    sqlx::raw_sql(insert).execute(&mut *never).await?;
    never.rollback().await?;
    let claims = metrics.snapshot().claims;
    sqlx::raw_sql("SELECT pg_sleep(1)").execute(store.pool()).await?;
    let claims = metrics.snapshot().claims - claims;
    assert!(claims <= 20, "{claims} claims in a second for what was not committed");
    late.commit().await?;
    until_delivered(&delivered, 21).await;
    assert!(outbox.shutdown().await.released);
    store.close().await;
    run(&server()?, format!("DROP DATABASE {name} WITH (FORCE)")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_notifications_become_a_few_claims() -> Result<(), Failure> {
    let delivered = Delivered::default();
    let (name, store, outbox, metrics) = that_never_polls("notifies", &delivered).await?;
    let (before, began) = (metrics.snapshot().claims, std::time::Instant::now());
    let mut conn = store.pool().acquire().await?;
    for number in 0..3000 {
        // Of notifications that are alike, a server may send one.
        let notify = AssertSqlSafe(format!("NOTIFY postrider_wake, '{number}'"));
        sqlx::raw_sql(notify).execute(&mut *conn).await?;
    }
    let (claims, took) = (metrics.snapshot().claims - before, began.elapsed());
    let most = 15 + took.as_millis() / 25;
    assert!(claims >= 1 && u128::from(claims) <= most, "{claims} claims for 3000 notifications in {took:?}");
    // What one of them tells of is delivered all the same.
    let insert = "INSERT INTO postrider_event (event_type, payload) VALUES ('Tested', '{}')";
    sqlx::raw_sql(AssertSqlSafe(format!("{insert}; NOTIFY postrider_wake, 'x'"))).execute(&mut *conn).await?;
    until_delivered(&delivered, 1).await;
    drop(conn);
    assert!(outbox.shutdown().await.released);
    store.close().await;
    run(&server()?, format!("DROP DATABASE {name} WITH (FORCE)")).await
}

/// A database of its own, and one instance that delivers from it.
async fn alone(name: &str) -> Result<(String, PgStore, Outbox, Delivered), Failure> {
    let name = format!("{name}_{}", std::process::id());
    let server = server()?;
    run(&server, format!("CREATE DATABASE {name}")).await?;
    let (base, _) = server.rsplit_once('/').ok_or("a name has a database")?;
    let delivered = Delivered::default();
    let (store, outbox) = instance(&format!("{base}/{name}"), &delivered).await?;
    Ok((name, store, outbox, delivered))
}

async fn end(name: String, store: PgStore) -> Result<(), Failure> {
    store.close().await;
    run(&server()?, format!("DROP DATABASE {name} WITH (FORCE)")).await
}

/// Asks until the answer is the one that is waited for.
async fn until(store: &PgStore, question: &str, answer: i64) -> Result<(), Failure> {
    let started = std::time::Instant::now();
    loop {
        let told: i64 =
            sqlx::query_scalar(AssertSqlSafe(question.to_owned())).fetch_one(store.pool()).await?;
        if told == answer {
            return Ok(());
        }
        if started.elapsed() > Duration::from_secs(20) {
            return Err(format!("{question} is {told}, and not {answer}").into());
        }
    }
}

const PENDING: &str = "SELECT count(*) FROM postrider_event";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_somebody_has_locked_stops_nothing_but_its_key() -> Result<(), Failure> {
    let (name, store, outbox, delivered) = alone("locked").await?;
    // Nobody settles what is paused, so the row can be locked before it is sent.
    outbox.pause(&Subject::Source, "").await?;
    let event = Event::json_text("Tested", "0").key("locked");
    outbox.transaction(&store, async |tx| tx.write(event).await).await?;
    let mut lock = store.pool().begin().await?;
    sqlx::raw_sql("SELECT 1 FROM postrider_event FOR UPDATE").execute(&mut *lock).await?;
    outbox.resume(&Subject::Source).await?;
    until_delivered(&delivered, 1).await;
    // For longer than two leases.
    let (started, mut round) = (std::time::Instant::now(), 0);
    while started.elapsed() < Duration::from_secs(7) {
        round += 1;
        let of_round = std::time::Instant::now();
        for key in 0..KEYS {
            let event = Event::json_text("Tested", round.to_string()).key(format!("key {key}"));
            outbox.transaction(&store, async |tx| tx.write(event).await).await?;
        }
        until(&store, PENDING, 1).await?;
        assert!(of_round.elapsed() < Duration::from_secs(2), "others waited for {:?}", of_round.elapsed());
    }
    until(&store, "SELECT count(*) FROM postrider_lane WHERE leased_until > now()", 64).await?;
    until(&store, "SELECT max(epoch) FROM postrider_lane", 1).await?;
    lock.rollback().await?;
    until(&store, PENDING, 0).await?;
    until_delivered(&delivered, 1 + round * KEYS).await;
    assert!(outbox.shutdown().await.released);
    end(name, store).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_postgresql_refuses_to_write_is_seen_and_stops_nothing_but_its_key() -> Result<(), Failure> {
    let (name, store, outbox, delivered) = alone("refused").await?;
    let trigger = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE OR DELETE ON postrider_event FOR EACH ROW
         WHEN (OLD.ordering_key = 'key 3') EXECUTE FUNCTION refuse()";
    sqlx::raw_sql(trigger).execute(store.pool()).await?;
    for key in 0..KEYS {
        let event = Event::json_text("Tested", "0").key(format!("key {key}"));
        outbox.transaction(&store, async |tx| tx.write(event).await).await?;
    }
    until_delivered(&delivered, KEYS).await;
    until(&store, PENDING, 1).await?;
    let started = std::time::Instant::now();
    while outbox.unsettled().is_empty() && started.elapsed() < Duration::from_secs(20) {
        tokio::task::yield_now().await;
    }
    let unsettled = outbox.unsettled();
    assert!(
        unsettled.len() == 1 && unsettled.iter().all(|one| one.error.contains("not this one")),
        "{unsettled:?}"
    );
    sqlx::raw_sql("DROP TRIGGER refuse ON postrider_event").execute(store.pool()).await?;
    until(&store, PENDING, 0).await?;
    // The row is gone a moment before the engine hears of it.
    let started = std::time::Instant::now();
    while !outbox.unsettled().is_empty() && started.elapsed() < Duration::from_secs(20) {
        tokio::task::yield_now().await;
    }
    assert_eq!(outbox.unsettled(), []);
    assert!(outbox.shutdown().await.released);
    end(name, store).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_no_index_takes_is_dead_with_a_reason_and_stops_nothing() -> Result<(), Failure> {
    let (name, store, outbox, delivered) = alone("long").await?;
    // Anyone who has widened the columns by hand lets such a row in. What compresses well would fit into an index.
    let long = "UPDATE pg_attribute SET atttypmod = -1 WHERE attrelid = 'postrider_event'::regclass
                  AND attname IN ('ordering_key', 'aggregate_id');
         INSERT INTO postrider_event (event_type, ordering_key, payload)
         SELECT 'Tested', string_agg(md5(n::text || random()::text), ''), '{}' FROM generate_series(1, 250) AS n;
         INSERT INTO postrider_event (event_type, aggregate_type, aggregate_id, payload)
         SELECT 'Tested', 'Order', string_agg(md5(n::text || random()::text), ''), '{}' FROM generate_series(1, 250) AS n;
         INSERT INTO postrider_event (event_type, ordering_key, payload) SELECT 'Tested', 'key ' || n, '0' FROM generate_series(1, 20) AS n";
    sqlx::raw_sql(long).execute(store.pool()).await?;
    outbox.engine().ok_or("it delivers")?.wake();
    until_delivered(&delivered, 20).await;
    until(&store, "SELECT count(*) FROM postrider_event WHERE status = 3", 2).await?;
    until(&store, PENDING, 2).await?;
    let dead = outbox.dead(0, 10).await?;
    assert!(dead.iter().all(|letter| letter.error.contains("undecodable")), "{dead:?}");
    until(&store, "SELECT count(*) FROM postrider_hold", 0).await?;
    assert!(outbox.unsettled().is_empty() && outbox.shutdown().await.released);
    end(name, store).await
}
