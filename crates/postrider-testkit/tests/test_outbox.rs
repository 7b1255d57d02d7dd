//! The outbox for users' own tests: it remembers what was committed, and its assertions say what was written instead.

#![allow(clippy::unwrap_used, reason = "clippy takes functions beside the tests for no tests")]

use std::{
    panic::{self, AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use postrider::{
    Backoff, Delivery, Error, Event, EventType, Outbox, OwnedTx, Payload, Tx, WriteHook, publish,
    sqlite::SqliteStore,
};
use postrider_testkit::outbox::{Recorder, TestOutbox};
use serde::Serialize;

#[derive(Serialize)]
struct Order {
    id: u32,
    total: u32,
}

#[derive(EventType)]
enum Happened {
    OrderPlaced,
}

/// Business code as it may be written for any database.
#[publish(event_type = Happened::OrderPlaced, aggregate = ("Order", |order| order.id), tenant = |_| "acme")]
async fn place_order(tx: &mut Tx<impl OwnedTx>, id: u32, total: u32) -> Result<Order, Error> {
    let _ = tx.conn();
    Ok(Order { id, total })
}

async fn place(outbox: &TestOutbox, id: u32, total: u32) {
    outbox.transaction(async |tx| place_order(tx, id, total).await).await.unwrap();
}

/// What an assertion says when it fails.
fn complaint(assertion: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(assertion)).unwrap_err();
    panic.downcast_ref::<String>().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn what_was_committed_is_remembered_whether_it_was_delivered_or_not() {
    let outbox = TestOutbox::new().await.unwrap();
    place(&outbox, 1, 12).await;
    outbox.drain().await.unwrap();
    place(&outbox, 2, 12).await;
    let keys: Vec<_> = outbox.written().iter().map(|event| event.key().unwrap().to_owned()).collect();
    assert_eq!(keys, ["Order:1", "Order:2"]);
    outbox.assert_written(Happened::OrderPlaced).times(2);
    outbox.assert_written("OrderPlaced").with_key("Order:1").once();
    outbox.assert_not_written("OrderShipped");
}

#[tokio::test(start_paused = true)]
async fn what_was_not_committed_was_not_written() {
    let outbox = TestOutbox::new().await.unwrap();
    let mut open = outbox.begin().await.unwrap();
    place_order(&mut open, 1, 12).await.unwrap();
    outbox.assert_nothing_written(); // not yet
    open.rollback().await.unwrap();

    drop({
        let mut dropped = outbox.begin().await.unwrap();
        place_order(&mut dropped, 2, 12).await.unwrap();
        dropped
    });
    let failed: Result<(), Error> = outbox
        .transaction(async |tx| {
            place_order(tx, 3, 12).await?;
            tx.write(Event::json_text("", "{}")).await?;
            Ok(())
        })
        .await;
    assert!(failed.is_err());
    outbox.assert_nothing_written();
    assert!(outbox.delivered().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_transaction_of_the_callers_counts_once_the_table_has_it_whatever_its_receipt_was_told() {
    let outbox = TestOutbox::new().await.unwrap();
    for (id, commits) in [("e1", true), ("e2", false)] {
        let mut tx = outbox.store().begin();
        let receipt = outbox.outbox().write(&mut tx, Event::json_text("Told", "{}").id(id)).await.unwrap();
        drop(receipt);
        outbox.assert_not_written(id);
        if commits {
            tx.commit().await.unwrap();
        }
    }
    outbox.assert_written("Told").once().with(|event| event.id().as_str() == "e1");
}

#[tokio::test(start_paused = true)]
async fn an_id_that_was_refused_or_rolled_back_before_is_remembered_as_it_was_committed() {
    let outbox = TestOutbox::new().await.unwrap();
    let event = |payload: &str| Event::json_text("Told", payload.to_owned()).id("same");
    let mut tx = outbox.begin().await.unwrap();
    tx.write(event("1")).await.unwrap();
    tx.rollback().await.unwrap();
    outbox.transaction(async |tx| tx.write(event("2")).await).await.unwrap();
    assert!(outbox.transaction(async |tx| tx.write(event("3")).await).await.is_err());
    assert!(!outbox.transaction(async |tx| tx.write_if_absent(event("4")).await).await.unwrap());
    outbox.assert_written("Told").once().with_json(2);
}

#[tokio::test(start_paused = true)]
async fn events_are_remembered_as_the_write_hooks_left_them() {
    struct Stamp;
    impl WriteHook for Stamp {
        fn before_write(&self, event: Event) -> Result<Option<Event>, Error> {
            if event.event_type() == "Secret" {
                return Ok(None);
            }
            Ok(Some(event.to_builder().header("stamp", "seen").build()?))
        }
    }
    let builder = Outbox::builder().otherwise(async |_: Delivery| ()).write_hook(Stamp);
    let outbox = TestOutbox::with(builder).await.unwrap();
    let events = ["Told", "Secret"].map(|event_type| Event::json_text(event_type, "{}"));
    outbox.transaction(async |tx| tx.write_all(events).await).await.unwrap();
    outbox.assert_written("Told").once().with_header("stamp", "seen").without_key();
    outbox.assert_not_written("Secret");
}

#[tokio::test(start_paused = true)]
async fn delivered_is_what_a_handler_took_and_time_is_the_tests_own() {
    let handler = async |order: Delivery| if order.attempt < 3 { Err("not yet") } else { Ok(()) };
    let retry = Backoff::fixed(Duration::from_secs(3600));
    let builder = Outbox::builder().on(Happened::OrderPlaced, handler).retry(retry);
    let outbox = TestOutbox::with(builder).await.unwrap();
    let (real, started) = (std::time::Instant::now(), tokio::time::Instant::now());
    place(&outbox, 1, 12).await;
    for attempt in 1..=3 {
        assert!(outbox.delivered().is_empty(), "attempt {attempt}");
        outbox.drain().await.unwrap();
        tokio::time::advance(Duration::from_secs(3601)).await;
    }
    let attempts: Vec<_> = outbox.delivered().iter().map(|delivery| delivery.attempt).collect();
    assert_eq!(attempts, [3]);
    assert!(started.elapsed() > Duration::from_secs(7200) && real.elapsed() < Duration::from_secs(60));
    // It left the table long ago, and is remembered.
    outbox.assert_written("OrderPlaced").once();
}

#[tokio::test(start_paused = true)]
async fn a_failure_says_what_was_wanted_and_lists_what_was_written() {
    let outbox = TestOutbox::new().await.unwrap();
    assert_eq!(
        complaint(|| drop(outbox.assert_written("OrderPlaced"))),
        "no OrderPlaced was written\nnothing was written"
    );
    place(&outbox, 42, 13).await;
    let bytes = Event::bytes("Photo", "image/png", [0, 255]).header("camera", "old");
    outbox.transaction(async |tx| tx.write(bytes).await).await.unwrap();
    let list = "2 events were written:\n  \
                OrderPlaced, key \"Order:42\", tenant \"acme\", 20 bytes: {\"id\":42,\"total\":13}\n  \
                Photo, no key, header camera: \"old\", 2 bytes: 00ff";
    let placed = || outbox.assert_written("OrderPlaced");
    for (said, wanted) in [
        (complaint(|| drop(placed().times(2))), "OrderPlaced was written once, not 2 times"),
        (complaint(|| drop(placed().times(0))), "OrderPlaced was written once, not 0 times"),
        (
            complaint(|| drop(placed().with_key("Order:4"))),
            r#"no OrderPlaced with the key "Order:4" was written"#,
        ),
        (
            complaint(|| drop(placed().with_tenant("acme").with_json(r#"{"total":12}"#))),
            r#"no OrderPlaced with the tenant "acme" and a payload with {"total":12} ($.total is 13, not 12) was written"#,
        ),
        (
            complaint(|| drop(outbox.assert_written("Photo").with_json("{}"))),
            "no Photo with a payload with {} (the payload is not JSON: it is not text) was written",
        ),
        (
            complaint(|| drop(placed().with(|_| false))),
            "no OrderPlaced with what the closure wants was written",
        ),
        (complaint(|| outbox.assert_not_written("Photo")), "Photo was written"),
        (complaint(|| outbox.assert_nothing_written()), "something was written"),
    ] {
        assert_eq!(said, format!("{wanted}\n{list}"));
    }
    assert_eq!(
        complaint(|| drop(placed().with_json("{total: 12}"))),
        "the expectation is not JSON ('t' stands where '\"' should): {total: 12}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_points_at_the_line_of_the_test() {
    let outbox = TestOutbox::new().await.unwrap();
    place(&outbox, 1, 12).await;
    let places = Arc::new(Mutex::new(Vec::new()));
    let (seen, here, others) = (places.clone(), thread::current().id(), panic::take_hook());
    panic::set_hook(Box::new(move |panic| match panic.location() {
        Some(place) if thread::current().id() == here => seen.lock().unwrap().push(place.file().to_owned()),
        _ => others(panic),
    }));
    complaint(|| drop(outbox.assert_written("Nothing")));
    complaint(|| drop(outbox.assert_written("OrderPlaced").times(3)));
    complaint(|| drop(outbox.assert_written("OrderPlaced").with_key("x")));
    complaint(|| drop(outbox.assert_written("OrderPlaced").with_json("1")));
    complaint(|| outbox.assert_nothing_written());
    let _ = panic::take_hook();
    assert_eq!(*places.lock().unwrap(), [file!(); 5]);
}

#[tokio::test(start_paused = true)]
async fn a_payload_is_compared_whole_where_that_is_asked() {
    let outbox = TestOutbox::new().await.unwrap();
    let text = Event::json_text("Text", "").payload(Payload::Text("hello".into()), "text/plain");
    outbox.transaction(async |tx| tx.write(text).await).await.unwrap();
    outbox.assert_written("Text").with_payload("hello");
    let said = complaint(|| drop(outbox.assert_written("Text").with_payload("hell")));
    assert!(said.starts_with("no Text with the payload hell was written"), "{said}");
}

#[tokio::test]
async fn a_recorder_remembers_what_an_outbox_in_a_database_does() {
    let store = SqliteStore::connect("sqlite::memory:").await.unwrap();
    let recorder = Recorder::new();
    let builder = Outbox::builder().store(store.clone()).otherwise(async |_: Delivery| ());
    let outbox = recorder.attach(builder).start().await.unwrap();
    outbox.transaction(&store, async |tx| place_order(tx, 1, 12).await).await.unwrap();
    recorder.assert_written("OrderPlaced").once().with_json(r#"{"total":12}"#);

    // The caller's own transaction, and a receipt that was dropped: delivery proves that it was committed.
    let mut tx = store.pool().begin().await.unwrap();
    drop(outbox.write(&mut tx, Event::json_text("Told", "{}")).await.unwrap());
    tx.commit().await.unwrap();
    outbox.drain().await.unwrap();
    recorder.assert_written("Told").once();
    assert_eq!(recorder.delivered().len(), 2);
}
