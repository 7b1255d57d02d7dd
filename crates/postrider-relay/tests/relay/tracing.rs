//! Spans of deliveries, and files that are rotated.

use serde_json::{Value, json};

use crate::place::{Folder, Receiver, Relay, eventually, insert};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const WRITER: &str = "b7ad6b7169203331";

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_is_a_span_between_the_writers_and_the_consumers() {
    let (folder, collector, consumer) = (Folder::new(), Receiver::start().await, Receiver::start().await);
    let mut database = folder.database().await;
    let traced = async |database: &mut sqlx::SqliteConnection, event_type: &str, flags: &str| {
        let headers = json!({ "traceparent": format!("00-{TRACE}-{WRITER}-{flags}"), "tracestate": "a=b" });
        sqlx::query("INSERT INTO postrider_event (event_type, headers, payload) VALUES (?, ?, '1')")
            .bind(event_type)
            .bind(headers.to_string())
            .execute(database)
            .await
            .unwrap();
    };
    traced(&mut database, "Recorded", "01").await;
    traced(&mut database, "NotRecorded", "00").await;
    insert(&mut database, "Untraced", "k", "1").await;
    let config = format!(
        "log: {{ format: json }}\noperations:\n  listen: \"127.0.0.1:0\"\n  traces: {{ endpoint: \"{}\", headers: {{ x-key: canary }} }}\n\
         sources: {{ shop: {{ url: \"{}\", routes: [{{ event_type: \"*\", sink: hook }}] }} }}\n\
         sinks: {{ hook: {{ webhook: {{ url: \"{}\", unsigned: true }} }} }}\n",
        collector.url,
        folder.path("shop.db").display(),
        consumer.url
    );
    let mut relay = Relay::start(&folder.write("relay.yaml", &config), &[]);
    eventually("all arrived", async || consumer.requests().len() == 3).await;
    eventually("the span arrived", async || !collector.requests().is_empty()).await;
    relay.signal("TERM");
    assert_eq!(relay.ended(), 0);
    assert!(!relay.log.iter().any(|line| line.to_string().contains("canary")));

    let requests = collector.requests();
    assert!(
        requests.iter().all(|request| request.path == "/v1/traces" && request.headers["x-key"] == "canary")
    );
    let spans: Vec<Value> = requests
        .iter()
        .flat_map(|request| {
            request.body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
        })
        .collect();
    let [span] = spans.as_slice() else { panic!("one span, and not {spans:#?}") };
    assert_eq!((&span["traceId"], &span["parentSpanId"]), (&json!(TRACE), &json!(WRITER)), "{span:#}");
    assert_eq!(
        (&span["name"], &span["kind"], &span["traceState"]),
        (&json!("send Recorded"), &json!(4), &json!("a=b"))
    );
    assert!(span.get("status").is_none(), "{span:#}");
    let seen = |event_type: &str| {
        let found =
            consumer.requests().into_iter().find(|request| request.headers["event-type"] == event_type);
        found.unwrap().headers.get("traceparent").map(|value| value.to_str().unwrap().to_owned())
    };
    let span_id = span["spanId"].as_str().unwrap();
    assert_eq!(seen("Recorded"), Some(format!("00-{TRACE}-{span_id}-01")));
    assert_eq!(seen("NotRecorded"), Some(format!("00-{TRACE}-{WRITER}-00")));
    assert_eq!(seen("Untraced"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_holds_up_no_delivery_and_a_failed_one_is_told() {
    let (folder, collector, consumer) = (Folder::new(), Receiver::start().await, Receiver::start().await);
    let mut database = folder.database().await;
    collector.answers(400);
    let config = format!(
        "log: {{ format: json }}\noperations: {{ listen: \"127.0.0.1:0\", traces: {{ endpoint: \"{}/v1/traces\" }} }}\n\
         sources: {{ shop: {{ url: \"{}\", poll: {{ max: 50ms }}, routes: [{{ event_type: \"*\", sink: hook }}] }} }}\n\
         sinks: {{ hook: {{ webhook: {{ url: \"{}\", unsigned: true }} }} }}\n",
        collector.url,
        folder.path("shop.db").display(),
        consumer.url
    );
    let mut relay = Relay::start(&folder.write("relay.yaml", &config), &[]);
    let insert = async |database: &mut sqlx::SqliteConnection, payload: &str| {
        sqlx::query("INSERT INTO postrider_event (event_type, headers, payload) VALUES ('Recorded', ?, ?)")
            .bind(json!({ "traceparent": format!("00-{TRACE}-{WRITER}-01") }).to_string())
            .bind(payload)
            .execute(database)
            .await
            .unwrap();
    };
    insert(&mut database, "1").await;
    eventually("it arrived", async || consumer.requests().len() == 1).await;
    relay.until_logged("the collector refuses spans");
    collector.answers(200);
    consumer.answers(422);
    insert(&mut database, "2").await;
    eventually("the failed attempt is told", async || {
        collector.requests().iter().any(|request| request.body.to_string().contains("\"code\":2"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hang_up_opens_files_anew_though_nothing_changed_in_the_configuration() {
    let folder = Folder::new();
    let mut database = folder.database().await;
    let (file, old) = (folder.path("events.ndjson"), folder.path("events.ndjson.1"));
    let config = format!(
        "log: {{ format: json }}\noperations: {{ enabled: false }}\n\
         sources: {{ shop: {{ url: \"{}\", poll: {{ max: 50ms }}, routes: [{{ event_type: \"*\", sink: out }}] }} }}\n\
         sinks: {{ out: {{ file: {{ path: \"{}\" }} }} }}\n",
        folder.path("shop.db").display(),
        file.display()
    );
    let mut relay = Relay::start(&folder.write("relay.yaml", &config), &[]);
    let lines = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default().lines().count();
    insert(&mut database, "OrderPlaced", "Order:1", "1").await;
    eventually("the first line is there", async || lines(&file) == 1).await;
    std::fs::rename(&file, &old).unwrap();
    insert(&mut database, "OrderPlaced", "Order:1", "2").await;
    eventually("the open file is still written to", async || lines(&old) == 2).await;
    relay.signal("HUP");
    relay.until_logged("configuration reloaded");
    insert(&mut database, "OrderPlaced", "Order:1", "3").await;
    eventually("a new file has the third line", async || lines(&file) == 1).await;
    assert_eq!(lines(&old), 2);
}

#[test]
fn every_shell_gets_its_completions() {
    for (shell, word) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef postrider"),
        ("fish", "complete -c postrider"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let output = crate::place::postrider(&["completions", shell]);
        let text = crate::place::said(&output);
        assert!(output.status.success() && text.contains(word) && text.contains("redrive"), "{shell}");
    }
}
