//! Writing: into the caller's transaction, or into one that the outbox owns.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use postrider::{
    Backoff, Delivery, Error, Event, EventError, EventId, Fate, Outbox, Outcome, Receipt, Routes, Settings,
    Source, Timestamp, TraceContext, WriteHook, memory::MemoryStore, sqlite::SqliteStore, store::EventStatus,
    trace,
};
use serde::{Serialize, Serializer};

use crate::parts::{Recorder, Site, Tally, eventually, keyed, ms, on_every_store, plain};

on_every_store![
    an_owned_transaction_commits_on_ok_and_rolls_back_on_error_panic_and_drop,
    a_hook_changes_and_suppresses_events,
    a_hook_that_refuses_fails_the_write,
    a_hook_observes_the_fate_of_each_write_once,
    the_id_of_a_receipt_is_the_id_of_the_row,
    an_unknown_type_is_refused_and_told_with_the_known_ones,
    a_payload_over_the_limit_of_the_outbox_is_refused,
    several_events_are_written_in_order_all_or_none,
    an_event_that_is_there_already_is_an_error_or_left_as_it_is,
    the_payload_is_serialised_once,
    hot_and_cold_deliver_the_same_event_field_by_field,
    the_current_trace_goes_along_and_is_restored_around_delivery,
    a_failed_write_leaves_the_transaction_of_the_caller_usable,
    sixteen_writers_in_parallel_lose_nothing,
    an_event_behind_a_rolled_back_savepoint_is_not_handed_over,
    a_new_event_is_new_and_untried,
    an_event_with_a_delay_takes_no_hot_path,
];

/// Begins a transaction of the caller's on whichever store this is, and writes through it.
macro_rules! in_transaction {
    ($site:expr, |$tx:ident| $work:expr) => {
        match &$site.database {
            crate::parts::Database::Memory(store) => {
                let mut transaction = store.begin();
                let $tx = &mut transaction;
                let result = $work;
                transaction.commit().await.unwrap();
                result
            }
            crate::parts::Database::Sqlite(pool, _) => {
                let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
                let $tx = &mut transaction;
                let result = $work;
                transaction.commit().await.unwrap();
                result
            }
        }
    };
}

/// Runs work in a transaction that the outbox owns.
macro_rules! owned {
    ($site:expr, $outbox:expr, $work:expr) => {
        match &$site.database {
            crate::parts::Database::Memory(store) => $outbox.transaction(store, $work).await,
            crate::parts::Database::Sqlite(pool, _) => $outbox.transaction(pool, $work).await,
        }
    };
}

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

enum Handle {
    Memory(MemoryStore),
    Sqlite(sqlx::SqlitePool),
}

fn clone_of(site: &Site) -> Handle {
    if site.is_sqlite() {
        Handle::Sqlite(site.pool().clone())
    } else {
        Handle::Memory(site.memory_store().clone())
    }
}

/// What became of the events of one write.
type Told = (Vec<EventId>, Fate);

/// A hook that marks, suppresses and refuses events by their type, and remembers their fates.
#[derive(Clone, Default)]
struct Hook {
    fates: Arc<Mutex<Vec<Told>>>,
}

impl Hook {
    fn taken(&self) -> Vec<Told> {
        std::mem::take(&mut *self.fates.lock().unwrap())
    }
}

impl WriteHook for Hook {
    fn before_write(&self, event: Event) -> Result<Option<Event>, Error> {
        match event.event_type() {
            "Secret" => Ok(None),
            "Forbidden" => Err(Error::Hook("it is forbidden".into())),
            _ => Ok(Some(event.to_builder().header("seen-by", "hook").build()?)),
        }
    }

    fn after(&self, ids: &[EventId], fate: Fate) {
        self.fates.lock().unwrap().push((ids.to_vec(), fate));
    }
}

