//! What commits, what does not, and what is left of it.

use postrider::{Error, Event, EventId, Outbox, Receipt, TxOutcome, sqlite::SqliteStore, store::EventStatus};

use super::{Handle, clone_of, hooks::Hook};
use crate::parts::{Recorder, Site, Tally, eventually, keyed, ms, on_every_store, plain};

on_every_store![
    an_owned_transaction_commits_on_ok_and_rolls_back_on_error_panic_and_drop,
    several_events_are_written_in_order_all_or_none,
    a_failed_write_leaves_the_transaction_of_the_caller_usable,
    sixteen_writers_in_parallel_lose_nothing,
    an_event_behind_a_rolled_back_savepoint_is_not_handed_over,
];

async fn an_owned_transaction_commits_on_ok_and_rolls_back_on_error_panic_and_drop(site: Site) {
    // S3-4.3
    let (seen, tally) = (Recorder::default(), Tally::default());
    let outbox = site.outbox().on("A", seen.delivers()).metrics(tally.metrics()).start().await.unwrap();
    let [kept, failed, panicked, dropped] = ["kept", "failed", "panicked", "dropped"];
    owned!(site, outbox, async |tx| tx.write(plain("A").id(kept)).await).unwrap();
    let error: Result<(), Error> = owned!(site, outbox, async |tx| {
        tx.write(plain("A").id(failed)).await?;
        Err(Error::Hook("changed my mind".into()))
    });
    assert!(matches!(error, Err(Error::Hook(_))), "the error of the caller comes back");

    let (of_task, outbox_of_task) = (clone_of(&site), outbox.clone());
    let panic = tokio::spawn(async move {
        let done: Result<(), Error> = match of_task {
            Handle::Memory(store) => {
                outbox_of_task
                    .transaction(&store, async |tx| {
                        tx.write(plain("A").id("panicked")).await?;
                        panic!("in the middle")
                    })
                    .await
            }
            Handle::Sqlite(pool) => {
                outbox_of_task
                    .transaction(&pool, async |tx| {
                        tx.write(plain("A").id("panicked")).await?;
                        panic!("in the middle")
                    })
                    .await
            }
        };
        done
    });
    assert!(panic.await.unwrap_err().is_panic());

    match clone_of(&site) {
        Handle::Memory(store) => {
            let mut tx = outbox.begin(&store).await.unwrap();
            tx.write(plain("A").id(dropped)).await.unwrap();
        }
        Handle::Sqlite(pool) => {
            let mut tx = outbox.begin(&pool).await.unwrap();
            tx.write(plain("A").id(dropped)).await.unwrap();
        }
    }
    site.until_done(&kept.into()).await;
    for gone in [failed, panicked, dropped] {
        assert_eq!(site.status(&gone.into()).await, EventStatus::Absent, "{gone}");
    }
    assert_eq!((seen.count(), tally.now().hot_enqueued), (1, 1));
    // The database is as good as before.
    let id = site.write_hot(&outbox, plain("A")).await;
    site.until_done(&id).await;
}

async fn several_events_are_written_in_order_all_or_none(site: Site) {
    // S3-8.1b
    let seen = Recorder::default();
    let outbox = site.outbox().on("Tested", seen.delivers()).start().await.unwrap();
    let events: Vec<Event> = (0..500).map(|n| keyed("k", n).build().unwrap()).collect();
    let receipt = in_transaction!(site, |tx| outbox.write_all(tx, &events).await.unwrap());
    let ids: Vec<EventId> = events.iter().map(|event| event.id().clone()).collect();
    assert_eq!((receipt.ids(), receipt.inserted()), (ids.as_slice(), 500));
    receipt.committed();
    site.until_all_done(500).await;
    assert_eq!(seen.numbers(), (0..500).collect::<Vec<_>>());

    // The last one is there twice: none is written, and the transaction goes on.
    let mut twice: Vec<Event> = (0..300).map(|n| keyed("k", n).build().unwrap()).collect();
    twice.push(twice[7].clone());
    let (error, other) = in_transaction!(site, |tx| {
        let error = outbox.write_all(&mut *tx, &twice).await.unwrap_err();
        (error, outbox.write(&mut *tx, plain("Tested").id("other")).await.unwrap().id().clone())
    });
    assert!(matches!(error, Error::DuplicateId { .. }), "{error}");
    for event in &twice {
        assert_eq!(site.status(event.id()).await, EventStatus::Absent);
    }
    assert_ne!(site.status(&other).await, EventStatus::Absent);
}

