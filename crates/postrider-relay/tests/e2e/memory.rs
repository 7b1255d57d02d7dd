//! Memory stays within its budget, whatever events weigh.

#![cfg(target_os = "linux")]

use crate::{
    database::{Database, Kind},
    place::Folder,
    relay::Relay,
    time::until,
};

/// Payloads of a mebibyte, ten times as many as the queues have room for.
const EVENTS: usize = 640;

/// How much more may be resident than at the start, with queues of 64 MiB: the queues, one claim while it is read, what sinks spell out,
/// and what the allocator keeps.
const GROWTH_MIB_MAX: u64 = 160;

async fn largest_resident(kind: Kind, insert: &str) {
    let (folder, database) = (Folder::new(), Database::native(kind).await);
    let config = format!(
        "log: {{ format: json }}\noperations: {{ enabled: false }}\nsources:\n  shop:\n    url: {}\n    routes: [{{ event_type: \"*\", sink: out }}]\n\
         sinks:\n  out: {{ file: {{ path: out.ndjson, sync: false }} }}\n",
        database.url
    );
    let mut relay = Relay::start(&folder, &folder.write("postrider.yaml", &config));
    relay.until_logged("engine started").await;
    let at_start = relay.resident_mib_max();
    database.run(insert).await;
    let left = "SELECT CONCAT(COUNT(*), '') FROM postrider_event";
    until("all is delivered", async || database.lines(left).await == ["0"]).await;
    let resident = relay.resident_mib_max();
    assert!(resident < at_start + GROWTH_MIB_MAX, "{kind:?}: {resident} MiB, {at_start} MiB at the start");
    assert!(relay.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn large_payloads_to_a_file_need_little_more_than_the_queue_on_postgresql() {
    let insert = format!(
        "INSERT INTO postrider_event (event_type, payload)
         SELECT 'Large', '\"' || repeat('x', 1048000) || '\"' FROM generate_series(1, {EVENTS})"
    );
    largest_resident(Kind::Postgres, &insert).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_payloads_to_a_file_need_little_more_than_the_queue_on_mysql() {
    let insert = "INSERT INTO postrider_event (event_type, payload) VALUES ('Large', CONCAT('\"', REPEAT('x', 1048000), '\"'));";
    largest_resident(Kind::Mysql, &insert.repeat(EVENTS)).await;
}
