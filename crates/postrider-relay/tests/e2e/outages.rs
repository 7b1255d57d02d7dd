//! A receiver that is stopped and started while the relay runs: nothing is lost, nothing is dead, keys keep their order.

use std::{collections::BTreeMap, path::PathBuf};

use crate::{
    database::{Database, Kind},
    endpoint::Endpoint,
    place::Folder,
    relay::Relay,
    server::Lent,
    time::until,
    topics::{Kafka, Message, Nats, Rabbit, Redis},
};

const KEYS: usize = 10;
const EVENTS: usize = 200;

/// A database, and a relay from it to a sink that is described in YAML.
struct Stage {
    database: Database,
    relay: Relay,
    written: usize,
    _folder: Folder,
}

fn config(folder: &Folder, database: &Database, sinks: &str, routes: &str) -> PathBuf {
    let text = format!(
        "log: {{ format: json }}\noperations: {{ enabled: false }}\nsources:\n  shop:\n    url: {}\n    poll: {{ max: 100ms }}\n\
         \x20   defaults: {{ attempts: 3, backoff: {{ enabled: false, delay: 10ms }} }}\n    routes:\n{routes}sinks:\n{sinks}",
        database.url
    );
    folder.write("postrider.yaml", &text)
}

impl Stage {
    async fn to(sink: &str) -> Self {
        let (folder, database) = (Folder::new(), Database::native(Kind::Postgres).await);
        let file = config(
            &folder,
            &database,
            &format!("  out: {{ {sink} }}\n"),
            "      - { event_type: \"*\", sink: out }\n",
        );
        let relay = Relay::start(&folder, &file);
        Self { database, relay, written: 0, _folder: folder }
    }

    async fn write(&mut self) {
        self.written = write(&self.database, "Counted", self.written).await;
    }

    /// Waits until so many are delivered.
    async fn until_done(&self, events: usize) {
        let done = format!("SELECT CASE WHEN count(*) >= {events} THEN 'enough' END FROM postrider_done");
        self.database.until(&done, &["enough"]).await;
    }

    /// Stops the receiver in the middle of a stream of events, and starts it again when that was noticed.
    async fn with_outage(&mut self, stop: impl FnOnce(), start: impl FnOnce()) {
        self.write().await;
        self.until_done(1).await;
        self.write().await;
        stop();
        self.write().await;
        self.relay.until_logged("unavailable").await;
        start();
        self.write().await;
        self.until_done(self.written).await;
    }

    /// All came; and the first time that each came, it came in its place.
    async fn judge(&self, messages: &[Message]) {
        let left = self.database.lines("SELECT event_id, status, last_error FROM postrider_event").await;
        assert_eq!(left, Vec::<String>::new(), "nothing waits, nothing is dead");
        let mut by_key = BTreeMap::<String, Vec<usize>>::new();
        for message in messages {
            let number = message.payload.parse().unwrap();
            let of_key = by_key.entry(message.key.clone().expect("a key")).or_default();
            if !of_key.contains(&number) {
                of_key.push(number);
            }
        }
        let expected =
            (0..KEYS).map(|key| (format!("Counted-{key}"), (key..self.written).step_by(KEYS).collect()));
        assert_eq!(by_key, expected.collect());
    }
}

/// Writes events with numbers from `from` on, all in one transaction. Says where the next ones begin.
async fn write(database: &Database, event_type: &str, from: usize) -> usize {
    let rows = (from..from + EVENTS)
        .map(|n| format!("('{event_type}', '{event_type}-{}', '{n}')", n % KEYS))
        .collect::<Vec<_>>();
    let columns = "event_type, ordering_key, payload";
    database.run(&format!("INSERT INTO postrider_event ({columns}) VALUES {}", rows.join(", "))).await;
    from + EVENTS
}

/// The events that an endpoint has taken, with the keys that they were written with.
fn taken(endpoint: &Endpoint) -> Vec<Message> {
    let mut messages = Vec::new();
    for request in endpoint.answered() {
        let one = [request.body.clone()];
        for payload in request.body.as_array().map_or(&one[..], Vec::as_slice) {
            let key = payload.as_u64().unwrap() as usize % KEYS;
            let key = Some(format!("Counted-{key}"));
            messages.push(Message { key, headers: BTreeMap::new(), payload: payload.to_string() });
        }
    }
    messages
}

