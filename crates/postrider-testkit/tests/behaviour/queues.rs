//! The two queues: how they are drained, and what happens when they are full.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use postrider::{
    Backoff, BoxFuture, Delivery, Event, EventId, Metrics, Outbox, OwnedTx, Result, Source, Target, TxSource,
    memory::{MemoryStore, MemoryTx},
    store::EventStatus,
};
use postrider_core::tx::{OnDuplicate, Placed};
use tracing::Level;

use crate::parts::{
    Doors, Gate, Log, Recorder, Site, Tally, eventually, keyed, ms, on_every_store, plain, secs, settle_down,
};

on_every_store![
    a_full_hot_queue_costs_a_warning_and_nothing_else,
    a_full_cold_queue_leaves_the_rest_in_the_table_for_later_claims,
    no_more_handlers_run_at_once_than_there_are_workers,
    an_event_without_a_key_is_delivered_from_memory_without_a_read,
    a_keyed_event_of_an_owned_transaction_is_read_in_order,
];

async fn a_full_hot_queue_costs_a_warning_and_nothing_else(site: Site) {
    // S3-14.4, S3-16.2
    let (log, _guard) = Log::listen();
    let (seen, gate, tally) = (Recorder::default(), Arc::new(Gate::shut()), Tally::default());
    let outbox = site
        .outbox()
        .on("A", seen.waits_at(&gate))
        .hot_queue(1)
        .poller(false)
        .metrics(tally.metrics())
        .start()
        .await
        .unwrap();
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.push(site.write_hot(&outbox, plain("A")).await);
    }
    assert_eq!((tally.now().hot_enqueued, tally.now().hot_dropped), (1, 9));
    assert!(log.count(Level::WARN, "hot queue full") >= 1);
    for id in &ids {
        assert_eq!(site.status(id).await, EventStatus::New);
    }
    gate.let_through();
    outbox.poll_once().await.unwrap();
    site.until_all_done(10).await;
    assert_eq!(seen.count(), 10);
    let hot = seen.seen().iter().filter(|delivery| delivery.source == Source::Hot).count();
    assert_eq!(hot, 1);
}

async fn a_full_cold_queue_leaves_the_rest_in_the_table_for_later_claims(site: Site) {
    // S3-14.5
    let (seen, doors) = (Recorder::default(), Doors::before(site.store.clone()));
    let outbox = site
        .outbox()
        .shared_store(doors.clone())
        .on("A", seen.delivers())
        .cold_queue(5)
        .start()
        .await
        .unwrap();
    site.write_all(&outbox, (0..50).map(|_| plain("A"))).await;
    site.until_all_done(50).await;
    assert_eq!(seen.count(), 50);
    assert!(doors.claim.calls() >= 10, "{} claims for 50 events in a queue of 5", doors.claim.calls());
}

async fn no_more_handlers_run_at_once_than_there_are_workers(site: Site) {
    // S3-10.4
    let (seen, gate) = (Recorder::default(), Arc::new(Gate::shut()));
    let outbox = site.outbox().on("A", seen.waits_at(&gate)).start().await.unwrap();
    site.write_all(&outbox, (0..10).map(|_| plain("A"))).await;
    site.write_hot(&outbox, plain("A")).await;
    gate.until_arrivals(4).await;
    // Anyone who wanted to start a fifth had the time to.
    crate::parts::pass(ms(100)).await;
    assert_eq!(gate.waiting(), 4);
    gate.let_through();
    site.until_all_done(11).await;
    assert_eq!(gate.most_waiting(), 4);
}

async fn an_event_without_a_key_is_delivered_from_memory_without_a_read(site: Site) {
    // S3-1.2
    let (seen, doors) = (Recorder::default(), Doors::before(site.store.clone()));
    let outbox = site
        .outbox()
        .shared_store(doors.clone())
        .on("A", seen.delivers())
        .poller(false)
        .start()
        .await
        .unwrap();
    let id = site.write_hot(&outbox, plain("A")).await;
    let delivery = seen.reaches(1).await.remove(0);
    assert_eq!((delivery.source, delivery.id()), (Source::Hot, &id));
    assert_eq!(doors.claim.calls(), 0);
    site.until_done(&id).await;
}

