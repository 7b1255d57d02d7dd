//! What shares the sends and the memory of an engine: batches within their limits, long keys, receivers that ask for time, and sinks that call back.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, mpsc},
    time::Duration,
};

use postrider::{
    BoxFuture, Delivery, Drained, Event, Outbox, Outcome, Route, RouteSettings, Routes, Sink, SinkTraits,
    memory::MemoryStore,
};

use crate::parts::{Site, eventually, keyed, ms, number, pass, plain, secs};

/// An outside system that gives every event the same answer, and records the batches that it was sent.
struct Outside {
    traits: SinkTraits,
    takes: Duration,
    answer: Box<dyn Fn(usize) -> Outcome + Send + Sync>,
    batches: Mutex<Vec<Vec<Delivery>>>,
}

impl Outside {
    /// The answer depends on how many batches came before.
    fn answering(traits: SinkTraits, answer: impl Fn(usize) -> Outcome + Send + Sync + 'static) -> Self {
        Self { traits, takes: ms(1), answer: Box::new(answer), batches: Mutex::default() }
    }

    fn sizes(&self) -> Vec<usize> {
        self.batches.lock().unwrap().iter().map(Vec::len).collect()
    }

    fn events(&self) -> usize {
        self.sizes().iter().sum()
    }

    /// The numbers that came for each key, in order.
    fn numbers_by_key(&self) -> BTreeMap<String, Vec<usize>> {
        let mut by_key: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for delivery in self.batches.lock().unwrap().iter().flatten() {
            by_key.entry(delivery.key().unwrap().to_owned()).or_default().push(number(delivery));
        }
        by_key
    }
}

impl Sink for Outside {
    fn traits(&self) -> SinkTraits {
        self.traits
    }

    fn destination(&self, event: &Event) -> Option<String> {
        event.tenant_id().map(str::to_owned)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let before = {
                let mut batches = self.batches.lock().unwrap();
                batches.push(batch.to_vec());
                batches.len() - 1
            };
            pass(self.takes).await;
            vec![(self.answer)(before); batch.len()]
        })
    }
}

const ONE_BY_ONE: SinkTraits = SinkTraits { batch_max: 1, ..SinkTraits::SINK };

