//! Several relays on one database: on Postrider's own tables all of them deliver; from an external outbox table one
//! does, and another takes over.

use std::path::PathBuf;

use serde_json::Value;

use crate::{
    database::{Database, Kind},
    endpoint::Endpoint,
    place::Folder,
    relay::Relay,
    time::until,
};

const KEYS: usize = 40;

/// Two relays with a path each, so that the server knows which of them sent what.
fn config(folder: &Folder, database: &Database, server: &Endpoint, name: &str, more: &str) -> PathBuf {
    let text = format!(
        "log: {{ format: json }}\noperations: {{ enabled: false }}\ninstance: {name}\nsources:\n  shop:\n    url: {}\n    lease: 2s\n\
         \x20   poll: {{ max: 100ms }}\n{more}    routes: [{{ event_type: \"*\", sink: out }}]\n\
         sinks:\n  out: {{ http: {{ url: \"{}\", path: /{name} }} }}\n",
        database.url,
        server.url()
    );
    folder.write(&format!("{name}.yaml"), &text)
}

/// The numbers that came by a path, or by any, in the order of their first arrival.
fn came(server: &Endpoint, path: Option<&str>) -> Vec<u64> {
    let answered = server.answered();
    let of_path = answered.iter().filter(|request| path.is_none_or(|path| request.path == path));
    let mut numbers = Vec::new();
    for number in of_path.flat_map(|request| request.body.as_array().unwrap()).filter_map(Value::as_u64) {
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    numbers
}

async fn insert(database: &Database, from: usize, to: usize) {
    let rows = (from..to).map(|n| format!("('Counted', 'key-{}', '{n}')", n % KEYS)).collect::<Vec<_>>();
    database
        .run(&format!(
            "INSERT INTO postrider_event (event_type, ordering_key, payload) VALUES {}",
            rows.join(", ")
        ))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_relays_share_the_keys_of_an_outbox_and_what_one_leaves_the_other_delivers_in_order() {
    let (folder, database) = (Folder::new(), Database::native(Kind::Postgres).await);
    let server = Endpoint::start(|_, _| (200, String::new()));
    let relays = ["one", "two"].map(|name| {
        let file = config(&folder, &database, &server, name, "");
        Relay::start(&folder, &file)
    });
    let mut written = 0;
    // Both have lanes once both have delivered.
    until("both deliver", async || {
        insert(&database, written, written + KEYS).await;
        written += KEYS;
        until("what was written came", async || came(&server, None).len() == written).await;
        ["/one", "/two"].iter().all(|path| !came(&server, Some(path)).is_empty())
    })
    .await;
    let [one, _two] = relays;
    server.hold(true);
    insert(&database, written, written + 5 * KEYS).await;
    written += 5 * KEYS;
    until("both are sending", async || server.waiting() >= 2).await;
    one.kill();
    server.hold(false);
    until("all came", async || came(&server, None).len() == written).await;
    let came = came(&server, None);
    for key in 0..KEYS as u64 {
        let of_key: Vec<_> = came.iter().copied().filter(|n| n % KEYS as u64 == key).collect();
        assert!(of_key.is_sorted(), "key {key}: {of_key:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn from_somebody_elses_table_one_relay_delivers_and_the_other_takes_over() {
    let (folder, database) = (Folder::new(), Database::new(Kind::Postgres).await);
    database
        .run(
            "CREATE TABLE outbox_events (id VARCHAR(13) PRIMARY KEY, type VARCHAR(20) NOT NULL, message_group VARCHAR(255),
             payload TEXT NOT NULL, status VARCHAR(20) NOT NULL, retry_count INT NOT NULL DEFAULT 0,
             created_at TIMESTAMP NOT NULL, processed_at TIMESTAMP, error_message TEXT)",
        )
        .await;
    let insert = async |from: u64, to: u64| {
        let rows = (from..to).map(|n| {
            format!("('{n:013}', 'EVENT', 'group', '{n}', 'PENDING', '2026-01-01 10:00:00'::timestamp + interval '{n} s')")
        });
        let columns = "id, type, message_group, payload, status, created_at";
        let rows = rows.collect::<Vec<_>>().join(", ");
        database.run(&format!("INSERT INTO outbox_events ({columns}) VALUES {rows}")).await;
    };
    let server = Endpoint::start(|_, _| (200, String::new()));
    let profile = "    profile: { system: flowcatalyst }\n";
    let start = |name| Relay::start(&folder, &config(&folder, &database, &server, name, profile));
    insert(0, 50).await;
    let first = start("one");
    until("the first delivers", async || came(&server, None).len() == 50).await;
    let second = start("two");
    second.until_logged("delivering").await;
    insert(50, 100).await;
    until("it goes on", async || came(&server, None).len() == 100).await;
    assert_eq!(came(&server, Some("/two")), Vec::<u64>::new(), "the other stands by");

    server.hold(true);
    insert(100, 300).await;
    until("the first is sending", async || server.waiting() > 0).await;
    first.kill();
    server.hold(false);
    until("the other has taken over", async || came(&server, None).len() == 300).await;
    assert_eq!(came(&server, None), (0..300).collect::<Vec<_>>());
    assert!(!came(&server, Some("/two")).is_empty());
    database.until("SELECT DISTINCT status FROM outbox_events", &["COMPLETED"]).await;
}