async fn a_keyed_event_of_an_owned_transaction_is_read_in_order(site: Site) {
    // S3-1.2, as changed
    let seen = Recorder::default();
    let outbox = site.outbox().on("Tested", seen.delivers()).start().await.unwrap();
    let first = site.write_untold(&outbox, keyed("k", 0)).await;
    let second = site.write_hot(&outbox, keyed("k", 1)).await;
    site.until_done(&second).await;
    site.until_done(&first).await;
    assert_eq!(seen.numbers(), [0, 1]);
    assert!(seen.seen().iter().all(|delivery| delivery.source == Source::Cold));
}

#[tokio::test(start_paused = true)]
async fn full_queues_are_drained_two_hot_to_one_cold() {
    // S3-10.6, S0-2.3
    let site = Site::memory(8);
    let (seen, gate) = (Recorder::default(), Arc::new(Gate::shut()));
    let outbox = site
        .outbox()
        .on("A", seen.waits_at(&gate))
        .workers(1)
        .claim_batch(1000)
        .poller(false)
        .start()
        .await
        .unwrap();
    site.write_all(&outbox, (0..900).map(|_| plain("A"))).await;
    assert_eq!(outbox.poll_once().await.unwrap(), 900);
    for _ in 0..900 {
        site.write_hot(&outbox, plain("A")).await;
    }
    gate.let_through();
    site.until_all_done(1800).await;
    let hot = |range: std::ops::Range<usize>| {
        seen.seen()[range].iter().filter(|delivery| delivery.source == Source::Hot).count()
    };
    // The first one was taken before there was anything hot.
    assert!((594..=606).contains(&hot(0..900)), "{} of the first 900 were hot", hot(0..900));
    for start in (0..900).step_by(90) {
        assert!((58..=62).contains(&hot(start..start + 90)), "from {start}: {}", hot(start..start + 90));
    }
    // Once hot is empty, cold has all turns.
    assert_eq!(hot(1360..1800), 0);
}

