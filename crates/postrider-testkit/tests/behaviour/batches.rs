//! Batches for sinks: several events of a key where a sink keeps their order, how many at a time, and how fast.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use postrider::{
    Backoff, BatchOrder, BoxFuture, Delivery, Event, Health, OnDead, Outcome, Route, RouteSettings, Routes,
    Sink, SinkTraits, store::EventStatus,
};
use tokio::time::Instant;

use crate::parts::{Gate, Site, keyed, ms, number, numbers, on_every_store, plain, secs};

on_every_store![
    events_of_one_key_go_in_full_batches_in_order,
    no_more_events_of_a_key_go_in_a_batch_than_its_sink_takes,
    a_batch_has_no_more_than_eight_mebibytes_and_keeps_its_order,
    behind_a_failed_event_the_others_of_its_key_are_not_tried_and_come_in_order,
    a_rejected_event_that_blocks_its_key_keeps_those_behind_it,
];

/// Takes batches, and remembers them with the time of their arrival.
struct Ordered {
    traits: SinkTraits,
    answer: fn(&Delivery) -> Outcome,
    gate: Gate,
    seen: Mutex<Vec<(Instant, Vec<Delivery>)>>,
}

impl Ordered {
    fn new(answer: fn(&Delivery) -> Outcome) -> Self {
        let traits = SinkTraits { order: BatchOrder::Prefix, ..SinkTraits::SINK };
        Self { traits, answer, gate: Gate::open(), seen: Mutex::default() }
    }

    fn batches(&self) -> Vec<Vec<usize>> {
        self.seen.lock().unwrap().iter().map(|(_, batch)| numbers(batch)).collect()
    }

    fn times(&self) -> Vec<Instant> {
        self.seen.lock().unwrap().iter().map(|(at, _)| *at).collect()
    }
}

impl Sink for Ordered {
    fn traits(&self) -> SinkTraits {
        self.traits
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            self.seen.lock().unwrap().push((Instant::now(), batch.to_vec()));
            self.gate.pass().await;
            let mut stopped = Vec::new();
            let outcomes = batch.iter().map(|delivery| match (self.answer)(delivery) {
                _ if stopped.contains(&delivery.key()) => Outcome::retry("behind one that failed"),
                Outcome::Delivered => Outcome::Delivered,
                outcome => {
                    stopped.push(delivery.key());
                    outcome
                }
            });
            outcomes.collect()
        })
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(std::future::ready(Health::Up))
    }
}

async fn events_of_one_key_go_in_full_batches_in_order(site: Site) {
    // S1-28, S1-30
    let sink = Arc::new(Ordered::new(|_| Outcome::Delivered));
    let outbox = site
        .outbox()
        .sink("Tested", sink.clone())
        .claim_batch(500)
        .key_queue(250)
        .poller(false)
        .start()
        .await
        .unwrap();
    site.write_all(&outbox, (0..250).map(|n| keyed("a", n))).await;
    outbox.poll_once().await.unwrap();
    site.until_all_done(250).await;
    let sizes: Vec<usize> = sink.batches().iter().map(Vec::len).collect();
    assert_eq!(sink.batches().concat(), (0..250).collect::<Vec<_>>(), "{sizes:?}");
    assert_eq!(sizes.iter().filter(|size| **size == 100).count(), 2, "{sizes:?}");
}

async fn no_more_events_of_a_key_go_in_a_batch_than_its_sink_takes(site: Site) {
    let mut sink = Ordered::new(|_| Outcome::Delivered);
    sink.traits.key_max = 7;
    let sink = Arc::new(sink);
    let outbox =
        site.outbox().sink("Tested", sink.clone()).claim_batch(500).poller(false).start().await.unwrap();
    // Two keys share the batches: room that one may not take is the other's.
    site.write_all(&outbox, (0..40).map(|n| keyed(if n % 2 == 0 { "a" } else { "b" }, n))).await;
    outbox.poll_once().await.unwrap();
    site.until_all_done(40).await;
    let batches = sink.batches();
    for remainder in [0, 1] {
        let of_key = |batch: &Vec<usize>| batch.iter().filter(|n| **n % 2 == remainder).count();
        assert_eq!(batches.iter().map(of_key).max(), Some(7), "{batches:?}");
        let in_order = batches.iter().flatten().copied().filter(|n| n % 2 == remainder);
        assert!(in_order.is_sorted(), "{batches:?}");
    }
}

/// One key of large events, and large events of other keys; none comes out of order, and what did not fit comes next.
async fn a_batch_has_no_more_than_eight_mebibytes_and_keeps_its_order(site: Site) {
    let sink = Arc::new(Ordered::new(|_| Outcome::Delivered));
    let outbox = site.outbox().sink("Tested", sink.clone()).claim_batch(500).start().await.unwrap();
    let large = |n: usize| {
        let key = if n.is_multiple_of(2) { "a".to_owned() } else { format!("other {n}") };
        Event::json_text("Tested", format!("{n}{}", " ".repeat(1_000_000))).key(key)
    };
    site.write_all(&outbox, (0..40).map(large)).await;
    site.until_all_done(40).await;
    let seen = sink.seen.lock().unwrap();
    let bytes = |batch: &[Delivery]| batch.iter().map(|delivery| delivery.payload().len()).sum::<usize>();
    let sizes: Vec<usize> = seen.iter().map(|(_, batch)| bytes(batch)).collect();
    assert!(sizes.iter().all(|size| *size <= 8 * 1024 * 1024), "{sizes:?}");
    let of_key = |delivery: &&Delivery| delivery.key() == Some("a");
    let in_order = seen.iter().flat_map(|(_, batch)| batch).filter(of_key).map(number);
    assert!(in_order.is_sorted());
}

