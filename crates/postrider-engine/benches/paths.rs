//! The queue and the settle path, on the store in memory: `cargo bench -p postrider-engine`.
//!
//! * `queue/hot`: one transaction's events without a key, from before the commit until the last was handled
//! * `queue/cold`: a table of events, from the start of the engine until the last was handled and settled
//! * `settle/one_key`: events of one key, where each waits for the settle of the one before: the way there and back
//! * `settle/retry`: a table of events of which each fails and is settled to wait, with its key held
//! * `memory store`: the store alone, one claim and one settle of a batch, with many more pending

#![allow(clippy::unwrap_used, reason = "what goes wrong ends the benchmark")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, Throughput};
use postrider_core::{
    Backoff, Delivery, Event, Metrics, Outcome, Store,
    rng::Rng,
    store::{Change, Claim, ClaimedEvent, LaneClaim, Lease, LeaseRequest, Position, Settlement},
    tx::OnDuplicate,
};
use postrider_engine::{Outbox, OutboxBuilder, memory::MemoryStore};
use tokio::{runtime::Runtime, sync::Notify};

/// Events in a table.
const TABLE: u64 = 2000;

/// Events of one key.
const CHAIN: u64 = 100;

/// Events that are pending in the store, and how many of them one claim takes.
const PENDING: usize = 100_000;
const BATCH: usize = 200;

const LONG: Duration = Duration::from_secs(3600);

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    let runtime = Runtime::new().unwrap();
    queue(&mut criterion, &runtime);
    settle(&mut criterion, &runtime);
    store(&mut criterion, &runtime);
    criterion.final_summary();
}

fn queue(criterion: &mut Criterion, runtime: &Runtime) {
    let mut group = criterion.benchmark_group("queue");
    for count in [1, 100] {
        group.throughput(Throughput::Elements(count));
        group.bench_function(BenchmarkId::new("hot", count), |bencher| {
            bencher.iter_custom(|times| runtime.block_on(hot(times, count)));
        });
    }
    group.throughput(Throughput::Elements(TABLE));
    for (keys, name) in [(TABLE, "cold/keys"), (0, "cold/no_keys")] {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|times| {
                runtime.block_on(tables(times, || events(TABLE, keys), Outcome::Delivered))
            });
        });
    }
    group.finish();
}

fn settle(criterion: &mut Criterion, runtime: &Runtime) {
    let mut group = criterion.benchmark_group("settle");
    group.throughput(Throughput::Elements(CHAIN));
    group.bench_function("one_key", |bencher| {
        bencher.iter_custom(|times| runtime.block_on(tables(times, || events(CHAIN, 1), Outcome::Delivered)));
    });
    group.throughput(Throughput::Elements(TABLE));
    group.bench_function("retry", |bencher| {
        bencher.iter_custom(|times| {
            runtime.block_on(tables(times, || events(TABLE, TABLE), Outcome::retry("nobody is at home")))
        });
    });
    group.finish();
}

fn store(criterion: &mut Criterion, runtime: &Runtime) {
    let mut group = criterion.benchmark_group("memory store");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (lanes, keys) in [(1, 0), (1, PENDING as u64), (64, PENDING as u64)] {
        let mut backlog = runtime.block_on(Backlog::new(lanes, keys));
        let name = format!("claim and settle 200 of 100,000/{lanes} lanes, {keys} keys");
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|times| runtime.block_on(backlog.claim_and_settle(times)));
        });
    }
    group.finish();
}

/// A store with many events pending.
struct Backlog {
    store: MemoryStore,
    keys: u64,
    leases: Vec<Lease>,
    claim: Claim,
    pending: usize,
}

impl Backlog {
    async fn new(lanes: u32, keys: u64) -> Self {
        let store = MemoryStore::new(lanes);
        let request =
            LeaseRequest { owner: "bench".into(), ttl: LONG, nonces: Rng::seeded(1), most: usize::MAX };
        let leases = store.lease(&request).await.unwrap().leases();
        let start = |lease: &Lease| LaneClaim::after(*lease, Position::START);
        let claim = Claim::new(leases.iter().map(start).collect(), BATCH);
        Self { store, keys, leases, claim, pending: 0 }
    }

