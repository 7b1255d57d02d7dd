//! What is measured.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use postrider::{
    Backoff, BoxFuture, Delivery, Event, Metrics, Outcome, Sink, SinkTraits, interceptor, named,
};
use tracing::Level;

use crate::parts::{
    Doors, Gate, Log, Recorder, Site, Tally, eventually, keyed, ms, number, on_every_store, pass, plain, secs,
};

on_every_store![every_counter_grows_by_exactly_what_happened, the_library_runs_without_metrics];

async fn every_counter_grows_by_exactly_what_happened(site: Site) {
    // S3-16.1a: a scripted run.
    let (seen, tally, gate) = (Recorder::default(), Tally::default(), Arc::new(Gate::shut()));
    let slow = Recorder::default();
    let outbox = site
        .outbox()
        .on(
            "Tested",
            seen.answers(|delivery: &Delivery| match (number(delivery), delivery.attempt) {
                (1, 1 | 2) => Outcome::retry("twice"),
                (2, _) => Outcome::retry("always"),
                (3, _) => Outcome::rejected("never"),
                _ => Outcome::Delivered,
            }),
        )
        .on("Slow", slow.waits_at(&gate))
        .hot_queue(1)
        .max_attempts(3)
        .retry(Backoff::fixed(ms(5)))
        .poller(false)
        .metrics(tally.metrics())
        .start()
        .await
        .unwrap();
    // One hot event is taken and fills the queue, two more are dropped.
    for _ in 0..3 {
        site.write_hot(&outbox, plain("Slow")).await;
    }
    gate.let_through();
    site.until_all_done(1).await;
    // Read: two that were dropped, one that is delivered, one that fails twice, one for good, one rejected, one unroutable.
    site.write_all(&outbox, (0..4).map(|n| postrider::Event::json_text("Tested", n.to_string()))).await;
    site.write(&outbox, plain("Nobody")).await;
    eventually("the script has run", async || {
        outbox.poll_once().await.unwrap();
        let stats = site.store.stats().await.unwrap();
        (stats.done, stats.dead, stats.pending) == (5, 3, 0)
    })
    .await;
    eventually("outcomes are counted", async || tally.now().settled == 12).await;
    let now = tally.now();
    assert_eq!((now.hot_enqueued, now.hot_dropped), (1, 2));
    // Seven rows, and two retries each of the two that fail.
    assert_eq!(now.cold_enqueued, 7 + 4);
    assert_eq!((now.delivered, now.failed, now.dead), (5, 4, 3));
    assert_eq!((now.written, now.deferred, now.fenced), (8, 0, 0));
    assert_eq!((now.hot_depth, now.cold_depth), (0, 0));
}

async fn the_library_runs_without_metrics(site: Site) {
    // S3-16.1c
    let seen = Recorder::default();
    let outbox = site.outbox().on("A", seen.delivers()).start().await.unwrap();
    let id = site.write_hot(&outbox, plain("A")).await;
    site.until_done(&id).await;
}

#[tokio::test(start_paused = true)]
async fn gauges_show_the_depth_of_both_queues_and_the_oldest_lag() {
    // S3-16.1b
    let site = Site::memory(1);
    let (seen, gate, tally) = (Recorder::default(), Arc::new(Gate::shut()), Tally::default());
    let outbox = site
        .outbox()
        .on("A", seen.waits_at(&gate))
        .poller(false)
        .metrics(tally.metrics())
        .start()
        .await
        .unwrap();
    site.write(&outbox, plain("A")).await;
    crate::parts::pass(secs(7)).await;
    site.write_all(&outbox, (0..4).map(|_| plain("A"))).await;
    crate::parts::pass(secs(2)).await;
    for _ in 0..3 {
        site.write_hot(&outbox, plain("A")).await;
    }
    outbox.poll_once().await.unwrap();
    let now = tally.now();
    assert_eq!((now.hot_depth, now.cold_depth, now.oldest_lag_ms), (3, 5, 9000));
    let stats = outbox.stats().await.unwrap();
    assert_eq!((stats.pending, stats.oldest), (8, Some(secs(9))));
    gate.let_through();
    site.until_all_done(8).await;
    outbox.poll_once().await.unwrap();
    let now = tally.now();
    assert_eq!((now.hot_depth, now.cold_depth, now.oldest_lag_ms), (0, 0, 0));
}

