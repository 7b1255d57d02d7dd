//! A canary in every secret setting: no command, no log at any level, no metric and no health answer sings.

use std::{collections::BTreeSet, path::Path};

use crate::{
    database::{Database, Kind},
    endpoint::Endpoint,
    place::{Folder, fresh_name, program, said},
    relay::Relay,
    server,
    time::until,
    topics::{Kafka, Nats, Rabbit},
};

/// `canary-canary-canary-canary!` in Base64, as a signing key is written.
const SIGNING_KEY: &str = "Y2FuYXJ5LWNhbmFyeS1jYW5hcnktY2FuYXJ5IQ==";

/// The settings that hold secrets, as `postrider check --reference` names them.
fn secret_settings() -> BTreeSet<(String, String)> {
    let reference = said(&program().args(["check", "--reference"]).output().unwrap());
    let mut settings = BTreeSet::new();
    let mut section = "";
    for line in reference.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.trim_matches('`');
        }
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        if let [_, setting, kind, ..] = cells.as_slice()
            && kind.contains("secret")
        {
            settings.insert((section.to_owned(), setting.trim_matches('`').to_owned()));
        }
    }
    settings
}

/// What must not be in anything that is printed.
struct Listener {
    secrets: Vec<String>,
}

impl Listener {
    fn hear(&mut self, from: &str, text: &str) {
        let lower = text.to_lowercase();
        for secret in &self.secrets {
            let place = lower.find(&secret.to_lowercase());
            let around = place.map(|place| lower.get(place.saturating_sub(200)..).unwrap_or(&lower));
            assert!(around.is_none(), "{from} says {secret}: …{:.600}", around.unwrap_or_default());
        }
    }

    /// Runs a command, and gives its exit status.
    fn run(&mut self, config: &Path, args: &[&str]) -> i32 {
        let output = program().args(args).arg("--config").arg(config).env("POSTRIDER_LOG", "trace").output();
        let output = output.unwrap();
        self.hear(&args.join(" "), &said(&output));
        output.status.code().unwrap_or(-1)
    }
}

/// Where the sinks are.
struct Servers {
    endpoint: String,
    webhook: String,
    kafka: String,
    rabbitmq: String,
    nats: String,
    redis: String,
}

impl Servers {
    /// The servers that all tests share, with the passwords that they really have.
    fn shared(endpoint: &Endpoint) -> Self {
        Self {
            endpoint: endpoint.url(),
            webhook: endpoint.url(),
            kafka: server::url("POSTRIDER_TEST_KAFKA_URL").strip_prefix("kafka://").unwrap().to_owned(),
            rabbitmq: server::url("POSTRIDER_TEST_RABBITMQ_URL"),
            nats: server::url("POSTRIDER_TEST_NATS_URL"),
            redis: server::url("POSTRIDER_TEST_REDIS_URL"),
        }
    }
}

fn password(url: &str) -> &str {
    let (_, rest) = url.split_once("://").unwrap();
    let (account, _) = rest.rsplit_once('@').unwrap();
    account.split_once(':').unwrap().1
}

/// The same place with another password.
fn with_password(url: &str, other: &str) -> String {
    url.replace(password(url), other)
}