async fn a_failed_write_leaves_the_transaction_of_the_caller_usable(site: Site) {
    // S3-9.3b
    let outbox = site.outbox().write_only().await.unwrap();
    site.write(&outbox, plain("A").id("taken")).await;
    let ids = in_transaction!(site, |tx| {
        let before = outbox.write(&mut *tx, plain("A").id("before")).await.unwrap();
        outbox.write(&mut *tx, plain("A").id("taken")).await.unwrap_err();
        let after = outbox.write(&mut *tx, plain("A").id("after")).await.unwrap();
        [before.id().clone(), after.id().clone()]
    });
    for id in ids {
        assert_eq!(site.status(&id).await, EventStatus::New);
    }
    let kept = owned!(site, outbox, async |tx| {
        tx.write(plain("A").id("taken")).await.unwrap_err();
        tx.write(plain("A")).await
    })
    .unwrap();
    assert_eq!(site.status(&kept).await, EventStatus::New);
}

async fn sixteen_writers_in_parallel_lose_nothing(site: Site) {
    // S3-17
    let (seen, each) = (Recorder::default(), if site.is_sqlite() { 10 } else { 50 });
    let outbox = site.outbox().on("Tested", seen.delivers()).start().await.unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..16 {
        let (outbox, handle) = (outbox.clone(), clone_of(&site));
        writers.spawn(async move {
            for n in 0..each {
                let event = if n % 2 == 0 {
                    keyed(&format!("k{writer}"), n)
                } else {
                    Event::json_text("Tested", "0")
                };
                match &handle {
                    Handle::Memory(store) => {
                        outbox.transaction(store, async |tx| tx.write(event).await).await
                    }
                    Handle::Sqlite(pool) => outbox.transaction(pool, async |tx| tx.write(event).await).await,
                }
                .unwrap();
            }
        });
    }
    while let Some(written) = writers.join_next().await {
        written.unwrap();
    }
    site.until_all_done(16 * each as u64).await;
    let mut ids = seen.ids();
    assert_eq!(ids.len(), 16 * each);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 16 * each, "an event was delivered twice");
    for writer in 0..16 {
        assert_eq!(seen.numbers_of(&format!("k{writer}")), (0..each).step_by(2).collect::<Vec<_>>());
    }
}

async fn an_event_behind_a_rolled_back_savepoint_is_not_handed_over(site: Site) {
    let (seen, hook, tally) = (Recorder::default(), Hook::default(), Tally::default());
    let outbox = site
        .outbox()
        .on("A", seen.delivers())
        .write_hook(hook.clone())
        .metrics(tally.metrics())
        .start()
        .await
        .unwrap();
    let gone = || plain("A").id("gone");
    match clone_of(&site) {
        Handle::Memory(store) => {
            let mut tx = outbox.begin(&store).await.unwrap();
            tx.conn().savepoint();
            tx.write(gone()).await.unwrap();
            tx.conn().rollback_to_savepoint();
            tx.write(plain("A").id("kept")).await.unwrap();
            tx.commit().await.unwrap();
        }
        Handle::Sqlite(pool) => {
            let mut tx = outbox.begin(&pool).await.unwrap();
            sqlx::raw_sql("SAVEPOINT here").execute(tx.conn()).await.unwrap();
            tx.write(gone()).await.unwrap();
            sqlx::raw_sql("ROLLBACK TO here; RELEASE here").execute(tx.conn()).await.unwrap();
            tx.write(plain("A").id("kept")).await.unwrap();
            tx.commit().await.unwrap();
        }
    }
    site.until_done(&"kept".into()).await;
    crate::parts::pass(ms(50)).await;
    assert_eq!((seen.ids(), tally.now().hot_enqueued), (vec!["kept".into()], 1));
    let told_committed: Vec<EventId> = hook
        .taken()
        .into_iter()
        .filter(|(_, outcome)| *outcome == TxOutcome::Committed)
        .flat_map(|(ids, _)| ids)
        .collect();
    assert_eq!(told_committed, ["kept"], "the hook was told that an event committed which is not there");
}

