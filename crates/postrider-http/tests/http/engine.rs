//! Through the whole engine, with a server that refuses, is cut off and goes away in mid-stream.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use postrider_core::{BoxFuture, Delivery, Event, Health, Outcome, Sink, SinkTraits, format::Destination};
use postrider_engine::{OnDead, Outbox, memory::MemoryStore};
use postrider_http::{BatchConfig, Endpoint, HttpBatchSink, WebhookConfig, WebhookSink};
use postrider_testkit::proxy::{Direction, Proxy};

use crate::{
    eventually,
    server::{Asked, Reply, Server},
};

const EVENTS: usize = 2000;
const KEYS: usize = 40;

/// The numbers of the events in a request.
fn numbers(asked: &Asked) -> Vec<usize> {
    match serde_json::from_slice(&asked.body).unwrap() {
        serde_json::Value::Array(numbers) => {
            numbers.iter().map(|number| number.as_u64().unwrap() as usize).collect()
        }
        number => vec![number.as_u64().unwrap() as usize],
    }
}

fn taken(server: &Server) -> Vec<usize> {
    server.took().iter().flat_map(numbers).collect()
}

/// What came more than once counts where it came first.
fn assert_whole_and_in_order(taken: &[usize], all: impl Iterator<Item = usize>) {
    let mut first: BTreeMap<usize, usize> = BTreeMap::new();
    for (place, number) in taken.iter().enumerate() {
        first.entry(*number).or_insert(place);
    }
    let mut last_of_key: BTreeMap<usize, usize> = BTreeMap::new();
    for number in all {
        let place = *first.get(&number).unwrap_or_else(|| panic!("lost: {number}"));
        let before = last_of_key.insert(number % KEYS, place);
        assert!(
            before.is_none_or(|before| before < place),
            "{number} came before what stands in front of it"
        );
    }
}

/// Counts the sends that delivered nothing.
struct Watched {
    sink: Arc<dyn Sink>,
    failed: Arc<AtomicUsize>,
}

impl Sink for Watched {
    fn traits(&self) -> SinkTraits {
        self.sink.traits()
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let outcomes = self.sink.send(batch).await;
            let failed = !outcomes.contains(&Outcome::Delivered);
            self.failed.fetch_add(usize::from(failed), SeqCst);
            outcomes
        })
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        self.sink.health()
    }
}

async fn more_than(what: &str, count: &AtomicUsize, so_many: usize) {
    let before = count.load(SeqCst);
    eventually(what, || count.load(SeqCst) > before + so_many).await;
}

async fn write(outbox: &Outbox, store: &MemoryStore, numbers: std::ops::Range<usize>) {
    let events = numbers
        .map(|number| Event::json_text("Numbered", number.to_string()).key(format!("key {}", number % KEYS)));
    let mut tx = store.begin();
    let receipts = outbox.write_all(&mut tx, events.collect::<Vec<_>>()).await.unwrap();
    tx.commit().await.unwrap();
    receipts.committed();
}

async fn outbox(store: &MemoryStore, sink: Arc<dyn Sink>) -> Outbox {
    let builder = Outbox::builder().store(store.clone()).sink("Numbered", sink);
    let builder = builder.retry_with(|_, _| Duration::from_millis(5)).on_dead(OnDead::Skip);
    builder.max_attempts(3).start().await.unwrap()
}