async fn a_hook_changes_and_suppresses_events(site: Site) {
    let (seen, hook) = (Recorder::default(), Hook::default());
    let outbox = site.outbox().on("A", seen.delivers()).write_hook(hook.clone()).start().await.unwrap();
    let receipt = in_transaction!(site, |tx| {
        outbox.write_all(tx, [plain("A"), plain("Secret"), plain("A")]).await.unwrap()
    });
    assert_eq!((receipt.ids().len(), receipt.inserted()), (3, 2));
    let suppressed = receipt.ids()[1].clone();
    receipt.committed();
    let hot = site.write_hot(&outbox, plain("A")).await;
    site.until_all_done(3).await;
    assert!(seen.seen().iter().all(|delivery| delivery.headers()["seen-by"] == "hook"));
    assert_eq!(site.status(&suppressed).await, EventStatus::Absent);
    assert!(seen.ids().contains(&hot));
    let only_suppressed = site.write_hot(&outbox, plain("Secret")).await;
    assert_eq!(site.status(&only_suppressed).await, EventStatus::Absent);
}

async fn a_hook_that_refuses_fails_the_write(site: Site) {
    let outbox = site.outbox().write_hook(Hook::default()).write_only().await.unwrap();
    let refused =
        in_transaction!(site, |tx| outbox.write_all(tx, [plain("A"), plain("Forbidden")]).await.unwrap_err());
    assert!(matches!(refused, Error::Hook(_)));
    assert_eq!(std::error::Error::source(&refused).unwrap().to_string(), "it is forbidden");
    assert_eq!(site.store.stats().await.unwrap().pending, 0);
}

async fn a_hook_observes_the_fate_of_each_write_once(site: Site) {
    // S3-4.1c
    let hook = Hook::default();
    let outbox = site.outbox().write_hook(hook.clone()).write_only().await.unwrap();
    // Where the outbox owns the commit.
    let id = site.write_hot(&outbox, plain("A")).await;
    assert_eq!(hook.taken(), [(vec![id], Fate::Committed)]);
    let failed: Result<(), Error> = owned!(site, outbox, async |tx| {
        tx.write(plain("A").id("failed")).await?;
        tx.write(plain("A").id("failed too")).await?;
        Err(Error::Hook("no".into()))
    });
    failed.unwrap_err();
    assert_eq!(hook.taken(), [(vec!["failed".into(), "failed too".into()], Fate::RolledBack)]);
    let caught = {
        let work = AssertUnwindSafe(async {
            let _: Result<(), Error> = owned!(site, outbox, async |tx| {
                tx.write(plain("A").id("panicked")).await?;
                panic!("in the middle")
            });
        });
        catch(work).await
    };
    assert!(caught.is_err());
    assert_eq!(hook.taken(), [(vec!["panicked".into()], Fate::RolledBack)]);

    // Where it does not, the receipt says.
    let told = |receipt: Receipt, tell: fn(Receipt)| tell(receipt);
    for (tell, fate) in [
        (Receipt::committed as fn(Receipt), Fate::Committed),
        (Receipt::rolled_back, Fate::RolledBack),
        (drop, Fate::Unknown),
    ] {
        let receipt = in_transaction!(site, |tx| outbox.write(tx, plain("A")).await.unwrap());
        let id = receipt.id().clone();
        assert_eq!(hook.taken(), []);
        told(receipt, tell);
        assert_eq!(hook.taken(), [(vec![id], fate)]);
    }
}

/// Runs a future, and catches its panic.
async fn catch<T>(future: AssertUnwindSafe<impl Future<Output = T>>) -> std::thread::Result<T> {
    let mut future = Box::pin(future.0);
    std::future::poll_fn(move |context| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => std::task::Poll::Ready(Err(panic)),
        }
    })
    .await
}

/// A hook that gives events ids of its own.
struct Renumber;

impl WriteHook for Renumber {
    fn before_write(&self, event: Event) -> Result<Option<Event>, Error> {
        Ok(Some(event.to_builder().id(format!("x-{}", event.event_type())).build()?))
    }
}

async fn the_id_of_a_receipt_is_the_id_of_the_row(site: Site) {
    // S0-8.1, S3-8.1a, S3-6.1a
    let outbox = site.outbox().write_only().await.unwrap();
    let given = site.write(&outbox, plain("A").id("my own")).await;
    assert_eq!(given.as_str(), "my own");
    let drawn = site.write_hot(&outbox, plain("A")).await;
    for id in [given, drawn] {
        assert_eq!(site.status(&id).await, EventStatus::New);
    }
    // Also where a hook has changed it.
    let outbox = site.outbox().write_hook(Renumber).write_only().await.unwrap();
    for id in [site.write(&outbox, plain("B")).await, site.write_hot(&outbox, plain("C")).await] {
        assert_eq!(site.status(&id).await, EventStatus::New, "no row has the id {id}");
    }
}