#[tokio::test(start_paused = true)]
async fn cold_events_move_under_endless_hot_load() {
    // S0-2.3
    let site = Site::memory(8);
    let (seen, gate) = (Recorder::default(), Arc::new(Gate::shut()));
    let outbox = site.outbox().on("A", seen.waits_at(&gate)).workers(1).poller(false).start().await.unwrap();
    let cold = site.write_all(&outbox, (0..30).map(|_| plain("A"))).await;
    outbox.poll_once().await.unwrap();
    for _ in 0..10 {
        site.write_hot(&outbox, plain("A")).await;
    }
    gate.let_through();
    // There are always hot events waiting while the cold ones are delivered.
    let mut written = 10;
    while seen.count() < 100 {
        site.write_hot(&outbox, plain("A")).await;
        written += 1;
        tokio::task::yield_now().await;
    }
    assert!(written > 60);
    for id in &cold {
        site.until_done(id).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_cold_queue_makes_no_query_at_all() {
    // S3-11.3a
    let site = Site::memory(1);
    let (seen, gate, doors) =
        (Recorder::default(), Arc::new(Gate::shut()), Doors::before(site.store.clone()));
    let outbox = site
        .outbox()
        .shared_store(doors.clone())
        .on("A", seen.waits_at(&gate))
        .cold_queue(5)
        .start()
        .await
        .unwrap();
    site.write_all(&outbox, (0..50).map(|_| plain("A"))).await;
    gate.until_arrivals(4).await;
    settle_down().await;
    let claims = doors.claim.calls();
    crate::parts::pass(secs(60)).await;
    outbox.wake();
    settle_down().await;
    assert_eq!(outbox.poll_once().await.unwrap(), 0);
    assert_eq!(doors.claim.calls(), claims, "the queue is full and the table was read");
    gate.let_through();
    site.until_all_done(50).await;
}

#[tokio::test(start_paused = true)]
async fn the_queues_stay_within_their_budget_of_bytes() {
    // S3-14.2: bounded, whatever the backlog and the size of payloads.
    for large_headers in [false, true] {
        let site = Site::memory(1);
        let (gate, weight) = (Arc::new(Gate::shut()), Arc::new(Depths::default()));
        let seen = Recorder::default();
        let budget = 1 << 20;
        let settings = postrider::Settings { queue_bytes: budget, seed: 1, ..postrider::Settings::default() };
        let outbox = site
            .outbox()
            .settings(settings)
            .on("A", seen.waits_at(&gate))
            .metrics(weight.clone())
            .start()
            .await
            .unwrap();
        let large = || {
            if large_headers {
                plain("A").header("h", "x".repeat(50_000))
            } else {
                Event::json_text("A", format!("\"{}\"", "x".repeat(50_000)))
            }
        };
        let weight_of_one = large().build().unwrap().weight_bytes();
        for _ in 0..10 {
            site.write_all(&outbox, (0..10).map(|_| large())).await;
            site.write_hot(&outbox, large()).await;
        }
        crate::parts::pass(secs(30)).await;
        gate.let_through();
        site.until_all_done(110).await;
        let most = weight.most() as usize * weight_of_one;
        // One event may come whatever its size, so that a large one is not stuck for ever.
        assert!(
            most <= budget + weight_of_one,
            "headers: {large_headers}; {most} bytes of {budget} in memory"
        );
    }
}

/// The largest number of events that was ever in memory.
#[derive(Default)]
struct Depths(AtomicU64);

impl Depths {
    fn most(&self) -> u64 {
        self.0.load(SeqCst)
    }
}

impl Metrics for Depths {
    fn queue_depths(&self, hot: u64, cold: u64) {
        self.0.fetch_max(hot + cold, SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_larger_than_the_whole_budget_is_delivered_all_the_same() {
    let site = Site::memory(1);
    let seen = Recorder::default();
    let settings = postrider::Settings { queue_bytes: 1000, ..postrider::Settings::default() };
    let outbox = site.outbox().settings(settings).on("A", seen.delivers()).start().await.unwrap();
    let large = || Event::json_text("A", format!("\"{}\"", "x".repeat(50_000)));
    for _ in 0..3 {
        site.write_hot(&outbox, large()).await;
        site.write(&outbox, large()).await;
    }
    site.until_all_done(6).await;
    assert_eq!(seen.count(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_one_type_does_not_hold_up_another() {
    let site = Site::memory(1);
    let seen = Recorder::default();
    let outbox = site
        .outbox()
        .on("Flood", seen.delivers())
        .on("Other", seen.delivers())
        .workers(1)
        .poller(false)
        .start()
        .await
        .unwrap();
    site.write_all(&outbox, (0..150).map(|_| plain("Flood"))).await;
    site.write(&outbox, plain("Other")).await;
    outbox.poll_once().await.unwrap();
    site.until_all_done(151).await;
    let place = seen.seen().iter().position(|delivery| delivery.event_type() == "Other").unwrap();
    assert!(place <= 2, "{place} events of another type went first");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_handed_over_while_a_claim_brings_it_runs_once() {
    // S3-10.3a: same id hot and cold at once.
    let site = Site::memory(1);
    let (seen, gate, doors) =
        (Recorder::default(), Arc::new(Gate::shut()), Doors::before(site.store.clone()));
    let outbox = site
        .outbox()
        .shared_store(doors.clone())
        .on("A", seen.waits_at(&gate))
        .poller(false)
        .start()
        .await
        .unwrap();
    // Hot is being sent when a claim reads the same row.
    let id = site.write_hot(&outbox, plain("A")).await;
    seen.reaches(1).await;
    outbox.poll_once().await.unwrap();
    settle_down().await;
    assert_eq!((seen.count(), gate.waiting()), (1, 1));
    gate.let_through();
    site.until_done(&id).await;
    outbox.poll_once().await.unwrap();
    settle_down().await;
    assert_eq!(seen.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_an_older_claim_brings_after_it_was_settled_runs_once() {
    // The tracker outlives its settle until every claim that began before it has returned.
    let site = Site::memory(1);
    let (seen, doors, gate) =
        (Recorder::default(), Doors::before(site.store.clone()), Arc::new(Gate::open()));
    let (handler, wait) = (seen.clone(), gate.clone());
    let outbox = site
        .outbox()
        .shared_store(doors.clone())
        .on("A", move |delivery: Delivery| {
            handler.note(&delivery);
            let wait = wait.clone();
            async move {
                wait.pass().await;
                if delivery.attempt == 1 { Err("once") } else { Ok(()) }
            }
        })
        .retry(Backoff::fixed(ms(100)))
        .poller(false)
        .start()
        .await
        .unwrap();
    // A row that waits for its retry is met by every claim, also while it is being sent.
    let id = site.write(&outbox, plain("A")).await;
    outbox.poll_once().await.unwrap();
    seen.reaches(1).await;
    crate::parts::pass(ms(100)).await;
    gate.close();
    outbox.poll_once().await.unwrap();
    seen.reaches(2).await;
    doors.claim.after.close();
    let arrivals = doors.claim.after.arrivals();
    let poll = tokio::spawn({
        let outbox = outbox.clone();
        async move { outbox.poll_once().await }
    });
    doors.claim.after.until_arrivals(arrivals + 1).await;
    gate.let_through();
    site.until_done(&id).await;
    doors.claim.after.let_through();
    poll.await.unwrap().unwrap();
    crate::parts::pass(secs(1)).await;
    assert_eq!(seen.count(), 2, "the older snapshot delivered it again");
}

/// A source of transactions whose commit is done long before its answer is back.
struct SlowAnswer(MemoryStore, Arc<Gate>);

struct SlowTx(MemoryTx, Arc<Gate>);

enum Slow {}

impl TxSource<Slow> for &SlowAnswer {
    type Tx = SlowTx;

    fn begin<'a>(self) -> BoxFuture<'a, Result<SlowTx>>
    where
        Self: 'a,
    {
        Box::pin(async move { Ok(SlowTx(self.0.begin(), self.1.clone())) })
    }
}

impl OwnedTx for SlowTx {
    type Conn = MemoryTx;

    fn conn(&mut self) -> &mut MemoryTx {
        &mut self.0
    }

    fn insert<'a>(
        &'a mut self,
        target: &'a Target,
        events: &'a [Event],
        on_duplicate: OnDuplicate,
    ) -> BoxFuture<'a, Result<Vec<bool>>> {
        OwnedTx::insert(&mut self.0, target, events, on_duplicate)
    }

    fn read_back<'a>(
        &'a mut self,
        target: &'a Target,
        ids: &'a [EventId],
    ) -> BoxFuture<'a, Result<Vec<Placed>>> {
        self.0.read_back(target, ids)
    }

    fn commit(self) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            self.0.commit().await?;
            self.1.pass().await;
            Ok(())
        })
    }

    fn rollback(self) -> BoxFuture<'static, Result<()>> {
        OwnedTx::rollback(self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_poller_delivered_before_the_commit_was_answered_runs_once() {
    // S3-10.3a: hot and cold, the other way round.
    let site = Site::memory(1);
    let (seen, answer) = (Recorder::default(), Arc::new(Gate::shut()));
    let outbox: Outbox = site.outbox().on("A", seen.delivers()).start().await.unwrap();
    let source = SlowAnswer(site.memory_store().clone(), answer.clone());
    let writer = outbox.clone();
    let write = tokio::spawn(async move {
        writer
            .transaction::<_, _, _, postrider::Error, _>(&source, async |tx| tx.write(plain("A")).await)
            .await
    });
    answer.until_arrivals(1).await;
    crate::parts::pass(secs(10)).await;
    answer.let_through();
    let id = write.await.unwrap().unwrap();
    site.until_done(&id).await;
    crate::parts::pass(secs(10)).await;
    assert_eq!(seen.count(), 1, "handed over after it had been delivered");
    eventually("nothing is left", async || site.store.stats().await.unwrap().pending == 0).await;
}
