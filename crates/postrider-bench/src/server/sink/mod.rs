//! Measures delivery from a server to a sink against draining and sending one after the other.
//!
//! * **Ours:** a relay's own source, with a configuration that sets only what must be set and a retention of 0, drains 50,000 events with 1 KiB of
//!   payload over 1,000 keys into the sink. The clock runs from before the start until the last settle is committed.
//! * **The producer:** the sink's bare client sends as many events of the same size with the same acknowledgements; 100 at a time in each of
//!   10 tasks, as the relay does by default. Kafka's client makes its own batches and is given events as fast as it accepts them.
//! * **The limit:** 1/(1/drain + 1/producer), with `drain` as in the benchmark of that name: a handler that does nothing.

pub(super) mod http;
mod kafka;
mod nats;
mod rabbitmq;
mod redis;

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use indicatif::ProgressBar;
use postrider::{BoxFuture, Event};
use postrider_relay::{Failure, InProcess, TemporaryFolder};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    super::{
        Scale,
        figure::Figure,
        files::event,
        rounds::{Rounds, per_second},
        settled::Settled,
    },
    KEYS,
    database::{Database, PAYLOAD_BYTES},
    drain,
};

/// Limit: the relay's rate over the serial limit.
const TO_LIMIT_MIN: f64 = 0.6;

/// Default batch size and concurrency of a relay.
const BATCH: usize = 100;
const AT_A_TIME: usize = 10;

/// Messages that receivers keep, where they can be told to trim.
const KEPT: i64 = 10_000;

/// A receiver of events, with a topic, queue or stream that exists for one run.
pub(super) trait Receiver: Send + Sync {
    /// The sink's section of a relay's configuration.
    fn section(&self) -> Value;

    /// Sends all events with the bare client and returns when all are acknowledged.
    fn produce(&self, events: Arc<Vec<Event>>) -> BoxFuture<'_, Result<(), Failure>>;

    /// Removes the topic, queue or stream.
    fn clear(&self) -> BoxFuture<'_, Result<(), Failure>>;
}

/// The receiver of a URL.
pub(super) async fn receiver(url: &str) -> Result<Box<dyn Receiver>, Failure> {
    let name = format!("postrider-bench-{}", std::process::id());
    Ok(match url.split_once("://") {
        Some(("kafka", brokers)) => Box::new(kafka::Place::create(brokers, name).await?),
        Some(("amqp", _)) => Box::new(rabbitmq::Place::create(url, name).await?),
        Some(("nats", _)) => Box::new(nats::Place::create(url, name).await?),
        Some(("redis", _)) => Box::new(redis::Place::create(url, name).await?),
        Some(("http", _)) => Box::new(http::Place::at(url)?),
        None if url == "http" => Box::new(http::Place::own().await?),
        _ => {
            return Err(Failure::usage("--sink names nothing that can be measured").hint(
                "give kafka://host:port, amqp://…, nats://…, redis://… or http://…; or http alone, for a server that answers at once",
            ));
        }
    })
}

pub(super) async fn measure(
    database: &Database,
    receiver: &dyn Receiver,
    scale: Scale,
    rounds: Rounds,
) -> Result<Vec<Figure>, Failure> {
    let count = scale.pick(50_000, 1000);
    let relay = in_process(database, &receiver.section())?;
    let of_a_key = |n| event(n, PAYLOAD_BYTES).key(format!("key {}", n % KEYS)).build();
    let events: Vec<Event> =
        (0..count).map(of_a_key).collect::<Result<_, _>>().map_err(postrider::Error::from)?;
    let events = Arc::new(events);
    let turn = async |name| {
        if name == "producer" {
            let started = Instant::now();
            receiver.produce(events.clone()).await?;
            return Ok(per_second(count, started.elapsed()));
        }
        database.refill(count).await?;
        match name {
            "drain" => drain::ours(database, count, Duration::ZERO).await,
            _ => ours(database, &relay, count).await,
        }
    };
    let mut turns = rounds.by_turns("sink", "events/s", 1, ["ours", "drain", "producer"], turn).await?;
    turns.add_serial("limit", "drain", "producer");
    Ok(vec![
        Figure::new("sink_to_limit", turns.ratio("ours", "limit")).at_least(TO_LIMIT_MIN),
        Figure::new("sink_events_per_s", turns.median("ours")),
        Figure::new("sink_drain_per_s", turns.median("drain")),
        Figure::new("sink_producer_per_s", turns.median("producer")),
        Figure::new("sink_limit_per_s", turns.median("limit")),
    ])
}

/// Events per second from the database to the sink.
async fn ours(database: &Database, relay: &InProcess, count: u64) -> Result<f64, Failure> {
    let settled = Settled::all_of(count);
    let started = Instant::now();
    let outbox = relay.start(database.store(), settled.clone()).await?;
    settled.wait(&ProgressBar::hidden()).await?;
    let took = started.elapsed();
    let dead = outbox.stats().await?.dead;
    outbox.shutdown().await;
    match dead {
        0 => Ok(per_second(count, took)),
        dead => Err(Failure::bad(format!("{dead} of {count} events are dead instead of delivered"))),
    }
}

/// A relay inside this process, from this database to a sink.
fn in_process(database: &Database, section: &Value) -> Result<InProcess, Failure> {
    let folder = TemporaryFolder::create("bench")?;
    let path = folder.path().join("postrider.yaml");
    std::fs::write(&path, text(&database.url, section, None))
        .map_err(|error| Failure::unreachable(format!("cannot write {}", path.display()), &error))?;
    InProcess::load(&path)
}

/// The text of such a configuration. JSON is YAML.
pub(super) fn text(url: &str, section: &Value, operations: Option<u16>) -> String {
    let operations = match operations {
        Some(port) => json!({ "listen": format!("127.0.0.1:{port}") }),
        None => json!({ "enabled": false }),
    };
    let source = json!({
        "url": url,
        "retention": "0s",
        // No event waits for a receiver at the end.
        "drain_timeout": "1s",
        "routes": [{ "event_type": "*", "sink": "out" }],
    });
    json!({
        "operations": operations,
        "sources": { "bench": source },
        "sinks": { "out": section },
    })
    .to_string()
}

/// Sends batches concurrently and waits for each.
async fn by_batches(
    events: &Arc<Vec<Event>>,
    send: impl Fn(Arc<Vec<Event>>, Range<usize>) -> BoxFuture<'static, Result<(), Failure>>
    + Send
    + Sync
    + 'static,
) -> Result<(), Failure> {
    let (send, next) = (Arc::new(send), Arc::new(AtomicUsize::new(0)));
    let mut tasks: JoinSet<Result<(), Failure>> = JoinSet::new();
    for _ in 0..AT_A_TIME {
        let (send, next, events) = (send.clone(), next.clone(), events.clone());
        tasks.spawn(async move {
            loop {
                let from = next.fetch_add(BATCH, Relaxed);
                if from >= events.len() {
                    return Ok(());
                }
                send(events.clone(), from..events.len().min(from + BATCH)).await?;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| Failure::unreachable("a producer ended", &error))??;
    }
    Ok(())
}

/// The headers of every message.
fn headers(event: &Event) -> [(&'static str, String); 4] {
    [
        ("event-id", event.id().to_string()),
        ("event-type", event.event_type().to_owned()),
        ("event-key", event.key().unwrap_or_default().to_owned()),
        ("occurred-at", event.occurred_at().to_string()),
    ]
}

/// An error of the bare client.
fn failed(what: &'static str) -> impl Fn(&(dyn std::error::Error + 'static)) -> Failure {
    move |error| Failure::unreachable(format!("the bare client cannot {what}"), error)
}
