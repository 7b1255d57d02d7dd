//! The acceptance tests of seed 003, section 18, by their names, on every store and through every driver.
//!
//! S3-18, S3-1.1, S3-4.1a, S3-7.1, S3-8.1a

use std::{
    future::{Ready, ready},
    sync::Arc,
};

use postrider::{
    AggregateType, Backoff, Delivery, Event, EventId, EventType, GLOBAL_AGGREGATE, Outbox, Outcome, Source,
    store::EventStatus,
};
use sqlx::Connection;

use crate::parts::{Gate, Recorder, Site, Tally, eventually, fails, ms, on_every_store, plain, secs};

on_every_store![
    atomicity,
    commit_and_fast_path,
    queue_overflow_downgrade,
    retry_then_dead,
    type_safe_event_type,
    type_safe_aggregate_type,
];

/// The ways to write through a transaction of the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    Memory,
    /// A transaction of sqlx.
    Transaction,
    /// A bare connection of sqlx that said BEGIN.
    Connection,
    Rusqlite,
}

fn drivers(site: &Site) -> Vec<Driver> {
    if site.is_sqlite() {
        vec![Driver::Transaction, Driver::Connection, Driver::Rusqlite]
    } else {
        vec![Driver::Memory]
    }
}

/// Writes a business row and an event through the driver, and commits or rolls back.
async fn write(
    site: &Site,
    outbox: &Outbox,
    driver: Driver,
    order: &str,
    event: Event,
    commit: bool,
) -> EventId {
    let receipt = match driver {
        Driver::Memory => {
            let mut tx = site.memory_store().begin();
            tx.put(order, "placed");
            let receipt = outbox.write(&mut tx, event).await.unwrap();
            assert_eq!(site.status(receipt.id()).await, EventStatus::Absent, "seen before the commit");
            if commit {
                tx.commit().await.unwrap()
            } else {
                tx.rollback().await
            }
            receipt
        }
        Driver::Transaction => {
            let mut tx = site.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
            sqlx::query("INSERT INTO orders VALUES (?1)").bind(order).execute(&mut *tx).await.unwrap();
            let receipt = outbox.write(&mut tx, event).await.unwrap();
            assert_eq!(site.status(receipt.id()).await, EventStatus::Absent, "seen before the commit");
            if commit {
                tx.commit().await.unwrap()
            } else {
                tx.rollback().await.unwrap()
            }
            receipt
        }
        Driver::Connection => {
            let mut conn = site.pool().acquire().await.unwrap();
            sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut *conn).await.unwrap();
            sqlx::query("INSERT INTO orders VALUES (?1)").bind(order).execute(&mut *conn).await.unwrap();
            let receipt = outbox.write(&mut *conn, event).await.unwrap();
            let end = if commit { "COMMIT" } else { "ROLLBACK" };
            sqlx::raw_sql(end).execute(&mut *conn).await.unwrap();
            receipt
        }
        Driver::Rusqlite => {
            // It blocks, and what holds the lock may need this thread: so it has one of its own.
            let (file, order, outbox) = (site.file(), order.to_owned(), outbox.clone());
            let work = move || {
                let mut conn = rusqlite::Connection::open(file).unwrap();
                conn.busy_timeout(secs(5)).unwrap();
                let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
                tx.execute("INSERT INTO orders VALUES (?1)", [order]).unwrap();
                let receipt = outbox.write_blocking(&tx, event).unwrap();
                if commit {
                    tx.commit().unwrap()
                } else {
                    tx.rollback().unwrap()
                }
                receipt
            };
            tokio::task::spawn_blocking(work).await.unwrap()
        }
    };
    let id = receipt.id().clone();
    if commit {
        receipt.committed()
    } else {
        receipt.rolled_back()
    }
    id
}

/// Whether the business row is there.
async fn has_order(site: &Site, order: &str) -> bool {
    if !site.is_sqlite() {
        return site.memory_store().get(order).is_some();
    }
    let found = sqlx::query("SELECT 1 FROM orders WHERE name = ?1").bind(order);
    found.fetch_optional(site.pool()).await.unwrap().is_some()
}

/// Roll back: no row, nothing delivered.
async fn atomicity(site: Site) {
    let seen = Recorder::default();
    let outbox = site.outbox().on("OrderPlaced", seen.delivers()).poll(ms(5), ms(20)).start().await.unwrap();
    for driver in drivers(&site) {
        let (gone, kept) = (format!("{driver:?} gone"), format!("{driver:?} kept"));
        let rolled_back =
            write(&site, &outbox, driver, &gone, plain("OrderPlaced").build().unwrap(), false).await;
        assert_eq!(site.status(&rolled_back).await, EventStatus::Absent, "{driver:?}");
        assert!(!has_order(&site, &gone).await);
        let committed =
            write(&site, &outbox, driver, &kept, plain("OrderPlaced").build().unwrap(), true).await;
        assert!(has_order(&site, &kept).await);
        site.until_done(&committed).await;
        assert!(
            !seen.ids().contains(&rolled_back),
            "{driver:?}: an event that was rolled back was delivered"
        );
    }
    assert_eq!(seen.count(), drivers(&site).len());
}

