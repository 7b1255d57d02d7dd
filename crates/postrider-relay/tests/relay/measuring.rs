//! What the metrics of a relay show while something does not work.

use crate::place::{Folder, Receiver, Relay, eventually, get, insert};

fn config(folder: &Folder, receiver: &Receiver) -> String {
    let database = folder.path("shop.db").display().to_string();
    format!(
        "log: {{ format: json }}\noperations: {{ listen: \"127.0.0.1:0\" }}\n\
         sources:\n  shop:\n    url: {database}\n    poll: {{ max: 50ms }}\n    routes:\n      - {{ event_type: \"Order*\", sink: orders }}\n      \
         - {{ event_type: \"*\", sink: audit }}\n\
         sinks:\n  orders: {{ http: {{ url: \"{url}\", path: /orders }} }}\n  audit: {{ http: {{ url: \"{url}\", path: /audit }} }}\n",
        url = receiver.url
    )
}

/// The value of a metric, by its name and labels.
fn value(text: &str, metric: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' ')?.parse().ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_age_of_the_oldest_event_of_a_sink_is_shown_during_its_outage_and_is_zero_after_it() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    receiver.answers(503);
    for n in 0..3 {
        insert(&mut database, "OrderPlaced", &format!("Order:{n}"), "1").await;
    }
    let hour = "UPDATE postrider_event SET created_at = created_at - 3600 * 1000000";
    sqlx::query(hour).execute(&mut database).await.unwrap();
    let mut relay = Relay::start(&folder.write("relay.yaml", &config(&folder, &receiver)), &[]);
    let metrics = format!("{}/metrics", relay.operations());
    relay.until_logged("unavailable");
    let shows = async |least: f64, most: f64| {
        let text = get(&metrics, None).await.1;
        let of = |sink: &str| {
            value(&text, &format!("postrider_oldest_pending_seconds{{source=\"shop\",sink=\"{sink}\"}}"))
        };
        let within = |value: Option<f64>| value.is_some_and(|value| (least..=most).contains(&value));
        let source = value(&text, "outbox_oldest_lag_ms{source=\"shop\"}").map(|lag| lag / 1000.0);
        within(of("orders")) && within(source) && of("audit") == Some(0.0)
    };
    eventually("it is shown", async || shows(3600.0, 3900.0).await).await;
    receiver.answers(200);
    eventually("all arrived", async || receiver.payloads().len() >= 3).await;
    eventually("it is over", async || shows(0.0, 0.0).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_went_dead_is_counted_with_its_sink_and_its_type() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    receiver.answers(422);
    insert(&mut database, "OrderPlaced", "Order:1", "1").await;
    let mut relay = Relay::start(&folder.write("relay.yaml", &config(&folder, &receiver)), &[]);
    let metrics = format!("{}/metrics", relay.operations());
    let dead = "postrider_dead_total{source=\"shop\",sink=\"orders\",event_type=\"OrderPlaced\"}";
    eventually("it is counted", async || value(&get(&metrics, None).await.1, dead) == Some(1.0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_event_of_a_sink_is_shown_behind_a_backlog_of_another() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    receiver.answers(503);
    for n in 0..1200 {
        insert(&mut database, "OrderPlaced", &format!("Order:{n}"), "1").await;
    }
    insert(&mut database, "Visit", "Visit:1", "1").await;
    for (event_type, hours) in [("OrderPlaced", 2), ("Visit", 1)] {
        let older =
            "UPDATE postrider_event SET created_at = created_at - ? * 3600000000 WHERE event_type = ?";
        sqlx::query(older).bind(hours).bind(event_type).execute(&mut database).await.unwrap();
    }
    let mut relay = Relay::start(&folder.write("relay.yaml", &config(&folder, &receiver)), &[]);
    let metrics = format!("{}/metrics", relay.operations());
    let shows = async |sink: &str, least: f64, most: f64| {
        let text = get(&metrics, None).await.1;
        let of = |name: &str| value(&text, &format!("{name}{{source=\"shop\",sink=\"{sink}\"}}"));
        let age = of("postrider_oldest_pending_seconds").is_some_and(|age| (least..=most).contains(&age));
        age && of("postrider_oldest_pending_is_bound") == Some(0.0)
    };
    eventually("both are shown", async || {
        shows("orders", 7200.0, 7500.0).await && shows("audit", 3600.0, 3900.0).await
    })
    .await;
    receiver.answers(200);
    eventually("it is over", async || shows("orders", 0.0, 0.0).await && shows("audit", 0.0, 0.0).await)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_that_fail_are_counted_by_sink_and_outcome() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    let file = folder.write("relay.yaml", &config(&folder, &receiver));
    let mut relay = Relay::start(&file, &[]);
    let metrics = format!("{}/metrics", relay.operations());
    let counted = async |outcome: &str, counted: &str| {
        let labels = format!("source=\"shop\",sink=\"orders\",outcome=\"{outcome}\",counted=\"{counted}\"");
        value(&get(&metrics, None).await.1, &format!("postrider_failed_attempts_total{{{labels}}}"))
    };
    receiver.answers(500);
    // In one transaction, so that they go in one batch.
    let rows = (0..3).map(|n| format!("('OrderPlaced', 'Order:{n}', '1')")).collect::<Vec<_>>().join(", ");
    let insert = format!("INSERT INTO postrider_event (event_type, ordering_key, payload) VALUES {rows}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(insert)).execute(&mut database).await.unwrap();
    eventually("a whole batch is counted", async || counted("batch_failed", "false").await >= Some(3.0))
        .await;
    eventually("each alone is counted", async || counted("retry", "false").await >= Some(3.0)).await;
    receiver.answers(503);
    eventually("an outage is counted", async || counted("unavailable", "false").await >= Some(1.0)).await;
    receiver.answers(200);
    eventually("all arrived", async || receiver.payloads().len() == 3).await;
    assert_eq!(counted("retry", "true").await, None, "nothing counts during an outage");
}
