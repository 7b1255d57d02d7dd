//! The engine on MySQL or MariaDB: several instances, one of which ends in the middle of its work, writers whose transactions
//! commit in another order than they wrote, and handlers that fail.

#[path = "mysql/database.rs"]
mod database;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use database::Database;
use postrider::{Delivery, Event, Outbox, Outcome, Store, mysql::MysqlStore, store::Subject};
use postrider_testkit::conformance::{Checked, Failure};
use tokio::{sync::mpsc, task::JoinSet, time::timeout};

const WRITERS: u32 = 6;
const KEYS_OF_A_WRITER: u32 = 4;
const EVENTS_OF_A_WRITER: u32 = 120;
const TIMEOUT: Duration = Duration::from_secs(60);

async fn instance(url: &str, seen: &mpsc::UnboundedSender<Delivery>) -> Result<Outbox, Failure> {
    let seen = seen.clone();
    let outbox = Outbox::builder()
        .store(MysqlStore::connect(url).await?)
        .lease(Duration::from_secs(2))
        .poll(Duration::from_millis(5), Duration::from_millis(50))
        .retry_with(|_, _| Duration::from_millis(20))
        // No look from the bottom comes to the help of what was skipped.
        .full_look_every(Duration::from_secs(3600))
        .otherwise(move |delivery: Delivery| {
            let seen = seen.clone();
            async move {
                let number: u32 = delivery.read_json().unwrap_or_default();
                if number % 7 == 3 && delivery.attempt < 3 {
                    return Outcome::retry("not yet");
                }
                seen.send(delivery).map_or_else(Outcome::retry, |()| Outcome::Delivered)
            }
        })
        .start()
        .await?;
    Ok(outbox)
}

/// Writes numbers that rise within each key, two keys at a time: the transaction that wrote first commits last.
async fn writer(url: String, number: u32) -> Checked {
    let store = MysqlStore::connect(&url).await?;
    let outbox = Outbox::builder().store(store.clone()).migrate(false).write_only().await?;
    for n in (0..EVENTS_OF_A_WRITER).step_by(2) {
        let event = |n: u32| {
            Event::json_text("Counted", n.to_string())
                .aggregate("Counter", format!("{number}-{}", n % KEYS_OF_A_WRITER))
        };
        let (mut late, mut early) = (store.pool().begin().await?, store.pool().begin().await?);
        // Nobody in this process delivers, so there is nobody to tell of the commits.
        let _ = outbox.write(&mut late, event(n)).await?;
        let _ = outbox.write(&mut early, event(n + 1)).await?;
        early.commit().await?;
        tokio::task::yield_now().await;
        late.commit().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_comes_in_the_order_of_its_key_over_three_instances_of_which_one_ends() -> Checked {
    let database = Database::new().await?;
    let url = database.url()?;
    let (sender, mut deliveries) = mpsc::unbounded_channel();
    let first = instance(&url, &sender).await?;
    let second = instance(&url, &sender).await?;
    let third = instance(&url, &sender).await?;
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        writers.spawn(writer(url.clone(), number));
    }

    let mut third = Some(third);
    let mut came: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let mut distinct: BTreeSet<(String, u32)> = BTreeSet::new();
    while distinct.len() < (WRITERS * EVENTS_OF_A_WRITER) as usize {
        let delivery = timeout(TIMEOUT, deliveries.recv())
            .await
            .map_err(|_| format!("{} events came, and then none for a minute", distinct.len()))?
            .ok_or("all instances have ended")?;
        let (key, number): (String, u32) =
            (delivery.key().unwrap_or_default().to_owned(), delivery.read_json()?);
        // A duplicate of what the instance that ended had sent and not settled is no fault; its first delivery counts.
        if distinct.insert((key.clone(), number)) {
            came.entry(key).or_default().push(number);
        }
        if distinct.len() > 100 {
            drop(third.take()); // without a shutdown
        }
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    for (key, numbers) in &came {
        assert!(numbers.is_sorted(), "{key}: {numbers:?}");
    }
    first.shutdown().await;
    second.shutdown().await;
    let stats = MysqlStore::connect(&url).await?.stats().await?;
    assert_eq!((stats.pending, stats.dead, stats.parked), (0, 0, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_type_that_is_paused_waits_and_comes_in_order_when_it_is_resumed() -> Checked {
    let database = Database::new().await?;
    let url = database.url()?;
    let (sender, mut deliveries) = mpsc::unbounded_channel();
    let store = MysqlStore::connect(&url).await?;
    let outbox = instance(&url, &sender).await?;
    let paused = Subject::event_type("Pa*");
    outbox.pause(&paused, "a test").await?;
    let mut tx = store.pool().begin().await?;
    let of = |number: u32| {
        let (event_type, key) = if number < 100 { ("Paused", number % 10) } else { ("Other", 10) };
        Event::json_text(event_type, (number * 7).to_string()).key(format!("key {key}"))
    };
    let receipts = outbox.write_all(&mut tx, (0..200).map(of)).await?;
    tx.commit().await?;
    receipts.committed();
    let mut came: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for place in 0..200 {
        if place == 100 {
            assert_eq!(came.keys().collect::<Vec<_>>(), ["key 10"]);
            outbox.resume(&paused).await?;
        }
        let delivery = timeout(TIMEOUT, deliveries.recv()).await?.ok_or("the instance has ended")?;
        came.entry(delivery.key().unwrap_or_default().to_owned()).or_default().push(delivery.read_json()?);
    }
    for (key, numbers) in &came {
        assert!(numbers.is_sorted(), "{key}: {numbers:?}");
    }
    assert_eq!(came.len(), 11);
    outbox.shutdown().await;
    Ok(())
}