/// Commit: HOT, handler, DONE.
async fn commit_and_fast_path(site: Site) {
    let seen = Recorder::default();
    let outbox = site.outbox().on("OrderPlaced", seen.delivers()).poller(false).start().await.unwrap();
    let id = site.write_hot(&outbox, plain("OrderPlaced")).await;
    let delivery = seen.reaches(1).await.remove(0);
    assert_eq!((delivery.id(), delivery.source, delivery.attempt), (&id, Source::Hot, 1));
    site.until_done(&id).await;

    // Other drivers: a wake-up and a read.
    outbox.shutdown().await;
    let outbox = site.outbox().on("OrderPlaced", seen.delivers()).start().await.unwrap();
    for (count, driver) in drivers(&site).into_iter().enumerate() {
        let id = write(
            &site,
            &outbox,
            driver,
            &format!("{driver:?}"),
            plain("OrderPlaced").build().unwrap(),
            true,
        )
        .await;
        site.until_done(&id).await;
        assert_eq!(seen.count(), count + 2, "{driver:?}");
    }
}

/// Overflow: NEW, then poller, DONE.
async fn queue_overflow_downgrade(site: Site) {
    let (seen, gate, tally) = (Recorder::default(), Arc::new(Gate::shut()), Tally::default());
    let outbox = site
        .outbox()
        .on("OrderPlaced", seen.waits_at(&gate))
        .hot_queue(1)
        .poller(false)
        .metrics(tally.metrics())
        .start()
        .await
        .unwrap();
    let first = site.write_hot(&outbox, plain("OrderPlaced")).await;
    let second = site.write_hot(&outbox, plain("OrderPlaced")).await;
    assert_eq!((tally.now().hot_enqueued, tally.now().hot_dropped), (1, 1));
    assert_eq!(site.status(&second).await, EventStatus::New);
    gate.let_through();
    site.until_done(&first).await;
    assert_eq!(site.status(&second).await, EventStatus::New, "nobody polled");
    assert_eq!(outbox.poll_once().await.unwrap(), 1);
    site.until_done(&second).await;
}

/// Failures: attempts and RETRY, then DEAD.
async fn retry_then_dead(site: Site) {
    let seen = Recorder::default();
    let outbox = site
        .outbox()
        .on("OrderPlaced", seen.answers(fails))
        .retry(Backoff::fixed(ms(20)))
        .max_attempts(3)
        .poller(false)
        .start()
        .await
        .unwrap();
    let mut ids = vec![site.write_hot(&outbox, plain("OrderPlaced")).await];
    for driver in drivers(&site) {
        let event = plain("OrderPlaced").build().unwrap();
        ids.push(write(&site, &outbox, driver, &format!("{driver:?}"), event, true).await);
    }
    // Nobody polls yet: the hot one has failed once and waits, the others are as they were written.
    eventually("it was tried", async || {
        matches!(site.status(&ids[0]).await, EventStatus::Waiting { attempts: 1, .. })
    })
    .await;
    for id in &ids[1..] {
        assert_eq!(site.status(id).await, EventStatus::New);
    }
    eventually("all attempts are made", async || {
        outbox.poll_once().await.unwrap();
        seen.count() == 3 * ids.len()
    })
    .await;
    site.until_dead(ids.len()).await;
    for id in &ids {
        assert_eq!(site.status(id).await, EventStatus::Dead { attempts: 3, error: "it failed".to_owned() });
    }
    for id in &ids {
        let attempts: Vec<u32> = seen
            .seen()
            .iter()
            .filter(|delivery| delivery.id() == id)
            .map(|delivery| delivery.attempt)
            .collect();
        assert_eq!(attempts, [1, 2, 3]);
    }
}

#[derive(EventType)]
enum OrderEvent {
    OrderPlaced,
    #[event_type(name = "order.shipped")]
    OrderShipped,
}

#[derive(AggregateType)]
enum Thing {
    Order,
    #[aggregate_type(name = "client")]
    Customer,
}

