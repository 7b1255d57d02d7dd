//! `postrider pause` and `postrider resume`, beside a relay that runs.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::place::{Folder, Receiver, Relay, eventually, insert, postrider, said};

fn config(folder: &Folder, receiver: &Receiver) -> String {
    let database = folder.path("shop.db").display().to_string();
    format!(
        "log: {{ format: json }}\noperations: {{ enabled: false }}\nsources:\n  shop:\n    url: {database}\n    poll: {{ max: 50ms }}\n    routes:\n      \
         - {{ event_type: \"Order*\", sink: orders }}\n      - {{ event_type: \"*\", sink: audit }}\n\
         sinks:\n  orders:\n    http: {{ url: \"{url}\", path: /orders, health_path: /health }}\n  audit:\n    http: {{ url: \"{url}\", path: /audit }}\n",
        url = receiver.url
    )
}

/// What the program answers to a program.
fn asked(args: &[&str]) -> Value {
    let output = postrider(args);
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_pauses_waits_at_a_relay_that_runs_and_after_its_restart_until_it_is_resumed() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    let file = folder.write("relay.yaml", &config(&folder, &receiver));
    let file = file.to_str().unwrap();
    let mut relay = Relay::start(file.as_ref(), &[]);
    relay.until_logged("delivering");
    let said_by = |verb: &str, what: &[&str]| asked(&[&[verb, "--config", file, "--json"], what].concat());

    let paused = said_by("pause", &["--sink", "orders", "--reason", "the shop is moved"]);
    assert_eq!((&paused["new"], &paused["source"]), (&json!(true), &json!("shop")));
    assert_eq!((&paused["pause"]["kind"], &paused["pause"]["name"]), (&json!("sink"), &json!("orders")));
    assert_eq!(said_by("pause", &["--sink", "orders"])["new"], json!(false));
    relay.until_logged("paused");
    said_by("pause", &["--key", "Order:7"]);
    relay.until_logged("paused");
    for n in 0..10 {
        insert(&mut database, "OrderPlaced", "Order:1", &n.to_string()).await;
        insert(&mut database, "Noted", "Order:7", &(100 + n).to_string()).await;
        insert(&mut database, "Noted", "Note:1", &(200 + n).to_string()).await;
    }
    let others: Vec<Value> = (200..210).map(Value::from).collect();
    eventually("all others arrived", async || receiver.payloads() == others).await;

    let status = said_by("status", &[]);
    assert_eq!(status["shop"]["pauses"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!(status["shop"]["pauses"][0]["reason"], json!("the shop is moved"));
    let why = said_by("why", &["--key", "Order:7"]);
    assert_eq!((&why["paused"][0]["kind"], &why["may_be_paused"]), (&json!("key"), &json!([])), "{why}");
    assert_eq!(
        why["sink"],
        json!({
            "name": "audit",
            "well": null,
            "answer": "has no health check",
            "relay_takes_it_for_down": null
        }),
        "{why}"
    );
    let order = said_by("why", &["--key", "Order:1"]);
    let id = order["id"].as_str().unwrap();
    let text = said(&postrider(&["why", "--id", id, "--config", file]));
    assert!(text.contains(&format!("{id} waits for its first attempt\n")), "{text}");
    assert!(text.contains("  type OrderPlaced, key Order:1, to sink `orders`\n"), "{text}");
    assert!(text.contains("  waits: the sink orders is paused since 2"), "{text}");
    assert!(text.contains("  sink `orders` passed its health check"), "{text}");
    // Without a configuration nobody knows where it goes.
    let url = folder.path("shop.db").display().to_string();
    let why = asked(&["why", "--id", id, "--url", &url, "--json"]);
    assert_eq!((&why["paused"], &why["sink"]), (&json!([]), &Value::Null), "{why}");
    assert_eq!(why["may_be_paused"][0]["name"], "orders", "{why}");
    let text = said(&postrider(&["status", "--config", file]));
    assert!(text.contains("shop: the sink orders is paused since"), "{text}");
    assert!(text.contains("(the shop is moved)"), "{text}");

    relay.signal("TERM");
    assert_eq!(relay.ended(), 0);
    let mut relay = Relay::start(file.as_ref(), &[]);
    relay.until_logged("delivering");
    insert(&mut database, "Noted", "Note:2", "300").await;
    eventually("the relay delivers", async || receiver.payloads().contains(&json!(300))).await;
    assert_eq!(receiver.payloads().len(), 11, "nothing that is paused was sent");

    assert_eq!(said_by("resume", &["--key", "Order:7"])["resumed"], json!(true));
    assert_eq!(said_by("resume", &["--key", "Order:7"])["resumed"], json!(false));
    said_by("resume", &["--sink", "orders"]);
    eventually("all arrived", async || receiver.payloads().len() == 31).await;
    let of = |from: u64| {
        let within = |value: &Value| value.as_u64().is_some_and(|n| (from..from + 10).contains(&n));
        receiver.payloads().into_iter().filter(within).collect::<Vec<_>>()
    };
    for from in [0, 100] {
        assert_eq!(of(from), (from..from + 10).map(Value::from).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_nothing_goes_to_is_a_mistake_and_so_are_two_subjects_or_none() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    folder.database().await;
    let file = folder.write("relay.yaml", &config(&folder, &receiver));
    let file = file.to_str().unwrap();
    for verb in ["pause", "resume"] {
        for (what, told) in [
            (vec!["--sink", "order"], "audit, orders"),
            (vec![], "--type <PATTERN>"),
            (vec!["--all", "--key", "k"], "cannot be used with"),
            (vec!["--key", ""], "1 to 255 characters"),
        ] {
            let output = postrider(&[&[verb, "--config", file], what.as_slice()].concat());
            assert_eq!(output.status.code(), Some(2), "{verb} {what:?}: {}", said(&output));
            assert!(said(&output).contains(told), "{verb} {what:?}: {}", said(&output));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_to_the_end_of_a_source_that_is_paused_ends_at_once_and_sends_nothing() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    insert(&mut database, "OrderPlaced", "Order:1", "1").await;
    let file = folder.write("relay.yaml", &config(&folder, &receiver));
    let (file, url) = (file.to_str().unwrap(), folder.path("shop.db").display().to_string());
    // Without a configuration, by the database alone.
    for (verb, arrived) in [("pause", vec![]), ("resume", vec![json!(1)])] {
        assert!(postrider(&[verb, "--url", &url, "--all"]).status.success());
        let began = Instant::now();
        let output = postrider(&["run", "--once", "--config", file]);
        assert!(output.status.success(), "{}", said(&output));
        assert!(began.elapsed() < Duration::from_secs(30));
        assert_eq!(receiver.payloads(), arrived);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn why_names_a_sink_that_does_not_answer_a_route_that_is_switched_off_and_one_that_is_missing() {
    let folder = Folder::new();
    let mut database = folder.database().await;
    for event_type in ["OrderPlaced", "InvoicePaid", "Noted"] {
        insert(&mut database, event_type, event_type, "1").await;
    }
    let text = format!(
        "sources:\n  shop:\n    url: {}\n    routes:\n      - {{ event_type: \"Order*\", sink: orders }}\n      \
         - {{ event_type: InvoicePaid, sink: orders, enabled: false }}\nsinks: {{ orders: {{ http: {{ url: \"http://127.0.0.1:1\" }} }} }}\n",
        folder.path("shop.db").display()
    );
    let file = folder.write("relay.yaml", &text);
    let file = file.to_str().unwrap();
    for (key, text_of_it) in [
        ("OrderPlaced", "  sink `orders` failed its health check just now: "),
        ("InvoicePaid", "  waits: the configuration disables its route"),
        ("Noted", "no route matches it: it becomes a dead letter when its turn comes"),
    ] {
        let output = postrider(&["why", "--key", key, "--config", file]);
        let text = said(&output);
        assert!(output.status.success() && text.contains(text_of_it), "{text}");
        assert!(text.starts_with(&format!("{key} is not held; its next event ")), "{text}");
    }
    let why = asked(&["why", "--key", "OrderPlaced", "--config", file, "--json"]);
    assert_eq!((&why["sink"]["name"], &why["sink"]["well"]), (&json!("orders"), &json!(false)), "{why}");
}