/// Remembers attempts that failed: the sinks, the outcome, and whether they count.
#[derive(Default)]
struct FailedAttempts(Mutex<Vec<(String, &'static str, bool)>>);

impl Metrics for FailedAttempts {
    fn attempt_failed(&self, sinks: &[String], outcome: &'static str, counted: bool) {
        self.0.lock().unwrap().push((sinks.join(","), outcome, counted));
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_that_an_interceptor_refuses_or_that_fail_with_their_whole_batch_are_counted_too() {
    let (site, attempts) = (Site::memory(1), Arc::new(FailedAttempts::default()));
    let sink = Arc::new(FailsOnce::default());
    let refuses_once =
        interceptor::before(async |delivery: Delivery| match (delivery.key(), delivery.attempt) {
            (Some("refused"), 1) => Err("not today".into()),
            _ => Ok(()),
        });
    let outbox = site
        .outbox()
        .interceptor(refuses_once)
        .sink("Tested", named("shop", sink.clone()))
        .metrics(attempts.clone())
        .start()
        .await
        .unwrap();
    site.write_all(&outbox, ["refused", "a", "b", "c"].map(|key| keyed(key, 0))).await;
    site.until_all_done(4).await;
    let mut failed = attempts.0.lock().unwrap().clone();
    failed.sort_unstable();
    let (whole, alone) = (("shop".to_owned(), "batch_failed", false), ("shop".to_owned(), "retry", true));
    assert_eq!(failed, [vec![whole; sink.failed.load(SeqCst)], vec![alone]].concat());
}

/// A sink with a destination for each tenant, all of which fail.
struct Failing;

impl Sink for Failing {
    fn traits(&self) -> SinkTraits {
        SinkTraits { batch_max: 1, ..SinkTraits::SINK }
    }

    fn destination(&self, event: &Event) -> Option<String> {
        event.tenant_id().map(str::to_owned)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(std::future::ready(vec![Outcome::retry("500"); batch.len()]))
    }
}

#[tokio::test(start_paused = true)]
async fn destinations_where_events_keep_failing_are_warned_of_once_a_minute() {
    let (log, _guard) = Log::listen();
    let (site, attempts) = (Site::memory(1), Arc::new(FailedAttempts::default()));
    let outbox = site.outbox().sink("Tested", named("shop", Arc::new(Failing))).metrics(attempts.clone());
    let outbox = outbox.start().await.unwrap();
    for tenant in ["a", "b"] {
        let events = (0..20).map(|n| keyed(&format!("{tenant}{n}"), n).tenant(tenant));
        site.write_all(&outbox, events).await;
    }
    pass(secs(50)).await;
    let warned = || log.count(Level::WARN, "events keep failing at this destination");
    assert_eq!(warned(), 0, "nothing has failed for a minute");
    pass(secs(550)).await;
    assert!((2..=20).contains(&warned()), "warned {} times of two destinations in ten minutes", warned());
    let failed = attempts.0.lock().unwrap().clone();
    assert_eq!(log.count(Level::DEBUG, "attempt failed"), failed.len(), "each is logged");
    assert!(
        failed.len() > 20 && failed.iter().all(|failed| *failed == ("shop".to_owned(), "retry", false)),
        "{failed:?}"
    );
}

/// A sink whose first batch fails as a whole.
#[derive(Default)]
struct FailsOnce {
    /// How many events that batch had.
    failed: AtomicUsize,
}

impl Sink for FailsOnce {
    fn traits(&self) -> SinkTraits {
        SinkTraits { batch_max: 100, ..SinkTraits::SINK }
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        let fails = batch.len() > 1 && self.failed.compare_exchange(0, batch.len(), SeqCst, SeqCst).is_ok();
        let outcome = if fails { Outcome::batch_failed("500") } else { Outcome::Delivered };
        Box::pin(std::future::ready(vec![outcome; batch.len()]))
    }
}

/// Remembers which of its methods were called.
#[derive(Default)]
struct Named(Mutex<Vec<&'static str>>);

impl Named {
    fn note(&self, name: &'static str) {
        self.0.lock().unwrap().push(name);
    }

    fn has(&self, name: &str) -> bool {
        self.0.lock().unwrap().contains(&name)
    }
}

impl Metrics for Named {
    fn written(&self, _: u64) {
        self.note("writer");
    }

    fn delivered(&self) {
        self.note("dispatcher");
    }

    fn claimed(&self, _: u64, _: Duration) {
        self.note("poller");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_of_ones_own_are_told_by_writer_engine_and_poller() {
    // S3-16.1c
    let site = Site::memory(1);
    let (seen, named) = (Recorder::default(), Arc::new(Named::default()));
    let outbox = site.outbox().on("A", seen.delivers()).metrics(named.clone()).start().await.unwrap();
    let id = site.write(&outbox, plain("A")).await;
    site.until_done(&id).await;
    assert!(named.has("writer") && named.has("dispatcher") && named.has("poller"));
}

#[tokio::test(start_paused = true)]
async fn delivered_events_are_purged_when_their_retention_ends() {
    let site = Site::memory(1);
    let (seen, tally) = (Recorder::default(), Tally::default());
    let outbox = site
        .outbox()
        .on("A", seen.delivers())
        .retention(secs(3600))
        .metrics(tally.metrics())
        .start()
        .await
        .unwrap();
    site.write_all(&outbox, (0..250).map(|_| plain("A"))).await;
    site.until_all_done(250).await;
    crate::parts::pass(secs(3590)).await;
    assert_eq!((tally.now().purged, site.store.stats().await.unwrap().done), (0, 250));
    crate::parts::pass(secs(30)).await;
    assert_eq!((tally.now().purged, site.store.stats().await.unwrap().done), (250, 0));
}

/// Notes what it is told of breakers, and panics where it is told to.
#[derive(Default)]
struct Fragile {
    told: Mutex<Vec<(Vec<String>, bool)>>,
    /// It panics whenever it is told of a breaker.
    at_breakers: bool,
    /// It panics whenever it is told of lanes, of deliveries, claims and settles.
    at_all_else: AtomicBool,
}

impl Fragile {
    fn told(&self) -> Vec<bool> {
        self.told.lock().unwrap().iter().map(|(_, open)| *open).collect()
    }
}

impl Metrics for Fragile {
    fn delivered(&self) {
        assert!(!self.at_all_else.load(SeqCst), "delivered");
    }

    fn lanes_owned(&self, _: u64) {
        assert!(!self.at_all_else.load(SeqCst), "lanes");
    }

    fn claimed(&self, _: u64, _: Duration) {
        assert!(!self.at_all_else.load(SeqCst), "claimed");
    }

    fn settled(&self, _: u64, _: Duration) {
        assert!(!self.at_all_else.load(SeqCst), "settled");
    }

    fn breaker(&self, sinks: &[String], open: bool) {
        self.told.lock().unwrap().push((sinks.to_vec(), open));
        assert!(!self.at_breakers, "a breaker");
    }
}

/// A handler that is unavailable until it is said to be back.
fn down_until(
    back: &Arc<AtomicBool>,
) -> impl Fn(Delivery) -> std::future::Ready<Outcome> + Send + Sync + 'static {
    let back = back.clone();
    move |_| {
        let up = back.load(SeqCst);
        std::future::ready(if up { Outcome::Delivered } else { Outcome::unavailable("down") })
    }
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_was_open_when_a_panic_made_the_engine_forget_is_told_to_have_closed() {
    let (site, metrics, back) = (Site::memory(1), Arc::new(Fragile::default()), Arc::default());
    let doors = Doors::before(site.store.clone());
    let (seen, builder) = (Recorder::default(), site.outbox().on("Down", down_until(&back)));
    let builder = builder.shared_store(doors.clone());
    let outbox = builder.on("Up", seen.delivers()).metrics(metrics.clone()).start().await.unwrap();
    site.write(&outbox, plain("Down")).await;
    eventually("it is told to be down", async || metrics.told() == [true]).await;
    doors.settle.panic_once();
    site.write(&outbox, plain("Up")).await;
    // What was forgotten comes again, and is refused again.
    eventually("it is told to be down again", async || metrics.told().len() >= 3).await;
    assert_eq!(metrics.told(), [true, false, true]);
    back.store(true, SeqCst);
    site.until_all_done(2).await;
    eventually("it is told to be back", async || metrics.told() == [true, false, true, false]).await;
}

#[tokio::test(start_paused = true)]
async fn metrics_that_panic_at_every_breaker_stop_nothing() {
    let metrics = Arc::new(Fragile { at_breakers: true, ..Fragile::default() });
    let (site, back) = (Site::memory(1), Arc::default());
    let builder = site.outbox().on("Down", down_until(&back)).metrics(metrics.clone());
    let outbox = builder.start().await.unwrap();
    site.write_all(&outbox, (0..20).map(|n| plain("Down").key(format!("k{}", n % 4)))).await;
    eventually("it is told to be down", async || metrics.told() == [true]).await;
    crate::parts::pass(secs(5)).await;
    back.store(true, SeqCst);
    site.until_all_done(20).await;
    eventually("it is told to be back", async || metrics.told() == [true, false]).await;
    assert_eq!(outbox.stats().await.unwrap().dead, 0);
}

#[tokio::test(start_paused = true)]
async fn metrics_that_panic_cost_no_lease_and_repeat_no_delivery() {
    let (site, metrics, seen) = (Site::memory(4), Arc::new(Fragile::default()), Recorder::default());
    let outbox = site.outbox().on("A", seen.delivers()).metrics(metrics.clone()).start().await.unwrap();
    metrics.at_all_else.store(true, SeqCst);
    let other = site.outbox().on("A", seen.delivers()).start().await.unwrap();
    crate::parts::pass(secs(60)).await;
    for _ in 0..5 {
        let id = site.write(&outbox, plain("A")).await;
        site.until_done(&id).await;
    }
    assert_eq!(seen.count(), 5);
    assert!(outbox.health().is_ready(), "{:?}", outbox.health());
    assert!(other.shutdown().await.released && outbox.shutdown().await.released, "a lane was lost");
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_down_is_told_by_the_name_of_each_of_its_sinks() {
    let (site, metrics, back) = (Site::memory(1), Arc::new(Fragile::default()), Arc::default());
    let sink = |name: &str| postrider::sink::named(name, postrider::handler(down_until(&back)));
    let builder = site.outbox().on_list("A", vec![sink("orders"), sink("audit")]).on("B", down_until(&back));
    let outbox = builder.metrics(metrics.clone()).start().await.unwrap();
    let told = |count: usize| {
        let (metrics, mut told) = (metrics.clone(), Vec::new());
        async move {
            eventually("it is told", async || {
                told = metrics.told.lock().unwrap().clone();
                told.len() >= count
            })
            .await;
            told
        }
    };
    site.write(&outbox, plain("A")).await;
    let names = vec!["orders".to_owned(), "audit".to_owned()];
    assert_eq!(told(1).await, [(names.clone(), true)]);
    site.write(&outbox, plain("B")).await;
    assert_eq!(told(2).await[1..], [(Vec::new(), true)]);
    back.store(true, SeqCst);
    let mut closed = told(4).await.split_off(2);
    closed.sort();
    assert_eq!(closed, [(Vec::new(), false), (names, false)]);
}