async fn behind_a_failed_event_the_others_of_its_key_are_not_tried_and_come_in_order(site: Site) {
    let fails_once = |delivery: &Delivery| match (number(delivery), delivery.attempt) {
        (3, 1) => Outcome::retry("not now"),
        _ => Outcome::Delivered,
    };
    let sink = Arc::new(Ordered::new(fails_once));
    let retry = Backoff::fixed(ms(20));
    let outbox = site.outbox().sink("Tested", sink.clone()).retry(retry).poller(true).start().await.unwrap();
    let ids = site.write_all(&outbox, (0..8).map(|n| keyed("a", n))).await;
    outbox.wake();
    site.until_all_done(8).await;
    let batches = sink.batches();
    let first_deliveries = batches.concat();
    let seen_of = |wanted: usize| first_deliveries.iter().filter(|n| **n == wanted).count();
    assert!((0..3).all(|n| seen_of(n) == 1), "{batches:?}");
    assert_eq!(seen_of(3), 2, "{batches:?}");
    // Behind it nothing counted as an attempt.
    let attempts: Vec<u32> = {
        let seen = sink.seen.lock().unwrap();
        let all = seen.iter().flat_map(|(_, batch)| batch);
        all.filter(|delivery| number(delivery) > 3).map(|delivery| delivery.attempt).collect()
    };
    assert!(attempts.iter().all(|attempt| *attempt == 1), "{attempts:?}");
    assert!(matches!(site.status(&ids[7]).await, EventStatus::Done { .. }));
}

async fn a_rejected_event_that_blocks_its_key_keeps_those_behind_it(site: Site) {
    let sink = Arc::new(Ordered::new(|delivery| match number(delivery) {
        2 => Outcome::rejected("never"),
        _ => Outcome::Delivered,
    }));
    let outbox = site.outbox().sink("Tested", sink.clone()).start().await.unwrap();
    let ids = site.write_all(&outbox, (0..5).map(|n| keyed("a", n))).await;
    outbox.wake();
    site.until_dead(1).await;
    site.until_all_done(2).await;
    outbox.discard([ids[2].clone()]).await.unwrap();
    outbox.wake();
    site.until_all_done(4).await;
    let delivered: Vec<usize> = sink.batches().concat().into_iter().filter(|n| *n > 2).collect();
    assert!(delivered.ends_with(&[3, 4]), "{delivered:?}");
}

#[tokio::test(start_paused = true)]
async fn at_most_so_many_sends_are_under_way_at_a_time() {
    // S1-29
    let site = Site::memory(8);
    let sink = Arc::new(Ordered {
        traits: SinkTraits { batch_max: 1, concurrent: Some(10), ..SinkTraits::SINK },
        gate: Gate::shut(),
        ..Ordered::new(|_| Outcome::Delivered)
    });
    let outbox = site.outbox().sink("Tested", sink.clone()).start().await.unwrap();
    site.write_all(&outbox, (0..50).map(|n| keyed(&n.to_string(), n))).await;
    outbox.wake();
    sink.gate.until_arrivals(10).await;
    sink.gate.let_through();
    site.until_all_done(50).await;
    assert_eq!(sink.gate.most_waiting(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_rate_and_a_pace_are_kept() {
    for (spacing, pace, gap) in [(ms(10), None, ms(100)), (Duration::ZERO, Some(secs(2)), secs(2))] {
        let site = Site::memory(1);
        let traits = SinkTraits { batch_max: 10, spacing, ..SinkTraits::SINK };
        let sink = Arc::new(Ordered { traits, ..Ordered::new(|_| Outcome::Delivered) });
        let settings = RouteSettings { pace, ..RouteSettings::default() };
        let routes = Routes::new().route(Route::new("*", sink.clone()).settings(settings));
        let outbox = site.outbox().routes(routes).start().await.unwrap();
        site.write_all(&outbox, (0..50).map(|_| plain("Tested"))).await;
        outbox.wake();
        site.until_all_done(50).await;
        let times = sink.times();
        assert!(times.len() >= 5, "{times:?}");
        for pair in times.windows(2) {
            assert!(pair[1] - pair[0] >= gap, "{times:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_said_for_a_route_holds_for_it_alone() {
    // S4-43
    let site = Site::memory(1);
    let sink: Arc<dyn Sink> =
        Arc::new(Ordered { traits: SinkTraits::HANDLER, ..Ordered::new(|_| Outcome::retry("no")) });
    let settings = RouteSettings {
        max_attempts: Some(2),
        retry: Some(Arc::new(Backoff::fixed(ms(10)))),
        on_dead: Some(OnDead::Skip),
        ..RouteSettings::default()
    };
    let routes = Routes::new()
        .route(Route::new("Order*", sink.clone()).settings(settings))
        .route(Route::new("*", sink));
    let retry = Backoff::fixed(secs(3600));
    let outbox = site.outbox().routes(routes).retry(retry).start().await.unwrap();
    let ids = site.write_all(&outbox, [plain("OrderPlaced").key("a"), plain("Other").key("b")]).await;
    outbox.wake();
    site.until_dead(1).await;
    assert!(matches!(site.status(&ids[0]).await, EventStatus::Dead { attempts: 2, .. }));
    assert_eq!(outbox.why("a").await.unwrap(), None);
    let EventStatus::Waiting { attempts, .. } = site.status(&ids[1]).await else { panic!("it waits") };
    assert_eq!(attempts, 1);
}
