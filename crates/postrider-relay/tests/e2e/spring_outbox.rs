//! spring-outbox's table, and the example of its documentation as `docs/relay/from-spring-outbox.md` translates it.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{
    database::{Database, Kind},
    endpoint::Endpoint,
    place::{Folder, fresh_name, program, said},
    relay::Relay,
    server,
    topics::{Kafka, Rabbit},
};

const DOCUMENT: &str = include_str!("../../../../docs/relay/from-spring-outbox.md");
const QUIET: &str = "log: { format: json }\noperations: { enabled: false }\n";

/// The configuration of the document.
fn translated() -> &'static str {
    let (_, block) = DOCUMENT.split_once("```yaml\n").unwrap();
    block.split_once("```").unwrap().0
}

/// Its table and events of these types, as its publisher writes them; the last part of an id is the event's number.
async fn table(database: &Database, event_types: &[&str]) {
    database
        .run(
            "CREATE TABLE outbox_events (id UUID PRIMARY KEY, event_type VARCHAR(100) NOT NULL, payload TEXT NOT NULL,
               status VARCHAR(20) NOT NULL, retry_count INT NOT NULL DEFAULT 0, next_retry_at TIMESTAMP,
               created_at TIMESTAMP NOT NULL, updated_at TIMESTAMP)",
        )
        .await;
    for (n, event_type) in event_types.iter().enumerate() {
        let event = format!(
            "INSERT INTO outbox_events (id, event_type, payload, status, created_at) VALUES
             ('{}', '{event_type}', '{{\"n\": {n}}}', 'PENDING', now())",
            id(n)
        );
        database.run(&event).await;
    }
}

fn id(n: usize) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

fn with_variables(folder: &Folder, config: &str, database: &Database) -> PathBuf {
    let text = config
        .replace("${DATABASE_URL}", &database.url)
        .replace("${KAFKA}", server::url("POSTRIDER_TEST_KAFKA_URL").strip_prefix("kafka://").unwrap())
        .replace("${RABBITMQ_URL}", &server::url("POSTRIDER_TEST_RABBITMQ_URL"));
    folder.write("postrider.yaml", &format!("{QUIET}{text}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_and_rabbitmq_receive_the_events_of_spring_outbox_with_id_and_type_in_headers() {
    // S4-6, S4-19
    let (folder, database) = (Folder::new(), Database::new(Kind::Postgres).await);
    table(&database, &["order-created", "order-updated", "notification-sent", "order-created"]).await;
    // Topics of this test's own.
    let name = fresh_name("e2e-");
    let config = translated().replace("topic: orders.", &format!("topic: {name}.orders."));
    let config = config.replace("topic: notifications", &format!("topic: {name}.notifications"));
    let kafka = Kafka(server::url("POSTRIDER_TEST_KAFKA_URL").strip_prefix("kafka://").unwrap().to_owned());
    let rabbit = Rabbit(server::url("POSTRIDER_TEST_RABBITMQ_URL"));
    let topics = ["created", "updated"].map(|topic| format!("{name}.orders.{topic}"));
    for topic in &topics {
        kafka.create(topic).await;
    }
    rabbit.create(&format!("{name}.notifications")).await;
    let mut relay = Relay::start(&folder, &with_variables(&folder, &config, &database));
    let statuses = "SELECT status, sum(retry_count)::text FROM outbox_events GROUP BY status";
    database.until(statuses, &["PROCESSED|0"]).await;
    assert!(relay.stop().await.success());

    let created = kafka.read(&topics[0]).await;
    let updated = kafka.read(&topics[1]).await;
    let sent = rabbit.take(&format!("{name}.notifications")).await;
    for (messages, event_type, numbers) in [
        (&created, "order-created", &[0, 3][..]),
        (&updated, "order-updated", &[1][..]),
        (&sent, "notification-sent", &[2][..]),
    ] {
        let mut came: Vec<_> = messages
            .iter()
            .map(|message| {
                let header = |name: &str| message.headers.get(name).cloned().unwrap_or_default();
                (header("event-id"), header("event-type"), message.payload.clone())
            })
            .collect();
        came.sort();
        let expected: Vec<_> =
            numbers.iter().map(|n| (id(*n), event_type.to_owned(), format!("{{\"n\": {n}}}"))).collect();
        assert_eq!(came, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_type_has_the_attempts_the_batch_the_pace_and_the_backoff_of_its_own_section_or_the_defaults() {
    // S4-39, S4-41, S4-42
    let (folder, database) = (Folder::new(), Database::new(Kind::Postgres).await);
    let file = with_variables(&folder, translated(), &database);
    let check = program().args(["check", "--json", "--config"]).arg(file).output().unwrap();
    assert!(check.status.success(), "{}", said(&check));
    let answer: Value = serde_json::from_slice(&check.stdout).unwrap();
    let routes: Vec<_> = answer["routes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|route| {
            let effective = &route["effective"];
            let backoff = &effective["backoff"];
            let backoff =
                ["enabled", "delay", "multiplier", "max", "jitter"].map(|name| backoff[name].clone());
            json!([
                route["event_type"],
                effective["attempts"],
                effective["batch"],
                effective["pace"],
                backoff
            ])
        })
        .collect();
    assert_eq!(
        routes,
        [
            json!(["order-created", 6, 100, "1s", [true, "5s", 2.0, "none", false]]),
            json!(["order-updated", 4, 50, "2s", [false, "10s", 3.0, "none", false]]),
            json!(["notification-sent", 4, 50, "2s", [true, "10s", 3.0, "none", false]]),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_fails_waits_as_its_type_says_and_has_failed_after_its_types_attempts() {
    // S4-11, S4-12
    let (folder, database) = (Folder::new(), Database::new(Kind::Postgres).await);
    table(&database, &["order-created", "order-updated", "soon-failed"]).await;
    let endpoint = Endpoint::start(|_, _| (500, "no".to_owned()));
    // The brokers' place is taken by a receiver that is well and takes nothing.
    let (routes, _) = translated().split_once("sinks:\n").unwrap();
    let failing = format!("{{ http: {{ url: \"{}\", health_path: /health }} }}", endpoint.url());
    let config =
        routes.replace("topic: orders.", "topic: /orders.").replace("topic: notifications", "topic: /n");
    let config = format!(
        "{config}      - {{ event_type: soon-failed, sink: rabbit, topic: /soon, attempts: 3, pace: 0s, backoff: {{ delay: 50ms }} }}\n\
         sinks:\n  kafka: {failing}\n  rabbit: {failing}\n"
    );
    let relay = Relay::start(&folder, &with_variables(&folder, &config, &database));
    // How many times five seconds: they are told to the second, and the claim was a moment before.
    let waits = "SELECT event_type, status, retry_count::text,
                   floor(extract(epoch FROM next_retry_at - updated_at) / 5)::int::text
                 FROM outbox_events WHERE event_type LIKE 'order%' ORDER BY event_type";
    database.until(waits, &["order-created|PENDING|1|1", "order-updated|PENDING|1|2"]).await;
    let failed = "SELECT status, retry_count::text FROM outbox_events WHERE event_type = 'soon-failed'";
    database.until(failed, &["FAILED|2"]).await;
    let sends = endpoint.answered().iter().filter(|request| request.path == "/soon").count();
    assert_eq!(sends, 3, "as often as it may be tried");
    drop(relay);
}