    /// The time that it takes to claim and to settle a batch, so many times. Writing new events is not counted, nor is dropping
    /// those that were claimed.
    async fn claim_and_settle(&mut self, times: u64) -> Duration {
        let mut took = Duration::ZERO;
        for _ in 0..times {
            self.fill().await;
            let started = Instant::now();
            let claimed = self.store.claim(&self.claim).await.unwrap();
            took += started.elapsed();
            let settlements: Vec<Settlement> = claimed.events.iter().map(done).collect();
            let started = Instant::now();
            let settled = self.store.settle(&self.leases, &settlements, Duration::ZERO).await.unwrap();
            took += started.elapsed();
            assert_eq!(settled.applied, BATCH as u64);
            self.pending -= BATCH;
            for (lane, (_, position)) in self.claim.lanes.iter_mut().zip(claimed.positions) {
                lane.from = position;
            }
        }
        took
    }

    /// Writes what is missing, when a tenth is.
    async fn fill(&mut self) {
        let missing = PENDING - self.pending;
        if missing >= PENDING / 10 {
            let mut tx = self.store.begin();
            let events = events(missing as u64, self.keys);
            tx.insert(self.store.target(), &events, OnDuplicate::Fail).await.unwrap();
            tx.commit().await.unwrap();
            self.pending = PENDING;
        }
    }
}

fn done(event: &ClaimedEvent) -> Settlement {
    let key = event.event.as_ref().unwrap().shared_key().cloned();
    Settlement {
        lane: event.lane,
        seq: event.seq,
        event_id: event.id().clone(),
        key,
        held: event.held,
        change: Change::Done,
    }
}

/// So many events of so many keys; without a key if there are none.
fn events(count: u64, keys: u64) -> Vec<Event> {
    let event = |number: u64| match number.checked_rem(keys) {
        Some(key) => Event::json_text("OrderPlaced", "{}").aggregate("Order", key),
        None => Event::json_text("OrderPlaced", "{}"),
    };
    (0..count).map(|number| event(number).build().unwrap()).collect()
}

/// The time that it takes from a transaction of so many events to the last call of the handler, so many times.
async fn hot(times: u64, count: u64) -> Duration {
    let handled = Arc::new(Countdown::default());
    let at_handler = handled.clone();
    let store = MemoryStore::new(1);
    let outbox = builder(&store)
        .on("OrderPlaced", move |_: Delivery| {
            at_handler.count(1);
            std::future::ready(())
        })
        .start()
        .await
        .unwrap();
    let mut took = Duration::ZERO;
    for _ in 0..times {
        handled.begin(count);
        let events = events(count, 0);
        let started = Instant::now();
        outbox.transaction(&store, async |tx| tx.write_all(events).await).await.unwrap();
        handled.ended().await;
        took += started.elapsed();
    }
    outbox.shutdown().await;
    took
}

/// The time that it takes to deliver a table and to settle every outcome, so many times.
async fn tables(times: u64, events: impl Fn() -> Vec<Event>, outcome: Outcome) -> Duration {
    let mut took = Duration::ZERO;
    for _ in 0..times {
        let (store, events, outcome) = (MemoryStore::new(1), events(), outcome.clone());
        let settled = Arc::new(Countdown::default());
        settled.begin(events.len() as u64);
        let writer = Outbox::builder().store(store.clone()).write_only().await.unwrap();
        writer.transaction(&store, async |tx| tx.write_all(events).await).await.unwrap();

        let started = Instant::now();
        let outbox = builder(&store)
            .on("OrderPlaced", move |_: Delivery| std::future::ready(outcome.clone()))
            .retry(Backoff::fixed(LONG))
            .metrics(settled.clone())
            .start()
            .await
            .unwrap();
        settled.ended().await;
        took += started.elapsed();
        outbox.shutdown().await;
    }
    took
}

fn builder(store: &MemoryStore) -> OutboxBuilder {
    Outbox::builder().store(store.clone()).retention(Duration::ZERO)
}

/// Counts down, and tells when nothing is left.
#[derive(Default)]
struct Countdown {
    left: AtomicU64,
    end: Notify,
}

impl Countdown {
    fn begin(&self, count: u64) {
        self.left.store(count, Relaxed);
    }

    fn count(&self, count: u64) {
        if self.left.fetch_sub(count, Relaxed) == count {
            self.end.notify_one();
        }
    }

    async fn ended(&self) {
        self.end.notified().await;
    }
}

impl Metrics for Countdown {
    fn settled(&self, events: u64, _took: Duration) {
        self.count(events);
    }
}