#[tokio::test(start_paused = true)]
async fn a_batch_to_one_destination_is_no_larger_than_its_route_allows() {
    let site = Site::memory(4);
    let traits =
        SinkTraits { batch_max: 100, one_destination: true, concurrent: Some(10), ..SinkTraits::SINK };
    let outside = Outside { takes: ms(200), ..Outside::answering(traits, |_| Outcome::Delivered) };
    let outside = Arc::new(outside);
    let settings = RouteSettings { batch_max: Some(10), ..RouteSettings::default() };
    let routes = Routes::new().route(Route::new("Tested", outside.clone()).settings(settings));
    let outbox = site.outbox().routes(routes).start().await.unwrap();
    site.write_all(&outbox, (0..1000).map(|n| keyed(&format!("k{n}"), n).tenant("busy"))).await;
    site.until_all_done(1000).await;
    let largest = outside.sizes().into_iter().max();
    assert!(largest <= Some(10), "a batch had {largest:?} events");
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_receiver_asks_for_no_pause_is_not_sent_again_without_one() {
    let site = Site::memory(1);
    // Beyond any number that is right it takes the event, so that the test ends.
    let answer = |before| match before {
        0..500 => Outcome::retry_after("500", Duration::ZERO),
        _ => Outcome::Delivered,
    };
    let outside = Arc::new(Outside::answering(ONE_BY_ONE, answer));
    let outbox = site.outbox().sink("Tested", outside.clone()).start().await.unwrap();
    site.write(&outbox, keyed("k", 0)).await;
    pass(secs(60)).await;
    let sends = outside.events();
    assert!((2..=20).contains(&sends), "it was sent {sends} times within a minute");
}

/// One receiver asks for an hour; another, if there is one, takes everything.
async fn drains_beside_one_that_asks_for_an_hour(events: impl Iterator<Item = usize>, beside: bool) {
    let site = Site::memory(4);
    let busy = Arc::new(Outside::answering(ONE_BY_ONE, |_| Outcome::deferred(secs(3600))));
    let free = Arc::new(Outside::answering(ONE_BY_ONE, |_| Outcome::Delivered));
    let mut builder = site.outbox().sink("Tested", busy.clone());
    if beside {
        builder = builder.sink("Other", free.clone());
    }
    let outbox = builder.start().await.unwrap();
    let events: Vec<_> = events.map(|key| keyed(&format!("k{key}"), 0)).collect();
    site.write_all_untold(&outbox, events).await;
    if beside {
        site.write_all_untold(&outbox, (0..500).map(|_| plain("Other"))).await;
    }
    let drained = tokio::time::timeout(secs(60), outbox.drain_available()).await;
    let drained = drained.expect("it waits for the end of the hour").unwrap();
    assert_eq!(drained, Drained::AllButUnavailable);
    assert_eq!(free.events(), if beside { 500 } else { 0 });
    assert!(busy.events() < 300, "{} sends in spite of what it asked for", busy.events());
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_a_receiver_that_asks_for_an_hour() {
    for beside in [false, true] {
        // More than it is sent before it asks.
        drains_beside_one_that_asks_for_an_hour(0..500, beside).await;
        // More than memory has room for.
        drains_beside_one_that_asks_for_an_hour(0..3000, beside).await;
        // Long keys, more of them than it is sent at a time.
        drains_beside_one_that_asks_for_an_hour((0..2000).map(|n| n % 20), beside).await;
    }
}

/// Its destinations are decided by code that asks the engine something.
struct CallsBack(OnceLock<Outbox>);

impl Sink for CallsBack {
    fn traits(&self) -> SinkTraits {
        ONE_BY_ONE
    }

    fn destination(&self, _: &Event) -> Option<String> {
        let outbox = self.0.get()?;
        Some(outbox.unsettled().len().to_string())
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(std::future::ready(vec![Outcome::Delivered; batch.len()]))
    }
}

#[test]
fn a_sink_that_names_destinations_may_call_the_engine() {
    let (sender, receiver) = mpsc::sync_channel(1);
    // On a thread of its own: a sink that is asked under a lock would wait for ever.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (store, sink) = (MemoryStore::new(1), Arc::new(CallsBack(OnceLock::new())));
            let outbox = Outbox::builder().store(store.clone()).sink("A", sink.clone());
            let outbox = outbox.start().await.unwrap();
            sink.0.set(outbox.clone()).ok().unwrap();
            outbox.transaction(&store, async |tx| tx.write(plain("A")).await).await.unwrap();
            outbox.drain().await.unwrap();
            sender.send(()).unwrap();
        });
    });
    assert_eq!(receiver.recv_timeout(secs(30)), Ok(()), "the engine waits for itself");
}

#[tokio::test(start_paused = true)]
async fn more_long_keys_than_are_told_apart_lose_nothing_and_keep_their_order() {
    const KEYS: usize = 120;
    const EACH: usize = 60;
    for lanes in [1, 8] {
        let site = Site::memory(lanes);
        let outside = Arc::new(Outside::answering(ONE_BY_ONE, |_| Outcome::Delivered));
        let outbox = site
            .outbox()
            .sink("Tested", outside.clone())
            .cold_queue(40)
            .key_queue(4)
            .claim_batch(20)
            .start()
            .await
            .unwrap();
        let long = (0..KEYS * EACH).map(|n| keyed(&format!("long{}", n / EACH), n % EACH));
        site.write_all(&outbox, long).await;
        site.write_all(&outbox, (0..200).map(|n| keyed(&format!("short{n}"), 0))).await;
        eventually("all of them came", async || outside.events() >= KEYS * EACH + 200).await;
        let by_key = outside.numbers_by_key();
        assert_eq!(by_key.len(), KEYS + 200);
        for (key, numbers) in by_key {
            let expected: Vec<usize> = (0..if key.starts_with("long") { EACH } else { 1 }).collect();
            assert_eq!(numbers, expected, "{key}");
        }
        outbox.drain().await.unwrap();
    }
}