/// An enum as event type, in an event and in a route, and beside strings.
async fn type_safe_event_type(site: Site) {
    let (placed, shipped) = (Recorder::default(), Recorder::default());
    let outbox = site
        .outbox()
        .on(OrderEvent::OrderPlaced, placed.delivers())
        .on("order.shipped", shipped.delivers())
        .known_types(OrderEvent::EVENT_TYPES.iter().copied())
        .start()
        .await
        .unwrap();
    let mut ids = vec![
        site.write_hot(&outbox, Event::json_text(OrderEvent::OrderPlaced, "{}")).await,
        site.write_hot(&outbox, Event::json_text(OrderEvent::OrderShipped, "{}")).await,
    ];
    for driver in drivers(&site) {
        let event = Event::json(OrderEvent::OrderShipped, &7).unwrap().build().unwrap();
        ids.push(write(&site, &outbox, driver, &format!("{driver:?}"), event, true).await);
    }
    for id in &ids {
        site.until_done(id).await;
    }
    assert_eq!(placed.seen()[0].event_type(), "OrderPlaced");
    assert_eq!((placed.count(), shipped.count()), (1, ids.len() - 1));
}

/// An enum as aggregate type, in an event and in a route, and beside strings.
async fn type_safe_aggregate_type(site: Site) {
    let (orders, clients, rest) = (Recorder::default(), Recorder::default(), Recorder::default());
    let outbox = site
        .outbox()
        .on_aggregate(Thing::Order, OrderEvent::OrderPlaced, orders.delivers())
        .on_aggregate("client", "OrderPlaced", clients.delivers())
        .on("OrderPlaced", rest.delivers())
        .start()
        .await
        .unwrap();
    let order = || Event::json_text(OrderEvent::OrderPlaced, "{}").aggregate(Thing::Order, 42);
    let client = || Event::json_text(OrderEvent::OrderPlaced, "{}").aggregate_type(Thing::Customer);
    let global = || Event::json_text(OrderEvent::OrderPlaced, "{}");
    let mut count = 0;
    site.write_hot(&outbox, order()).await;
    site.write_hot(&outbox, client()).await;
    site.write_hot(&outbox, global()).await;
    for driver in drivers(&site) {
        for (name, event) in [("order", order()), ("client", client()), ("global", global())] {
            write(&site, &outbox, driver, &format!("{driver:?} {name}"), event.build().unwrap(), true).await;
        }
        count += 1;
    }
    site.until_all_done(3 * (count + 1)).await;
    for (seen, aggregate_type) in [(&orders, "Order"), (&clients, "client"), (&rest, GLOBAL_AGGREGATE)] {
        assert_eq!(seen.count() as u64, count + 1);
        assert!(seen.seen().iter().all(|delivery| delivery.aggregate_type() == aggregate_type));
    }
    assert!(orders.seen().iter().all(|delivery| delivery.key() == Some("Order:42")));
}

/// S3-4.1d: on a bare connection the mistake is told at run time.
#[tokio::test]
async fn a_connection_that_is_in_no_transaction_is_refused() {
    let site = Site::sqlite().await;
    let outbox = site.outbox().write_only().await.unwrap();
    let mut conn = site.pool().acquire().await.unwrap();
    let refused = outbox.write(&mut *conn, plain("A")).await.unwrap_err();
    assert!(matches!(refused, postrider::Error::NotInTransaction { .. }), "{refused}");
    assert!(refused.to_string().contains("begin one first"));
    // The connection is as good as before, and a transaction of it is taken.
    let mut tx = conn.begin().await.unwrap();
    let _ = outbox.write(&mut *tx, plain("A")).await.unwrap();
    tx.commit().await.unwrap();

    let blocking = rusqlite::Connection::open(site.file()).unwrap();
    let refused = outbox.write_blocking(&blocking, plain("A")).unwrap_err();
    assert!(matches!(refused, postrider::Error::NotInTransaction { driver: "rusqlite" }), "{refused}");
    assert_eq!(site.store.stats().await.unwrap().pending, 1);
}

/// S2-9: the smallest program there is, on a database in memory.
#[tokio::test]
async fn the_minimal_program_runs_on_sqlite_in_memory() {
    fn handler(seen: Recorder) -> impl Fn(Delivery) -> Ready<Outcome> + Send + Sync + 'static {
        move |delivery| {
            seen.note(&delivery);
            ready(Outcome::Delivered)
        }
    }
    let site = Site::sqlite_in_memory().await;
    let seen = Recorder::default();
    let outbox = site.outbox().on("OrderPlaced", handler(seen.clone())).start().await.unwrap();
    let hot = site.write_hot(&outbox, plain("OrderPlaced")).await;
    let keyed = site.write_hot(&outbox, plain("OrderPlaced").aggregate("Order", 1)).await;
    let cold = site.write(&outbox, plain("OrderPlaced")).await;
    for id in [&hot, &keyed, &cold] {
        site.until_done(id).await;
    }
    assert!(outbox.shutdown().await.released);
    assert_eq!(seen.count(), 3);
}
