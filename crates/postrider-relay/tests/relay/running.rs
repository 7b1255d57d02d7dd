//! `postrider run`.

use serde_json::json;

use crate::place::{Folder, Receiver, Relay, eventually, get, insert, postrider, said};

fn config(folder: &Folder, receiver: &Receiver, more: &str) -> String {
    let database = folder.path("shop.db").display().to_string();
    format!(
        "log: {{ format: json }}\noperations: {{ listen: \"127.0.0.1:0\" }}\n\
         sources:\n  shop:\n    url: {database}\n    poll: {{ max: 50ms }}\n    routes:\n      - {{ event_type: \"Order*\", sink: orders }}\n\
         sinks:\n  orders:\n    http: {{ url: \"{}\", path: /orders }}\n{more}",
        receiver.url
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_insert_arrives_at_the_endpoint_in_order() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    for n in 0..250 {
        insert(&mut database, "OrderPlaced", "Order:1", &format!("{{\"n\":{n}}}")).await;
    }
    let mut relay = Relay::start(&folder.write("relay.yaml", &config(&folder, &receiver, "")), &[]);
    eventually("all arrived", async || receiver.payloads().len() >= 250).await;
    assert_eq!(receiver.payloads(), (0..250).map(|n| json!({ "n": n })).collect::<Vec<_>>());
    assert!(receiver.requests().iter().all(|request| request.path == "/orders"));
    relay.signal("TERM");
    assert_eq!(relay.ended(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn once_delivers_what_is_due_and_ends() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    insert(&mut database, "OrderPlaced", "Order:1", "1").await;
    insert(&mut database, "OrderPaid", "Order:1", "2").await;
    let file = folder.write("relay.yaml", &config(&folder, &receiver, ""));
    let output = postrider(&["run", "--once", "--config", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(receiver.payloads(), [json!(1), json!(2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_not_there_makes_the_relay_unready_with_the_reason_and_holds_up_no_other() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    insert(&mut database, "OrderPlaced", "Order:1", "1").await;
    let with_another = config(&folder, &receiver, "").replace(
        "sinks:\n",
        "  gone:\n    url: postgres://shop:canary@127.0.0.1:1/shop\n    routes: [{ event_type: \"*\", sink: orders }]\nsinks:\n",
    );
    let mut relay = Relay::start(&folder.write("relay.yaml", &with_another), &[]);
    let operations = relay.operations();
    eventually("the other source is delivered from", async || receiver.payloads() == [json!(1)]).await;
    relay.until_logged("source unavailable");
    let (status, body) = get(&format!("{operations}/health/ready"), None).await;
    assert_eq!(status, 503);
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    let reasons = body["reasons"].as_object().unwrap();
    assert_eq!(reasons.keys().collect::<Vec<_>>(), ["gone"], "{body}");
    assert!(!body.to_string().contains("canary"));
    assert_eq!(get(&format!("{operations}/health/live"), None).await.0, 200);
    // It has arrived, and counts as delivered when that is settled.
    eventually("the delivery is counted", async || {
        let (status, metrics) = get(&format!("{operations}/metrics"), None).await;
        status == 200 && metrics.contains("outbox_dispatch_success_total{source=\"shop\"} 1")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_want_the_token_and_health_does_not() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    folder.database().await;
    let guarded =
        config(&folder, &receiver, "").replace("127.0.0.1:0\" }", "127.0.0.1:0\", token: \"${TOKEN}\" }");
    let mut relay = Relay::start(&folder.write("relay.yaml", &guarded), &[("TOKEN", "canary")]);
    let operations = relay.operations();
    relay.until_logged("delivering");
    for (path, token, status) in [
        ("metrics", None, 401),
        ("metrics", Some("wrong"), 401),
        ("metrics", Some("canary"), 200),
        ("health/live", None, 200),
        ("health/ready", None, 200),
    ] {
        assert_eq!(get(&format!("{operations}/{path}"), token).await.0, status, "{path} {token:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_endpoint_costs_nothing_and_is_over_when_it_is_back() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    receiver.answers(503);
    for n in 0..20 {
        insert(&mut database, "OrderPlaced", &format!("Order:{}", n % 4), &n.to_string()).await;
    }
    let mut relay = Relay::start(&folder.write("relay.yaml", &config(&folder, &receiver, "")), &[]);
    let operations = relay.operations();
    relay.until_logged("unavailable");
    // No restart brings an endpoint back, so the relay stays ready and says what is down.
    let looks = async |sinks: serde_json::Value, gauge: &str| {
        let (status, body) = get(&format!("{operations}/health/ready"), None).await;
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        let metrics = get(&format!("{operations}/metrics"), None).await.1;
        let gauge = format!("\npostrider_breaker_open{{source=\"shop\",sink=\"orders\"}} {gauge}\n");
        status == 200 && body["sinks_down"] == sinks && metrics.contains(&gauge)
    };
    eventually("it is named", async || looks(json!({ "shop": ["orders"] }), "1").await).await;
    // Those who ask from outside are told by the relay.
    let address = operations.trim_start_matches("http://");
    let ask = config(&folder, &receiver, "").replace("127.0.0.1:0", address);
    let ask = folder.write("ask.yaml", &ask);
    let asked = |args: &[&str]| said(&postrider(&[args, &["--config", ask.to_str().unwrap()]].concat()));
    let sentence = format!("the relay at {address} believes the sink `orders` to be down");
    let (status, why) = (asked(&["status"]), asked(&["why", "--key", "Order:1"]));
    assert!(status.contains(&sentence) && why.contains(&format!("waits: {sentence}")), "{status}{why}");
    assert!(
        asked(&["status", "--json"]).contains("\"sinks_down\":[\"orders\"]"),
        "{}",
        asked(&["status", "--json"])
    );
    receiver.answers(200);
    eventually("all arrived", async || receiver.payloads().len() >= 20).await;
    eventually("it is named no more", async || looks(json!({}), "0").await).await;
    assert!(!asked(&["status"]).contains("for down"), "{}", asked(&["status"]));
    let (dead,): (i64,) = sqlx::query_as("SELECT count(*) FROM postrider_event WHERE status = 3")
        .fetch_one(&mut database)
        .await
        .unwrap();
    assert_eq!(dead, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hang_up_makes_it_read_its_configuration_again_and_a_mistake_in_it_changes_nothing() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    let old = config(&folder, &receiver, "");
    let file = folder.write("relay.yaml", &old);
    let mut relay = Relay::start(&file, &[]);
    relay.until_logged("delivering");
    folder.write("relay.yaml", &old.replace("path: /orders", "paht: /other"));
    relay.signal("HUP");
    let failure = relay.until_logged("configuration not reloaded");
    assert!(failure["failure"].as_str().unwrap().contains("did you mean `path`?"), "{failure}");
    insert(&mut database, "OrderPlaced", "Order:1", "1").await;
    eventually("the old one holds", async || receiver.payloads() == [json!(1)]).await;
    folder.write("relay.yaml", &old.replace("path: /orders", "path: /other"));
    relay.signal("HUP");
    relay.until_logged("configuration reloaded");
    insert(&mut database, "OrderPlaced", "Order:1", "2").await;
    eventually("the new one holds", async || receiver.payloads() == [json!(1), json!(2)]).await;
    let paths: Vec<_> = receiver.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(paths, ["/orders", "/other"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_route_that_is_switched_off_wait_and_are_not_dead() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    insert(&mut database, "OrderPlaced", "Order:1", "1").await;
    insert(&mut database, "InvoicePaid", "Invoice:1", "2").await;
    let off = config(&folder, &receiver, "").replace(
        "sink: orders }\n",
        "sink: orders }\n      - { event_type: \"Invoice*\", sink: orders, enabled: false }\n",
    );
    let _relay = Relay::start(&folder.write("relay.yaml", &off), &[]);
    eventually("what is on is delivered", async || receiver.payloads() == [json!(1)]).await;
    let mut left = Vec::new();
    eventually("that is settled", async || {
        let rows = sqlx::query_as("SELECT event_type, status FROM postrider_event");
        left = rows.fetch_all(&mut database).await.unwrap();
        left.len() == 1
    })
    .await;
    let left: Vec<(String, i64)> = left;
    assert_eq!(left, [("InvoicePaid".to_owned(), 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bearer_token_goes_with_every_request_and_into_no_log() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    insert(&mut database, "OrderPlaced", "Order:1", "1").await;
    let with_token =
        config(&folder, &receiver, "").replace("path: /orders }", "path: /orders, token: \"${TOKEN}\" }");
    let verbose = with_token.replace("log: { format: json }", "log: { format: json, level: trace }");
    let mut relay = Relay::start(&folder.write("relay.yaml", &verbose), &[("TOKEN", "canary-token")]);
    eventually("it arrived", async || receiver.payloads() == [json!(1)]).await;
    assert_eq!(receiver.requests()[0].headers["authorization"], "Bearer canary-token");
    relay.signal("TERM");
    assert_eq!(relay.ended(), 0);
    assert!(!relay.log.iter().any(|line| line.to_string().contains("canary")));
}

#[tokio::test(flavor = "multi_thread")]
async fn gauges_count_what_is_in_the_table_once_for_as_long_as_they_are_kept_and_not_at_all_by_default() {
    // S4-24, S4-26, S4-27
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    receiver.answers(503);
    for n in 0..3 {
        insert(&mut database, "OrderPlaced", &format!("Order:{n}"), "1").await;
    }
    insert(&mut database, "OrderPaid", "Order:9", "1").await;
    let plain = config(&folder, &receiver, "");
    let mut relay = Relay::start(&folder.write("relay.yaml", &plain), &[]);
    let operations = relay.operations();
    relay.until_logged("unavailable");
    let text = get(&format!("{operations}/metrics"), None).await.1;
    assert!(text.contains("outbox_queue_depth") && !text.contains("outbox_events{"), "{text}");
    relay.signal("TERM");
    assert_eq!(relay.ended(), 0);

    let counting = plain.replace("127.0.0.1:0\" }", "127.0.0.1:0\", gauges: { enabled: true, cache: 1h } }");
    let mut relay = Relay::start(&folder.write("relay.yaml", &counting), &[]);
    let operations = relay.operations();
    relay.until_logged("unavailable");
    let scrape = async || get(&format!("{operations}/metrics"), None).await.1;
    let sum = |text: &str, name: &str| -> u64 {
        let values =
            text.lines().filter(|line| line.starts_with(name)).filter_map(|line| line.rsplit(' ').next());
        values.map(|value| value.parse::<u64>().unwrap()).sum()
    };
    let first = scrape().await;
    assert!(first.contains("outbox_events{source=\"shop\"} 4"), "{first}");
    assert_eq!(sum(&first, "outbox_events_by_status{"), 4, "{first}");
    let of_type = "outbox_events_by_event_type_and_status{source=\"shop\",event_type=\"OrderPlaced\"";
    assert_eq!(sum(&first, of_type), 3, "{first}");
    insert(&mut database, "OrderPaid", "Order:8", "1").await;
    receiver.answers(200);
    eventually("all arrived", async || receiver.payloads().len() >= 5).await;
    eventually("they are counted", async || {
        scrape().await.contains(
            "outbox_events_rate_total{source=\"shop\",event_type=\"OrderPlaced\",status=\"processed\"} 3",
        )
    })
    .await;
    assert!(scrape().await.contains("outbox_events{source=\"shop\"} 4"), "the count is kept for an hour");
}

/// A database that can be read says nothing of whether it can be written.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_cannot_write_to_its_database_is_not_ready_and_says_why() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    let config = config(&folder, &receiver, "").replace("    poll:", "    lease: 2s\n    poll:");
    let mut relay = Relay::start(&folder.write("relay.yaml", &config), &[]);
    let ready = format!("{}/health/ready", relay.operations());
    eventually("it is ready", async || get(&ready, None).await.0 == 200).await;
    insert(&mut database, "OrderPlaced", "Order:1", "1").await;
    eventually("it has arrived", async || receiver.payloads() == [json!(1)]).await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut database).await.unwrap();
    let mut reasons = String::new();
    eventually("it is not ready", async || {
        let (status, body) = get(&ready, None).await;
        reasons = body;
        status == 503
    })
    .await;
    assert!(reasons.contains("no lease was renewed for"), "{reasons}");
    sqlx::raw_sql("COMMIT").execute(&mut database).await.unwrap();
    eventually("it is ready again", async || get(&ready, None).await.0 == 200).await;
}