async fn an_endpoint_goes_away(sink: &str) {
    let endpoint = std::cell::RefCell::new(Endpoint::start(|_, _| (200, String::new())));
    let url = endpoint.borrow().url();
    let mut stage = Stage::to(&sink.replace("URL", &url)).await;
    stage.with_outage(|| endpoint.borrow_mut().go_away(), || endpoint.borrow_mut().come_back()).await;
    let taken = taken(&endpoint.borrow());
    stage.judge(&taken).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_an_http_batch_endpoint_loses_kills_and_disorders_nothing() {
    an_endpoint_goes_away("http: { url: \"URL\", path: /events }").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_a_webhook_loses_kills_and_disorders_nothing() {
    an_endpoint_goes_away("webhook: { url: \"URL\", secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw] }")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_kafka_loses_kills_and_disorders_nothing() {
    let server = std::cell::RefCell::new(Lent::borrow("kafka").await);
    let kafka = Kafka(server.borrow().address().to_owned());
    kafka.create("events").await;
    let mut stage =
        Stage::to(&format!("timeout: 2s, kafka: {{ brokers: \"{}\", topic: events }}", kafka.0)).await;
    stage.with_outage(|| server.borrow_mut().stop(), || server.borrow_mut().start_again()).await;
    stage.judge(&kafka.read("events").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_rabbitmq_loses_kills_and_disorders_nothing() {
    let server = std::cell::RefCell::new(Lent::borrow("rabbitmq").await);
    let rabbit = Rabbit(server.borrow().url.clone());
    rabbit.create("events").await;
    let mut stage = Stage::to(&format!("rabbitmq: {{ url: \"{}\", routing_key: events }}", rabbit.0)).await;
    stage.with_outage(|| server.borrow_mut().stop(), || server.borrow_mut().start_again()).await;
    stage.judge(&rabbit.take("events").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_nats_loses_kills_and_disorders_nothing() {
    let server = std::cell::RefCell::new(Lent::borrow("nats").await);
    let nats = Nats(server.borrow().url.clone());
    nats.create("events").await;
    let mut stage = Stage::to(&format!("nats: {{ url: \"{}\", subject: events }}", nats.0)).await;
    stage.with_outage(|| server.borrow_mut().stop(), || server.borrow_mut().start_again()).await;
    stage.judge(&nats.read("events").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_redis_loses_kills_and_disorders_nothing() {
    let server = std::cell::RefCell::new(Lent::borrow("redis").await);
    let redis = Redis(server.borrow().url.clone());
    redis.keep();
    let mut stage = Stage::to(&format!("redis: {{ url: \"{}\", stream: events }}", redis.0)).await;
    let stop = || {
        // A restart forgets it.
        redis.keep();
        server.borrow_mut().stop();
    };
    stage.with_outage(stop, || server.borrow_mut().start_again()).await;
    stage.judge(&redis.read("events")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_sinks_the_living_one_is_sent_everything_while_the_other_is_dead() {
    let (folder, database) = (Folder::new(), Database::native(Kind::Postgres).await);
    let mut endpoint = Endpoint::start(|_, _| (200, String::new()));
    let lines = folder.path().join("events.ndjson");
    let sinks = format!(
        "  dead: {{ http: {{ url: \"{}\" }} }}\n  living: {{ file: {{ path: {} }} }}\n",
        endpoint.url(),
        lines.display()
    );
    let routes =
        "      - { event_type: ToTheDead, sink: dead }\n      - { event_type: ToTheLiving, sink: living }\n";
    let file = config(&folder, &database, &sinks, routes);
    endpoint.go_away();
    let relay = Relay::start(&folder, &file);
    let (mut dead, mut living) = (0, 0);
    for _ in 0..10 {
        // More for the one that is down, and before the other's.
        dead = write(&database, "ToTheDead", dead).await;
        living = write(&database, "ToTheLiving", living).await;
    }
    relay.until_logged("unavailable").await;
    let arrived = || std::fs::read_to_string(&lines).unwrap_or_default().lines().count();
    until("the living sink has all", async || arrived() >= living).await;
    let waiting =
        "SELECT event_type, count(*)::text, max(status)::text FROM postrider_event GROUP BY event_type";
    database.until(waiting, &[&format!("ToTheDead|{dead}|0")]).await;
    assert_eq!(endpoint.answered().len(), 0);
    endpoint.come_back();
    until("the other has all when it is back", async || taken(&endpoint).len() >= dead).await;
    database.until(waiting, &[]).await;
    assert_eq!(arrived(), living, "nothing twice");
}