/// A sink of each kind that has secrets, a type of events for each, and a canary wherever one can be.
fn config(source: &str, servers: &Servers, name: &str, kafka_more: &str) -> String {
    let Servers { endpoint, webhook, kafka, rabbitmq, nats, redis } = servers;
    let host = endpoint.strip_prefix("http://").unwrap();
    let types = ["Http", "Webhook", "Kafka", "Rabbitmq", "Nats", "Redis"];
    let routes: String = types
        .iter()
        .map(|kind| format!("      - {{ event_type: {kind}, sink: {} }}\n", kind.to_lowercase()))
        .collect();
    format!(
        "log: {{ format: json, level: trace }}\n\
         operations:\n  listen: 127.0.0.1:0\n  token: canary-Operations-token\n\
         \x20 traces: {{ endpoint: \"http://us:canary-Traces-endpoint@{host}/canary-Traces-path\", headers: {{ x-key: canary-Traces-headers }} }}\n\
         sources:\n  shop:\n    url: \"{source}\"\n    poll: {{ max: 100ms }}\n    routes:\n{routes}\
         sinks:\n  http:\n    http: {{ url: \"{endpoint}/canary-Http-path?key=canary-Http-url\", token: canary-Http-token, headers: {{ x-key: canary-Http-headers }} }}\n\
         \x20 webhook:\n    webhook: {{ url: \"{webhook}/canary-Webhook-path?key=canary-Webhook-url\", secrets: [whsec_{SIGNING_KEY}], headers: {{ x-key: canary-Webhook-headers }} }}\n\
         \x20 kafka:\n    timeout: 3s\n    kafka: {{ brokers: \"{kafka}\", topic: {name}, properties: {{ {kafka_more}sasl.password: canary-Kafka-properties }} }}\n\
         \x20 rabbitmq: {{ rabbitmq: {{ url: \"{rabbitmq}\", routing_key: {name} }} }}\n\
         \x20 nats: {{ nats: {{ url: \"{nats}\", subject: {name} }} }}\n\
         \x20 redis: {{ redis: {{ url: \"{redis}\", stream: {name} }} }}\n"
    )
}

const KINDS: [&str; 6] = ["Http", "Webhook", "Kafka", "Rabbitmq", "Nats", "Redis"];

async fn write(database: &Database) {
    for kind in KINDS {
        let event = format!(
            "INSERT INTO postrider_event (event_id, event_type, ordering_key, payload) VALUES ('{kind}', '{kind}', '{kind}', '{{}}')"
        );
        database.run(&event).await;
    }
}

