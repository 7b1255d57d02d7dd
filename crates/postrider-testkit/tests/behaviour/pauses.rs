//! What an operator pauses waits, and nothing else does.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use postrider::{
    Backoff, BatchOrder, BoxFuture, Delivery, Interceptor, Outbox, OutboxBuilder, Outcome, Sink, SinkTraits,
    handler,
    interceptor::InterceptorError,
    named,
    store::{EventStatus, Subject},
};
use tokio::time::Instant;

use crate::parts::{Doors, Gate, Recorder, Site, eventually, keyed, ms, on_every_store, pass, plain, secs};

on_every_store![
    what_is_paused_waits_without_an_attempt_and_comes_in_order_when_it_is_resumed,
    a_paused_key_waits_and_others_go_on,
    a_paused_sink_waits_and_others_go_on,
    a_paused_source_sends_nothing_and_goes_on_where_it_was,
    a_pause_outlives_a_restart,
];

/// An event of a type and a key, with a number as its payload.
fn of(event_type: &str, key: &str, number: usize) -> postrider::EventBuilder {
    postrider::Event::json_text(event_type, number.to_string()).key(key)
}

/// An outbox whose engine looks often.
fn quick(site: &Site) -> OutboxBuilder {
    site.outbox().poll(ms(5), ms(50))
}

async fn what_is_paused_waits_without_an_attempt_and_comes_in_order_when_it_is_resumed(site: Site) {
    let seen = Recorder::default();
    let outbox = quick(&site).on("A", seen.delivers()).on("B", seen.delivers()).start().await.unwrap();
    let paused = Subject::event_type("A*");
    assert!(outbox.pause(&paused, "a test").await.unwrap().new);
    let ids =
        site.write_all(&outbox, [of("B", "k", 0), of("A", "k", 1), of("B", "k", 2), of("A", "k", 3)]).await;
    site.write_all(&outbox, (10..20).map(|n| of("B", "other", n))).await;
    seen.reaches(11).await;
    pass(ms(200)).await;
    assert_eq!(seen.numbers_of("k"), [0], "what stands behind a paused event of its key waits too");
    assert_eq!(seen.numbers_of("other"), (10..20).collect::<Vec<_>>());
    assert_eq!(site.status(&ids[1]).await, EventStatus::New);
    assert!(outbox.resume(&paused).await.unwrap().is_some());
    seen.reaches(14).await;
    assert_eq!(seen.numbers_of("k"), [0, 1, 2, 3]);
    assert!(seen.seen().iter().all(|delivery| delivery.attempt == 1));
    assert!(outbox.pauses().await.unwrap().is_empty() && outbox.resume(&paused).await.unwrap().is_none());
}

async fn a_paused_key_waits_and_others_go_on(site: Site) {
    let seen = Recorder::default();
    let outbox = quick(&site).on("Tested", seen.delivers()).start().await.unwrap();
    outbox.pause(&Subject::key("k"), "").await.unwrap();
    for n in 0..20 {
        site.write_all(&outbox, [keyed("k", n), keyed("other", n)]).await;
    }
    seen.reaches(20).await;
    pass(ms(200)).await;
    assert_eq!((seen.numbers_of("k").len(), seen.numbers_of("other").len()), (0, 20));
    outbox.resume(&Subject::key("k")).await.unwrap();
    seen.reaches(40).await;
    assert_eq!(seen.numbers_of("k"), (0..20).collect::<Vec<_>>());
}

async fn a_paused_sink_waits_and_others_go_on(site: Site) {
    let (audit, shop) = (Recorder::default(), Recorder::default());
    let to_audit = named("audit", handler(audit.delivers()));
    let outbox = quick(&site)
        .sink("A", to_audit.clone())
        .sink("B", to_audit)
        .sink("C", named("shop", handler(shop.delivers())))
        .start()
        .await
        .unwrap();
    outbox.pause(&Subject::sink("audit"), "").await.unwrap();
    outbox.pause(&Subject::sink("nobody"), "").await.unwrap();
    for n in 0..10 {
        let key = format!("key {n}");
        site.write_all(&outbox, [of("A", "a", n), of("B", "b", n), of("C", &key, n)]).await;
    }
    shop.reaches(10).await;
    pass(ms(200)).await;
    assert_eq!(audit.count(), 0);
    outbox.resume(&Subject::sink("audit")).await.unwrap();
    audit.reaches(20).await;
    assert_eq!((audit.numbers_of("a"), audit.numbers_of("b")), ((0..10).collect(), (0..10).collect()));
}