async fn an_unknown_type_is_refused_and_told_with_the_known_ones(site: Site) {
    let outbox = site.outbox().known_types(["Placed", "Shipped"]).write_only().await.unwrap();
    let error = in_transaction!(site, |tx| outbox.write(tx, plain("Palced")).await.unwrap_err());
    let text = error.to_string();
    assert!(matches!(error, Error::UnknownType { .. }));
    assert!(text.contains("Palced") && text.contains("Placed, Shipped"), "{text}");
    site.write(&outbox, plain("Placed")).await;
    assert_eq!(site.store.stats().await.unwrap().pending, 1);
}

async fn a_payload_over_the_limit_of_the_outbox_is_refused(site: Site) {
    // S3-6.2a
    let outbox = site.outbox().payload_max(100).write_only().await.unwrap();
    site.write(&outbox, Event::json_text("A", "x".repeat(100))).await;
    let error = in_transaction!(site, |tx| {
        outbox.write(tx, Event::json_text("A", "x".repeat(101))).await.unwrap_err()
    });
    let expected = EventError::TooLong { field: "payload", size: 101, limit: 100, unit: "bytes" };
    assert_eq!(error.to_string(), Error::Event(expected).to_string());
    // The largest there is goes through the whole way.
    let seen = Recorder::default();
    let outbox = site.outbox().on("A", seen.delivers()).start().await.unwrap();
    let largest = site.write(&outbox, Event::json_text("A", "x".repeat(1_048_576))).await;
    site.until_done(&largest).await;
    assert!(seen.seen().iter().any(|delivery| delivery.payload().len() == 1_048_576));
    let too_large = Event::json_text("A", "x".repeat(1_048_577)).build().unwrap_err();
    assert!(matches!(too_large, EventError::TooLong { size: 1_048_577, limit: 1_048_576, .. }));
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

async fn an_event_that_is_there_already_is_an_error_or_left_as_it_is(site: Site) {
    // S3-6.1a
    let outbox = site.outbox().write_only().await.unwrap();
    let event = plain("A").id("once").build().unwrap();
    site.write(&outbox, &event).await;
    let error = in_transaction!(site, |tx| outbox.write(tx, &event).await.unwrap_err());
    assert!(matches!(&error, Error::DuplicateId { id: Some(id) } if id.as_str() == "once"), "{error}");
    assert!(error.to_string().contains("write_if_absent"), "{error}");
    let receipt = in_transaction!(site, |tx| outbox.write_if_absent(tx, &event).await.unwrap());
    assert_eq!((receipt.is_new(), receipt.id().as_str()), (false, "once"));
    let receipt =
        in_transaction!(site, |tx| outbox.write_if_absent(tx, plain("A").id("twice")).await.unwrap());
    assert!(receipt.is_new());
    let (old, new) = owned!(site, outbox, async |tx| {
        Ok::<_, Error>((tx.write_if_absent(&event).await?, tx.write_if_absent(plain("A")).await?))
    })
    .unwrap();
    assert_eq!((old, new), (false, true));
    assert_eq!(site.store.stats().await.unwrap().pending, 3);
}

/// Counts how often it is serialised.
struct Counted(Arc<AtomicUsize>);

impl Serialize for Counted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.fetch_add(1, SeqCst);
        serializer.serialize_str("counted")
    }
}

async fn the_payload_is_serialised_once(site: Site) {
    // S3-6.2b
    let (seen, count) = (Recorder::default(), Arc::new(AtomicUsize::new(0)));
    let answer = |delivery: &Delivery| {
        if delivery.attempt == 1 { Outcome::retry("again") } else { Outcome::Delivered }
    };
    let outbox =
        site.outbox().on("A", seen.answers(answer)).retry(Backoff::fixed(ms(5))).start().await.unwrap();
    let counted = Counted(count.clone());
    let id = site.write_hot(&outbox, Event::json("A", &counted).unwrap()).await;
    site.until_done(&id).await;
    assert_eq!(count.load(SeqCst), 1);
    let sources: Vec<Source> = seen.seen().iter().map(|delivery| delivery.source).collect();
    assert_eq!(sources, [Source::Hot, Source::Cold]);
    assert!(seen.seen().iter().all(|delivery| delivery.payload().as_bytes() == b"\"counted\""));
}