/// Asks the operators' endpoint of a relay.
async fn get(address: &str, path: &str, listener: &mut Listener) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer canary-Operations-token\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    listener.hear(path, &answer);
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_in_every_secret_setting_is_in_no_output() {
    let (folder, database) = (Folder::new(), Database::native(Kind::Postgres).await);
    let endpoint = Endpoint::start(|_, _| (200, String::new()));
    let (name, servers) = (fresh_name("e2e-"), Servers::shared(&endpoint));
    Kafka(servers.kafka.clone()).create(&name).await;
    Rabbit(servers.rabbitmq.clone()).create(&name).await;
    Nats(servers.nats.clone()).create(&name).await;
    let real =
        [&database.url, &servers.rabbitmq, &servers.nats, &servers.redis].map(|url| password(url).to_owned());
    let secrets =
        real.into_iter().chain(["canary".to_owned(), SIGNING_KEY.to_owned(), "Y2FuYXJ5".to_owned()]);
    let mut listener = Listener { secrets: secrets.collect() };

    // All is well: the passwords of the servers are the canaries of their URLs.
    let source = format!("{}?application_name=canary-Source-url", database.url);
    let good = config(&source, &servers, &name, "");
    let file = folder.write("good.yaml", &good);
    for args in
        [&["check"][..], &["check", "--json"], &["check", "--connect"], &["check", "--connect", "--json"]]
    {
        assert_eq!(listener.run(&file, args), 0, "{args:?}");
    }
    write(&database).await;
    let mut relay = Relay::start(&folder, &file);
    database.until("SELECT count(*)::text FROM postrider_done", &["6"]).await;
    let operations = relay.operations().await;
    for path in ["/metrics", "/health/ready", "/health/live"] {
        assert_eq!(get(&operations, path, &mut listener).await, 200, "{path}");
    }
    assert!(relay.stop().await.success());
    listener.hear("run", &relay.printed());

    // Nothing is: each URL has a password that is wrong, and the endpoint is gone.
    let wrong = Servers {
        endpoint: "http://127.0.0.1:1".to_owned(),
        webhook: "http://canary-user:canary-Webhook-url@127.0.0.1:1".to_owned(),
        kafka: servers.kafka.clone(),
        rabbitmq: with_password(&servers.rabbitmq, "canary-Rabbitmq-url"),
        nats: with_password(&servers.nats, "canary-Nats-url"),
        redis: with_password(&servers.redis, "canary-Redis-url"),
    };
    let sasl = "security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN, sasl.username: canary-Kafka-user, ";
    let bad = config(&source, &wrong, &name, sasl);
    let file = folder.write("bad.yaml", &bad);
    for args in [&["check", "--connect"][..], &["check", "--connect", "--json"]] {
        assert_eq!(listener.run(&file, args), 3, "{args:?}");
    }
    database.run("DELETE FROM postrider_done").await;
    write(&database).await;
    let mut relay = Relay::start(&folder, &file);
    until("every sink is found to be down", async || {
        relay.printed().matches("sink unavailable").count() >= 6
    })
    .await;
    let operations = relay.operations().await;
    get(&operations, "/metrics", &mut listener).await;
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["dead", "list"],
        &["dead", "list", "--json"],
        &["events", "--payload"],
        &["events", "--json"],
        &["pause", "--type", "Http"],
        &["status"],
        &["resume", "--type", "Http"],
        &["init"],
        &["init", "--print"],
    ] {
        assert_eq!(listener.run(&file, args), 0, "{args:?}");
    }
    // It asks each sink how it is.
    for kind in KINDS {
        assert_eq!(listener.run(&file, &["why", "--key", kind]), 0, "{kind}");
        assert_eq!(listener.run(&file, &["why", "--id", kind, "--json"]), 0, "{kind}");
    }
    get(&operations, "/health/ready", &mut listener).await;
    assert!(relay.stop().await.success());
    listener.hear("run", &relay.printed());
    let nowhere = with_password(&database.url, "canary-Source-url");
    let file = folder.write("nowhere.yaml", &config(&nowhere, &wrong, &name, sasl));
    for args in [&["status"][..], &["check", "--connect"], &["dead", "list"], &["run", "--once"]] {
        assert_ne!(listener.run(&file, args), 0, "{args:?}");
    }
    let relay = Relay::start(&folder, &file);
    let operations = relay.operations().await;
    relay.until_logged("source unavailable").await;
    assert_eq!(get(&operations, "/health/ready", &mut listener).await, 503);
    listener.hear("run", &relay.printed());

    // And mistakes in the very place of a secret, or beside it.
    for (right, mistaken) in [
        ("token: canary-Http-token", "token: { canary: canary }"),
        ("token: canary-Http-token", "token: canary-Http-token, tokne: canary"),
        ("token: canary-Http-token", "token: \"canary\\u0000\""),
        ("token: canary-Operations-token", "tokn: canary-Operations-token"),
        (SIGNING_KEY, "canary-not-base64"),
        ("x-key: canary-Http-headers", "\"x key\": canary"),
        ("sasl.password: canary", "sasl.passwort: canary"),
        ("rabbitmq: { url: \"amqp://", "rabbitmq: { url: \""),
        ("nats: { url: \"nats://", "nats: { url: \""),
        ("redis: { url: \"redis://", "redis: { url: \""),
        ("    url: \"postgres://", "    url: \"postgras://"),
    ] {
        assert!(bad.contains(right), "{right}");
        let file = folder.write("mistaken.yaml", &bad.replace(right, mistaken));
        assert_ne!(listener.run(&file, &["check", "--connect"]), 0, "{mistaken}");
        assert_ne!(listener.run(&file, &["run", "--once"]), 0, "{mistaken}");
    }

    // Every setting that can hold a secret had one.
    for (section, setting) in secret_settings() {
        let canary = format!("canary-{section}-{setting}");
        let there = match setting.as_str() {
            "secrets" => bad.contains(SIGNING_KEY),
            _ => [&good, &bad].iter().any(|text| text.contains(&canary)),
        };
        assert!(there, "{section}.{setting} is a secret, and no canary was put there");
    }
    assert!(secret_settings().len() >= 12, "{:?}", secret_settings());
}