#[tokio::test]
async fn a_commit_that_fails_hands_nothing_over() {
    // S3-4.1b: a deferred constraint fails at the commit.
    let site = Site::sqlite().await;
    sqlx::raw_sql(
        "CREATE TABLE lines (of_order TEXT REFERENCES orders (name) DEFERRABLE INITIALLY DEFERRED)",
    )
    .execute(site.pool())
    .await
    .unwrap();
    let (seen, hook, tally) = (Recorder::default(), Hook::default(), Tally::default());
    let outbox = site
        .outbox()
        .on("A", seen.delivers())
        .write_hook(hook.clone())
        .metrics(tally.metrics())
        .start()
        .await
        .unwrap();
    let failed: Result<EventId, Box<dyn std::error::Error + Send + Sync>> = outbox
        .transaction(site.pool(), async |tx| {
            sqlx::query("INSERT INTO lines VALUES ('no such order')").execute(tx.conn()).await?;
            Ok(tx.write(plain("A").id("gone")).await?)
        })
        .await;
    assert!(failed.is_err());
    assert!(hook.taken().iter().all(|(_, outcome)| *outcome != TxOutcome::Committed));
    // The connection is free again, and nothing of the transaction is left.
    let other = site.write_hot(&outbox, plain("A")).await;
    site.until_done(&other).await;
    assert_eq!(site.status(&"gone".into()).await, EventStatus::Absent);
    assert_eq!((seen.ids(), tally.now().hot_enqueued), (vec![other], 1));
}

#[tokio::test]
async fn a_transaction_can_be_written_to_inside_of_a_spawned_task() {
    // The futures are Send, with the closure form too.
    let site = Site::sqlite().await;
    let outbox = site.outbox().write_only().await.unwrap();
    let pool = site.pool().clone();
    let task = tokio::spawn(async move {
        outbox
            .transaction::<_, _, _, Error, _>(&pool, async |tx| {
                tx.write(plain("A")).await?;
                tx.write_all([plain("A"), plain("A")]).await
            })
            .await?;
        let mut tx = pool.begin().await.map_err(|error| Error::Hook(error.into()))?;
        let receipt = outbox.write(&mut tx, plain("A")).await?;
        tx.commit().await.map_err(|error| Error::Hook(error.into()))?;
        receipt.committed();
        Ok::<_, Error>(())
    });
    task.await.unwrap().unwrap();
    assert_eq!(site.store.stats().await.unwrap().pending, 4);
}

#[tokio::test]
async fn two_outboxes_with_prefixes_of_their_own_share_a_database() {
    let site = Site::sqlite().await;
    let prefix = postrider_core::tx::Prefix::new("shop_").unwrap();
    let other = SqliteStore::with_prefix(site.pool().clone(), prefix);
    let (seen, shop_seen) = (Recorder::default(), Recorder::default());
    let outbox = site.outbox().on("A", seen.delivers()).start().await.unwrap();
    let shop = Outbox::builder().store(other).on("A", shop_seen.delivers()).start().await.unwrap();
    let mut tx = site.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    let receipts =
        [outbox.write(&mut tx, plain("A")).await.unwrap(), shop.write(&mut tx, plain("A")).await.unwrap()];
    tx.commit().await.unwrap();
    receipts.into_iter().for_each(Receipt::committed);
    eventually("both are delivered", async || seen.count() == 1 && shop_seen.count() == 1).await;
    assert_ne!(seen.ids(), shop_seen.ids());
}