async fn a_paused_source_sends_nothing_and_goes_on_where_it_was(site: Site) {
    let (seen, gate) = (Recorder::default(), Arc::new(Gate::shut()));
    let outbox = quick(&site).on("Tested", seen.waits_at(&gate)).workers(1).start().await.unwrap();
    site.write_all(&outbox, (0..5).map(|n| keyed("k", n))).await;
    seen.reaches(1).await;
    outbox.pause(&Subject::Source, "the receiver is moved").await.unwrap();
    gate.let_through();
    site.until_all_done(1).await;
    site.write_all(&outbox, (5..10).map(|n| keyed("k", n))).await;
    site.write_hot(&outbox, plain("Tested")).await;
    pass(ms(200)).await;
    assert_eq!(seen.count(), 1, "what was under way has ended, and nothing was begun");
    outbox.drain().await.unwrap();
    outbox.resume(&Subject::Source).await.unwrap();
    seen.reaches(11).await;
    assert_eq!(
        seen.seen().iter().filter(|each| each.key().is_some()).map(crate::parts::number).collect::<Vec<_>>(),
        (0..10).collect::<Vec<_>>()
    );
}

async fn a_pause_outlives_a_restart(site: Site) {
    let seen = Recorder::default();
    let start =
        async || quick(&site).on("A", seen.delivers()).on("B", seen.delivers()).start().await.unwrap();
    let first = start().await;
    first.pause(&Subject::event_type("A"), "").await.unwrap();
    first.shutdown().await;
    let second = start().await;
    site.write_all(&second, [of("A", "a", 1), of("B", "b", 2)]).await;
    seen.reaches(1).await;
    pass(ms(200)).await;
    assert_eq!(seen.numbers(), [2]);
    second.resume(&Subject::event_type("A")).await.unwrap();
    seen.reaches(2).await;
}

#[tokio::test(start_paused = true)]
async fn every_instance_obeys_within_about_a_second_of_a_word_from_elsewhere() {
    let site = Site::memory(8);
    let seen = Recorder::default();
    let (one, other) = (
        quick(&site).on("Tested", seen.delivers()).instance("one").start().await.unwrap(),
        quick(&site).on("Tested", seen.delivers()).instance("other").start().await.unwrap(),
    );
    let operator = site.outbox().write_only().await.unwrap();
    eventually("both have lanes", async || {
        site.write_all(&one, (0..20).map(|n| keyed(&format!("key {n}"), n))).await;
        let lanes = |outbox: &Outbox| outbox.engine().is_some();
        lanes(&one) && lanes(&other) && site.memory_store().leases().len() == 8
    })
    .await;
    operator.pause(&Subject::event_type("Tested"), "").await.unwrap();
    pass(ms(1100)).await;
    let before = seen.count();
    site.write_all(&other, (0..200).map(|n| keyed(&format!("key {n}"), n))).await;
    pass(secs(30)).await;
    assert_eq!(seen.count(), before);
    operator.resume(&Subject::event_type("Tested")).await.unwrap();
    pass(ms(1500)).await;
    assert_eq!(seen.count(), before + 200);
    assert_eq!(site.store.stats().await.unwrap().pending, 0);
    drop((one, other));
}

