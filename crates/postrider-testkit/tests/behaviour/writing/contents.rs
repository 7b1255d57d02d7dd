//! What is delivered is what was written, however it came.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use postrider::{
    Backoff, Delivery, Error, Event, Outbox, Outcome, Receipt, Routes, Settings, Source, Timestamp,
    TraceContext, memory::MemoryStore, sqlite::SqliteStore, store::EventStatus, trace,
};
use serde::{Serialize, Serializer};

use crate::parts::{Recorder, Site, ms, on_every_store, plain};

on_every_store![
    the_payload_is_serialised_once,
    hot_and_cold_deliver_the_same_event_field_by_field,
    the_current_trace_goes_along_and_is_restored_around_delivery,
    a_new_event_is_new_and_untried,
    an_event_with_a_delay_takes_no_hot_path,
];

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