async fn survives_everything(make: fn(Endpoint) -> Arc<dyn Sink>) {
    let server = Server::start().await;
    let proxy = Proxy::start(server.address().to_string()).await.unwrap();
    let store = MemoryStore::new(4);
    let url = format!("http://{}", proxy.address());
    let endpoint = Endpoint::new(url).timeouts(Duration::from_secs(5), Duration::from_secs(5));
    let (asked, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let sink = Watched { sink: make(endpoint), failed: failed.clone() };
    let outbox = outbox(&store, Arc::new(sink)).await;
    let counted = asked.clone();
    // Every request is counted, and answered well.
    let well = move |_: &Asked| {
        counted.fetch_add(1, SeqCst);
        Reply::status(200)
    };
    server.answers(well.clone());
    write(&outbox, &store, 0..EVENTS / 2).await;
    more_than("requests", &asked, 1).await;
    // Answers are lost, and then the connection.
    proxy.stall(Direction::ToClient);
    write(&outbox, &store, EVENTS / 2..EVENTS).await;
    more_than("requests without an answer", &asked, 0).await;
    proxy.flow(Direction::ToClient);
    // Nobody lets it in for longer than all retries together would take.
    proxy.refuse();
    proxy.cut();
    more_than("refusals", &failed, 4).await;
    proxy.admit();
    more_than("requests after an outage", &asked, 0).await;
    // It is there, and says that it is not.
    server.answers(|_| Reply::status(503));
    more_than("answers of 503", &failed, 2).await;
    server.answers(well);
    outbox.drain().await.unwrap();
    let stats = outbox.stats().await.unwrap();
    assert_eq!((stats.dead, stats.done), (0, EVENTS as u64));
    assert_whole_and_in_order(&taken(&server), 0..EVENTS);
    outbox.shutdown().await;
}

#[tokio::test]
async fn batches_survive_lost_answers_cuts_and_outages() {
    survives_everything(|endpoint| {
        Arc::new(HttpBatchSink::new(BatchConfig::new(endpoint).batch_max(20)).unwrap())
    })
    .await;
}

#[tokio::test]
async fn webhooks_survive_lost_answers_cuts_and_outages() {
    survives_everything(|endpoint| {
        Arc::new(WebhookSink::new(WebhookConfig::new(endpoint).unsigned()).unwrap())
    })
    .await;
}

#[tokio::test]
async fn one_bad_event_in_fifty_is_dead_and_all_others_arrive_in_order() {
    let server = Server::start().await;
    server.answers(|asked| {
        let bad = numbers(asked).iter().any(|number| number % 50 == 7);
        Reply::status(if bad { 422 } else { 200 })
    });
    let store = MemoryStore::new(4);
    let config = BatchConfig::new(Endpoint::new(server.url()));
    let outbox = outbox(&store, Arc::new(HttpBatchSink::new(config).unwrap())).await;
    write(&outbox, &store, 0..EVENTS).await;
    outbox.drain().await.unwrap();
    let stats = outbox.stats().await.unwrap();
    assert_eq!((stats.dead, stats.done), (EVENTS as u64 / 50, (EVENTS - EVENTS / 50) as u64));
    assert_whole_and_in_order(&taken(&server), (0..EVENTS).filter(|number| number % 50 != 7));
    outbox.shutdown().await;
}

async fn poison_events_that_ask_for_time_hold_up_nobody_else(make: fn(Endpoint) -> Arc<dyn Sink>) {
    const ASKS_FOR_AN_HOUR: usize = 100;
    const ASKS_FOR_A_SECOND: usize = 111;
    const LAST: usize = 203;
    let server = Server::start().await;
    let alone = Arc::new(AtomicUsize::new(0));
    let counted = alone.clone();
    let answer = move |asked: &Asked| {
        let numbers = numbers(asked);
        counted.fetch_add(usize::from(numbers == [ASKS_FOR_A_SECOND]), SeqCst);
        if numbers.contains(&ASKS_FOR_AN_HOUR) {
            return Reply::status(500).header("retry-after", "3600");
        }
        if numbers.contains(&ASKS_FOR_A_SECOND) {
            return Reply::status(500).header("retry-after", "1");
        }
        Reply::status(200)
    };
    server.answers(answer.clone());
    let store = MemoryStore::new(4);
    let outbox = outbox(&store, make(Endpoint::new(server.url()))).await;
    write(&outbox, &store, 0..LAST).await;
    let behind = |number: usize, poison: usize| number % KEYS == poison % KEYS && number >= poison;
    let is_good = |number: &usize| !behind(*number, ASKS_FOR_AN_HOUR) && !behind(*number, ASKS_FOR_A_SECOND);
    let good: Vec<usize> = (0..LAST).filter(is_good).collect();
    eventually("all good events", || {
        let taken = taken(&server);
        good.iter().all(|number| taken.contains(number))
    })
    .await;
    // More often than there are attempts: none of them counts.
    more_than("attempts of a poison event", &alone, 3).await;
    assert_eq!(outbox.stats().await.unwrap().dead, 0);
    server.answers(move |asked| match numbers(asked).contains(&ASKS_FOR_A_SECOND) {
        true => Reply::status(200),
        false => answer(asked),
    });
    let but_one = || (0..LAST).filter(|number| !behind(*number, ASKS_FOR_AN_HOUR));
    eventually("the poison event that asked for a second", || {
        let taken = taken(&server);
        but_one().all(|number| taken.contains(&number))
    })
    .await;
    assert_whole_and_in_order(&taken(&server), but_one());
    drop(outbox);
}

#[tokio::test]
async fn poison_events_in_batches_that_ask_for_time_hold_up_nobody_else() {
    poison_events_that_ask_for_time_hold_up_nobody_else(|endpoint| {
        Arc::new(HttpBatchSink::new(BatchConfig::new(endpoint)).unwrap())
    })
    .await;
}

#[tokio::test]
async fn poison_webhooks_that_ask_for_time_hold_up_nobody_else() {
    poison_events_that_ask_for_time_hold_up_nobody_else(|endpoint| {
        Arc::new(WebhookSink::new(WebhookConfig::new(endpoint).unsigned()).unwrap())
    })
    .await;
}

#[tokio::test]
async fn webhooks_are_under_way_at_the_same_time_and_no_more_than_allowed() {
    let server = Server::start().await;
    server.answers(|_| Reply::Stalls);
    let store = MemoryStore::new(4);
    let config = WebhookConfig::new(Endpoint::new(server.url())).unsigned().concurrent_max(3);
    let outbox = outbox(&store, Arc::new(WebhookSink::new(config).unwrap())).await;
    write(&outbox, &store, 0..10).await;
    eventually("three requests at once", || server.asked().len() == 3).await;
    // What comes later changes nothing.
    write(&outbox, &store, 10..20).await;
    assert_eq!(server.asked().len(), 3);
    drop(outbox);
}

async fn a_path_that_hangs_holds_up_no_other(make: fn(Endpoint) -> Arc<dyn Sink>) {
    const TENANTS: usize = 20;
    let hangs = |tenant: usize| tenant.is_multiple_of(4);
    let server = Server::start().await;
    server.answers(move |asked| {
        let tenant: usize = asked.path.trim_start_matches("/t/").parse().unwrap();
        if hangs(tenant) { Reply::Stalls } else { Reply::status(200) }
    });
    let store = MemoryStore::new(4);
    // Nobody ends a request that hangs.
    let endpoint = Endpoint::new(server.url()).timeouts(Duration::from_secs(5), Duration::from_secs(3600));
    let outbox = outbox(&store, make(endpoint.path(Destination::new("/t/{tenant_id}").unwrap()))).await;
    for round in 0..50 {
        let mut tx = store.begin();
        for tenant in 0..TENANTS {
            let event = Event::json_text("Numbered", (round * TENANTS + tenant).to_string());
            let event = event.key(format!("{tenant} {round}")).tenant(tenant.to_string());
            let _left_to_the_poller = outbox.write(&mut tx, event).await.unwrap();
        }
        tx.commit().await.unwrap();
    }
    let well = (0..TENANTS).filter(|tenant| !hangs(*tenant)).count() * 50;
    eventually("all that goes elsewhere", || taken(&server).len() == well).await;
    drop(outbox);
}

#[tokio::test]
async fn a_path_of_webhooks_that_hangs_holds_up_no_other() {
    a_path_that_hangs_holds_up_no_other(|endpoint| {
        Arc::new(WebhookSink::new(WebhookConfig::new(endpoint).unsigned()).unwrap())
    })
    .await;
}

#[tokio::test]
async fn a_path_of_batches_that_hangs_holds_up_no_other() {
    a_path_that_hangs_holds_up_no_other(|endpoint| {
        Arc::new(HttpBatchSink::new(BatchConfig::new(endpoint)).unwrap())
    })
    .await;
}