#[tokio::test(start_paused = true)]
async fn one_type_of_a_route_waits_and_the_others_of_the_route_go_on() {
    let site = Site::memory(1);
    let seen = Recorder::default();
    let outbox = quick(&site).otherwise(seen.delivers()).start().await.unwrap();
    outbox.pause(&Subject::event_type("*.v1"), "").await.unwrap();
    let types = ["order.v1", "order.v2", "refund.v1", "refund.v2"];
    for (n, event_type) in types.into_iter().enumerate() {
        site.write(&outbox, of(event_type, event_type, n)).await;
    }
    seen.reaches(2).await;
    pass(secs(5)).await;
    assert_eq!(seen.numbers(), [1, 3]);
    outbox.resume(&Subject::event_type("*.v1")).await.unwrap();
    seen.reaches(4).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_in_memory_when_a_pause_comes_is_left_to_the_table() {
    let site = Site::memory(1);
    let (seen, gate) = (Recorder::default(), Arc::new(Gate::shut()));
    let builder = quick(&site).on("A", seen.waits_at(&gate)).on("B", seen.waits_at(&gate)).workers(2);
    let outbox = builder.start().await.unwrap();
    // One of each is under way; behind them stand keys and followers of both types.
    for n in 0..50 {
        let key = format!("key {}", n % 5);
        let (first, second) = if n % 2 == 0 { ("A", "B") } else { ("B", "A") };
        site.write_all(&outbox, [of(first, &key, 2 * n), of(second, &key, 2 * n + 1)]).await;
    }
    seen.reaches(2).await;
    outbox.pause(&Subject::event_type("A"), "").await.unwrap();
    gate.let_through();
    outbox.drain().await.unwrap();
    let of_a = |delivery: &&Delivery| delivery.event_type() == "A";
    let begun = seen.seen().iter().take(2).filter(of_a).count();
    assert_eq!(seen.seen().iter().filter(of_a).count(), begun, "nothing of it was begun");
    outbox.resume(&Subject::event_type("A")).await.unwrap();
    seen.reaches(100).await;
    for key in 0..5 {
        let numbers = seen.numbers_of(&format!("key {key}"));
        assert!(numbers.is_sorted() && numbers.len() == 20, "{numbers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_backlog_of_what_is_paused_is_met_once_and_takes_no_room_from_others() {
    let site = Site::memory(1);
    let (doors, seen) = (Doors::before(site.store.clone()), Recorder::default());
    let writer = site.outbox().write_only().await.unwrap();
    writer.pause(&Subject::event_type("A"), "").await.unwrap();
    site.write_all_untold(&writer, (0..20_000).map(|n| of("A", &format!("key {n}"), n))).await;
    let builder = quick(&site).shared_store(doors.clone()).on("A", seen.delivers()).on("B", seen.delivers());
    let outbox = builder.cold_queue(100).claim_batch(50).start().await.unwrap();
    eventually("all were met", async || doors.asked.load(SeqCst) >= 20_000).await;
    let began = Instant::now();
    for n in 0..1000 {
        site.write(&outbox, of("B", &format!("other {n}"), n)).await;
    }
    seen.reaches(1000).await;
    assert!(began.elapsed() < secs(1), "{:?}", began.elapsed());
    pass(secs(60)).await;
    let asked = doors.asked.load(SeqCst);
    assert!(asked < 20_000 + 1000 + 2000, "{asked} rows were looked at");
    assert_eq!(seen.count(), 1000);
    outbox.resume(&Subject::event_type("A")).await.unwrap();
    seen.reaches(21_000).await;
    assert!(doors.asked.load(SeqCst) < asked + 22_000, "each was met once more");
    outbox.drain().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_event_that_is_paused_waits_with_the_attempts_that_it_has() {
    let site = Site::memory(1);
    let seen = Recorder::default();
    let answers = seen.answers(|delivery| match delivery.attempt {
        1 => Outcome::retry("not yet"),
        _ => Outcome::Delivered,
    });
    let builder = quick(&site).on("Tested", answers).retry(Backoff::fixed(ms(100))).max_attempts(3);
    let outbox = builder.start().await.unwrap();
    let ids = site.write_all(&outbox, [keyed("k", 0), keyed("k", 1)]).await;
    seen.reaches(1).await;
    outbox.pause(&Subject::key("k"), "").await.unwrap();
    pass(secs(120)).await;
    assert!(matches!(site.status(&ids[0]).await, EventStatus::Waiting { attempts: 1, .. }));
    assert_eq!(seen.count(), 1);
    outbox.resume(&Subject::key("k")).await.unwrap();
    // The second fails once itself.
    seen.reaches(4).await;
    assert_eq!(seen.numbers(), [0, 0, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_cannot_read_what_is_paused_sends_nothing_until_it_can() {
    let site = Site::memory(1);
    let (doors, seen) = (Doors::before(site.store.clone()), Recorder::default());
    doors.pauses.fail(true);
    let outbox =
        quick(&site).shared_store(doors.clone()).on("Tested", seen.delivers()).start().await.unwrap();
    site.write(&outbox, keyed("k", 0)).await;
    site.write_hot(&outbox, plain("Tested")).await;
    pass(secs(30)).await;
    assert_eq!(seen.count(), 0);
    doors.pauses.fail(false);
    seen.reaches(2).await;
    // What is known holds while it cannot be read.
    outbox.pause(&Subject::key("k"), "").await.unwrap();
    doors.pauses.fail(true);
    site.write_all(&outbox, [keyed("k", 1), keyed("other", 2)]).await;
    seen.reaches(3).await;
    pass(secs(30)).await;
    assert_eq!(seen.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_paused_event_is_not_handed_over_in_memory_and_an_engine_shuts_down_at_once() {
    let site = Site::memory(1);
    let seen = Recorder::default();
    let outbox = quick(&site).on("A", seen.delivers()).start().await.unwrap();
    outbox.pause(&Subject::event_type("A"), "").await.unwrap();
    for _ in 0..10 {
        site.write_hot(&outbox, plain("A")).await;
    }
    pass(secs(5)).await;
    let began = Instant::now();
    let report = outbox.shutdown().await;
    assert!(report.released && report.given_back == 0, "{report:?}");
    assert!(began.elapsed() < secs(1));
    assert_eq!((seen.count(), site.store.stats().await.unwrap().pending), (0, 10));
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_is_down_and_paused_is_not_probed_and_comes_back_when_both_are_over() {
    let site = Site::memory(1);
    let seen = Recorder::default();
    let down = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let refuses = {
        let down = down.clone();
        seen.answers(
            move |_| if down.load(SeqCst) { Outcome::unavailable("down") } else { Outcome::Delivered },
        )
    };
    let outbox = quick(&site).sink("Tested", named("shop", handler(refuses))).start().await.unwrap();
    site.write_all(&outbox, (0..10).map(|n| keyed(&format!("key {n}"), n))).await;
    seen.reaches(1).await;
    outbox.pause(&Subject::sink("shop"), "").await.unwrap();
    let asked = seen.count();
    pass(secs(120)).await;
    assert_eq!(seen.count(), asked, "it was probed");
    outbox.resume(&Subject::sink("shop")).await.unwrap();
    pass(secs(1)).await;
    down.store(false, SeqCst);
    site.until_all_done(10).await;
    assert_eq!(site.store.stats().await.unwrap().dead, 0);
}

/// Notes what it is sent, in batches.
struct Sending {
    seen: Recorder,
    batch_max: usize,
}

impl Sink for Sending {
    fn traits(&self) -> SinkTraits {
        SinkTraits { batch_max: self.batch_max, order: BatchOrder::Independent, ..SinkTraits::SINK }
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        batch.iter().for_each(|delivery| self.seen.note(delivery));
        Box::pin(std::future::ready(vec![Outcome::Delivered; batch.len()]))
    }
}

/// Waits at a gate before every delivery.
struct Waits(Arc<Gate>);

impl Interceptor for Waits {
    fn before<'a>(&'a self, _: &'a Delivery) -> BoxFuture<'a, Result<(), InterceptorError>> {
        Box::pin(async move {
            self.0.pass().await;
            Ok(())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_paused_while_an_interceptor_waits_is_not_sent() {
    for batch_max in [1, 10] {
        let site = Site::memory(4);
        let (seen, gate) = (Recorder::default(), Arc::new(Gate::shut()));
        let sink = Sending { seen: seen.clone(), batch_max };
        let outbox = site.outbox().sink_otherwise(Arc::new(sink)).interceptor(Waits(gate.clone()));
        let outbox = outbox.start().await.unwrap();
        let id = site.write(&outbox, plain("A").key("k")).await;
        gate.until_arrivals(1).await;
        outbox.pause(&Subject::key("k"), "").await.unwrap();
        gate.let_through();
        pass(secs(5)).await;
        assert_eq!(seen.count(), 0, "sent after the pause, in batches of {batch_max}");
        assert_eq!(site.status(&id).await, EventStatus::New);
        outbox.resume(&Subject::key("k")).await.unwrap();
        site.until_done(&id).await;
        assert_eq!(seen.seen().iter().map(|delivery| delivery.attempt).collect::<Vec<_>>(), [1]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_can_no_longer_read_what_is_paused_stops_sending_after_a_lease() {
    let site = Site::memory(4);
    let (doors, seen) = (Doors::before(site.store.clone()), Recorder::default());
    let outbox = site.outbox().shared_store(doors.clone()).on("A", seen.delivers()).start().await.unwrap();
    doors.pauses.fail(true);
    pass(secs(5)).await;
    site.write(&outbox, plain("A")).await;
    seen.reaches(1).await;
    pass(secs(15)).await;
    let waits = site.write(&outbox, plain("A")).await;
    pass(secs(20)).await;
    assert_eq!(seen.count(), 1);
    doors.pauses.fail(false);
    site.until_done(&waits).await;
}
