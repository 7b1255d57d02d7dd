//! Every setting does what the reference says of it, and `check` tells what really holds.

use serde_json::{Value, json};
use sqlx::{ConnectOptions, sqlite::SqliteConnectOptions};

use crate::place::{Folder, Receiver, postrider, said};

fn checked(folder: &Folder, text: &str) -> Value {
    let file = folder.write("relay.yaml", text);
    let output = postrider(&["check", "--json", "--config", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(folder: &Folder, text: &str) -> String {
    let file = folder.write("relay.yaml", text);
    let output = postrider(&["check", "--config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    said(&output)
}

fn with_profile(profile: &str, more: &str) -> String {
    format!(
        "sources:\n  theirs:\n    url: postgres://relay@127.0.0.1:1/theirs\n    profile: {profile}\n{more}    \
         routes: [{{ event_type: \"*\", sink: out }}]\nsinks: {{ out: {{ stdout: {{}} }} }}\n"
    )
}

#[test]
fn the_table_of_a_system_is_delivered_from_as_that_system_would_unless_the_file_says_otherwise() {
    // S4-39, S4-41, S4-43, and what FlowCatalyst and outbox-java have.
    let folder = Folder::new();
    for (system, claim, poll, attempts, backoff) in [
        ("spring-outbox", 50, "2s", 4, json!(["10s", 3.0, "none", false])),
        ("flowcatalyst", 500, "1s", 4, json!(["0s", 1.0, "none", false])),
        ("outbox-java", 200, "5s", 10, json!(["200ms", 2.0, "1m", true])),
        ("debezium", 500, "1s", 10, json!(["200ms", 2.0, "1m", true])),
    ] {
        let answer = checked(&folder, &with_profile(&format!("{{ system: {system} }}"), ""));
        let (source, route) = (&answer["sources"][0], &answer["routes"][0]["effective"]);
        assert_eq!((&source["table"], &source["queue_events"]), (&json!(system), &json!(1000)), "{answer}");
        assert_eq!((&source["claim_batch"], &source["poll_max"]), (&json!(claim), &json!(poll)), "{answer}");
        assert_eq!((&route["attempts"], &route["on_dead"]), (&json!(attempts), &json!("skip")), "{answer}");
        let told = &route["backoff"];
        assert_eq!(
            json!([told["delay"], told["multiplier"], told["max"], told["jitter"]]),
            backoff,
            "{answer}"
        );
    }
    let more = "    claim_batch: 7\n    poll: { max: 10ms }\n    defaults: { attempts: 2, backoff: { delay: 1s } }\n";
    let answer = checked(&folder, &with_profile("{ system: spring-outbox }", more));
    let (source, route) = (&answer["sources"][0], &answer["routes"][0]["effective"]);
    assert_eq!(source["claim_batch"], 7);
    assert_eq!((&source["poll_min"], &source["poll_max"]), (&json!("10ms"), &json!("10ms")));
    assert_eq!(route["attempts"], 2);
    // What is not said is still that system's.
    assert_eq!((&route["backoff"]["delay"], &route["backoff"]["multiplier"]), (&json!("1s"), &json!(3.0)));
}

#[test]
fn there_is_room_for_four_claims_unless_the_file_says_otherwise() {
    let folder = Folder::new();
    for (more, events) in [
        ("", 2000),
        ("claim_batch: 1000, ", 4000),
        ("claim_batch: 10, ", 1000),
        ("claim_batch: 1000, queue: { events: 300 }, ", 300),
    ] {
        let source = format!("{{ {more}url: shop.db, routes: [{{ event_type: a, sink: out }}] }}");
        let answer = checked(
            &folder,
            &format!("sources: {{ shop: {source} }}\nsinks: {{ out: {{ stdout: {{}} }} }}\n"),
        );
        assert_eq!(answer["sources"][0]["queue_events"], events, "{more}");
    }
}

#[test]
fn one_time_of_a_recovery_can_be_given_without_the_other() {
    let folder = Folder::new();
    let answer = checked(
        &folder,
        &with_profile("{ system: outbox-java, recovery: { after: 30s }, skip_recent: 3s }", ""),
    );
    let times = &answer["sources"][0]["profile"];
    assert_eq!(
        *times,
        json!({ "skip_recent": "3s", "recovery_after": "30s", "recovery_every": "1m" }),
        "{answer}"
    );
}

#[test]
fn what_a_table_or_a_sink_has_no_use_for_is_refused_with_a_hint() {
    let folder = Folder::new();
    for (profile, more, told) in [
        ("{ system: flowcatalyst }", "    prefix: shop_\n", "`prefix`"),
        ("{ system: flowcatalyst }", "    lanes: 8\n", "`lanes`"),
        ("{ system: flowcatalyst }", "    pooled: true\n", "`pooled`"),
        ("{ system: flowcatalyst }", "    defaults: { on_dead: block }\n", "`on_dead` is `block`"),
        ("{ system: spring-outbox, columns: { error: e }, without: [error] }", "", "`error`"),
    ] {
        let text = refused(&folder, &with_profile(profile, more));
        assert!(text.contains(told) && text.contains("hint:"), "{text}");
    }
    let traces = |endpoint: &str| {
        let plain = with_profile("{ system: flowcatalyst }", "");
        format!("operations: {{ traces: {{ endpoint: \"{endpoint}\" }} }}\n{plain}")
    };
    for endpoint in ["localhost:4318", "grpc://localhost:4317", "http://"] {
        assert!(refused(&folder, &traces(endpoint)).contains("operations.traces.endpoint"), "{endpoint}");
    }
    assert_eq!(checked(&folder, &traces("http://u:canary@localhost:4318"))["good"], true);
    let plain = |source: &str, route: &str, sink: &str| {
        format!(
            "sources: {{ shop: {{ url: shop.db{source}, routes: [{{ event_type: \"*\", sink: out{route} }}] }} }}\n\
             sinks: {{ out: {{ {sink} }} }}\n"
        )
    };
    for (source, route, sink, told) in [
        (", lanes: 8", "", "stdout: {}", "lanes is 8; it must be 1"),
        (", pooled: true", "", "stdout: {}", "pooled is true"),
        (", prefix: \"a;b\"", "", "stdout: {}", "`prefix`"),
        ("", ", topic: orders", "stdout: {}", "`topic`"),
        ("", "", "stdout: {}, format: cloud-events-structured", "`format`"),
        ("", "", "http: { url: \"http://localhost\" }, format: cloud-events-binary", "`cloud-events-binary`"),
        ("", "", "http: { url: \"http://localhost\" }, cloud_events_source: shop", "`cloud_events_source`"),
    ] {
        let text = refused(&folder, &plain(source, route, sink));
        assert!(text.contains(told), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_with_another_prefix_are_made_and_delivered_from() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let database = folder.path("shop.db").display().to_string();
    let text = format!(
        "sources: {{ shop: {{ url: \"{database}\", prefix: shop_, lanes: 1, routes: [{{ event_type: \"*\", sink: out }}] }} }}\n\
         sinks: {{ out: {{ http: {{ url: \"{}\" }} }} }}\n",
        receiver.url
    );
    let file = folder.write("relay.yaml", &text);
    let once = || postrider(&["run", "--once", "--config", file.to_str().unwrap()]);
    assert!(once().status.success());
    let mut conn = SqliteConnectOptions::new().filename(&database).connect().await.unwrap();
    sqlx::query("INSERT INTO shop_event (event_type, payload) VALUES ('OrderPlaced', '7')")
        .execute(&mut conn)
        .await
        .unwrap();
    let output = once();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(receiver.payloads(), [json!(7)]);
}