async fn hot_and_cold_deliver_the_same_event_field_by_field(site: Site) {
    // S3-6.5, S3-6.4, S3-6.2b, S3-6.2c
    let seen = Recorder::default();
    let answer = |delivery: &Delivery| {
        if delivery.attempt == 1 { Outcome::retry("again") } else { Outcome::Delivered }
    };
    let outbox = site
        .outbox()
        .on("Tested", seen.answers(answer))
        .retry(Backoff::fixed(ms(5)))
        .key_order(postrider::KeyOrder::Ignored)
        .start()
        .await
        .unwrap();
    let mut headers =
        BTreeMap::from([("a".to_owned(), "ä \"quoted\" \n".to_owned()), ("b".to_owned(), String::new())]);
    let full = Event::bytes("Tested", "application/octet-stream", [0, 159, 146, 150])
        .id("its-id")
        .aggregate("Order", 42)
        .key("its key; DROP TABLE")
        .tenant("acme")
        .headers(headers.clone())
        .occurred_at(Timestamp::from_micros(1_600_000_000_123_456))
        .build()
        .unwrap();
    // Changing what it was built from changes nothing.
    headers.clear();
    let bare = plain("Tested").build().unwrap();
    for event in [full, bare] {
        let before = seen.count();
        site.write_hot(&outbox, &event).await;
        site.until_done(event.id()).await;
        let [hot, cold] = seen.seen()[before..].to_vec().try_into().unwrap();
        assert_eq!((hot.source, cold.source), (Source::Hot, Source::Cold));
        for delivery in [&hot, &cold] {
            assert_eq!(delivery.id(), event.id());
            assert_eq!(delivery.event_type(), event.event_type());
            assert_eq!(delivery.aggregate_type(), event.aggregate_type());
            assert_eq!(delivery.aggregate_id(), event.aggregate_id());
            assert_eq!(delivery.key(), event.key());
            assert_eq!(delivery.ordering_key(), event.ordering_key());
            assert_eq!(delivery.tenant_id(), event.tenant_id());
            assert_eq!(delivery.headers(), event.headers());
            assert_eq!(delivery.content_type(), event.content_type());
            assert_eq!(delivery.payload(), event.payload());
            assert_eq!(delivery.occurred_at(), event.occurred_at());
        }
    }
}

async fn the_current_trace_goes_along_and_is_restored_around_delivery(site: Site) {
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let context = TraceContext::new(parent, Some("vendor=1")).unwrap();
    let own = TraceContext::new("00-11111111111111111111111111111111-2222222222222222-00", None).unwrap();
    let (seen, current) = (Recorder::default(), Arc::new(Mutex::new(Vec::new())));
    let (notes, at_before, at_handler) = (seen.clone(), current.clone(), current.clone());
    let outbox = site
        .outbox()
        .interceptor(postrider::interceptor::before(move |_: Delivery| {
            at_before.lock().unwrap().push(trace::current());
            std::future::ready(Ok(()))
        }))
        .on("A", move |delivery: Delivery| {
            notes.note(&delivery);
            let current = at_handler.clone();
            async move { current.lock().unwrap().push(trace::current()) }
        })
        .start()
        .await
        .unwrap();
    let hot = trace::scope(context.clone(), site.write_hot(&outbox, plain("A"))).await;
    site.until_done(&hot).await;
    let cold = trace::scope(context.clone(), site.write(&outbox, plain("A"))).await;
    site.until_done(&cold).await;
    let named = trace::scope(context.clone(), site.write(&outbox, plain("A").trace_context(&own))).await;
    site.until_done(&named).await;
    let none = site.write(&outbox, plain("A")).await;
    site.until_done(&none).await;
    let expected = [Some(&context), Some(&context), Some(&own), None].map(Option::<&TraceContext>::cloned);
    let doubled: Vec<_> = expected.iter().flat_map(|context| [context.clone(), context.clone()]).collect();
    assert_eq!(*current.lock().unwrap(), doubled, "before and in the handler of each");
    assert_eq!(seen.seen()[0].headers()["traceparent"], parent);
    assert_eq!(seen.seen()[0].headers()["tracestate"], "vendor=1");
    assert!(seen.seen()[3].headers().is_empty());
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
        .filter(|(_, fate)| *fate == Fate::Committed)
        .flat_map(|(ids, _)| ids)
        .collect();
    assert_eq!(told_committed, ["kept"], "the hook was told that an event committed which is not there");
}

async fn a_new_event_is_new_and_untried(site: Site) {
    // S3-9.2a
    let outbox = site.outbox().write_only().await.unwrap();
    let id = site.write(&outbox, plain("A")).await;
    assert_eq!(site.status(&id).await, EventStatus::New);
    if site.is_sqlite() {
        let row: (i64, i64, i64, i64) =
            sqlx::query_as("SELECT status, attempts, available_at, created_at FROM postrider_event")
                .fetch_one(site.pool())
                .await
                .unwrap();
        assert_eq!((row.0, row.1), (0, 0));
        assert!(row.2 > 0 && row.3 > 0);
    } else {
        let row = site.memory_store().rows().remove(0);
        assert_eq!((row.status, row.attempts, row.parked, row.last_error), (0, 0, false, None));
    }
}

async fn an_event_with_a_delay_takes_no_hot_path(site: Site) {
    let seen = Recorder::default();
    let outbox = site.outbox().on("A", seen.delivers()).start().await.unwrap();
    let delay = ms(200);
    let id = site.write_hot(&outbox, plain("A").deliver_after(delay)).await;
    let written = tokio::time::Instant::now();
    site.until_done(&id).await;
    let delivery = seen.seen().remove(0);
    assert_eq!(delivery.source, Source::Cold);
    assert!(written.elapsed() + ms(5) >= delay, "it came after {:?}", written.elapsed());
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
    assert!(hook.taken().iter().all(|(_, fate)| *fate != Fate::Committed));
    // The connection is free again, and nothing of the transaction is left.
    let other = site.write_hot(&outbox, plain("A")).await;
    site.until_done(&other).await;
    assert_eq!(site.status(&"gone".into()).await, EventStatus::Absent);
    assert_eq!((seen.ids(), tally.now().hot_enqueued), (vec![other], 1));
}

#[tokio::test]
async fn a_transaction_of_another_database_is_refused_by_name() {
    let (memory, sqlite) = (Site::memory(1), Site::sqlite().await);
    let in_memory = memory.outbox().write_only().await.unwrap();
    let in_sqlite = sqlite.outbox().write_only().await.unwrap();
    let mut tx = memory.memory_store().begin();
    let error = in_sqlite.write(&mut tx, plain("A")).await.unwrap_err();
    assert!(matches!(error, Error::WrongDatabase { driver: "memory", outbox: "SQLite" }), "{error}");
    let mut tx = sqlite.pool().begin().await.unwrap();
    let error = in_memory.write(&mut tx, plain("A")).await.unwrap_err();
    assert!(matches!(error, Error::WrongDatabase { outbox: "memory", .. }), "{error}");
    let owned = in_memory.transaction(sqlite.pool(), async |tx| tx.write(plain("A")).await).await;
    assert!(matches!(owned, Err(Error::WrongDatabase { .. })));
    let mut blocking = rusqlite::Connection::open_in_memory().unwrap();
    let tx = blocking.transaction().unwrap();
    let error = in_memory.write_blocking(&tx, plain("A")).unwrap_err();
    assert!(matches!(error, Error::WrongDatabase { driver: "rusqlite", .. }), "{error}");
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

#[test]
fn the_public_types_can_be_shared_between_threads() {
    // S3-17
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Outbox>();
    shared::<postrider::Engine>();
    shared::<postrider::Writer>();
    shared::<postrider::OutboxBuilder>();
    shared::<Routes>();
    shared::<Settings>();
    shared::<Event>();
    shared::<postrider::EventBuilder>();
    shared::<Delivery>();
    shared::<Outcome>();
    shared::<Receipt>();
    shared::<Error>();
    shared::<MemoryStore>();
    shared::<SqliteStore>();
    shared::<postrider::metrics::Recording>();
    shared::<Backoff>();
    fn sendable<T: Send>() {}
    sendable::<postrider::Tx<postrider::sqlite::SqliteTx>>();
    fn cloned<T: Clone>() {}
    cloned::<Outbox>();
    cloned::<Event>();
}
