//! A broker that sends everything back: few events die, and the rest arrives once somebody has bound a queue.

use std::collections::BTreeSet;

use crate::{
    database::{Database, Kind},
    place::{Folder, fresh_name},
    relay::Relay,
    server,
    topics::Rabbit,
};

const EVENTS: usize = 60;

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_binding_kills_ten_and_the_rest_arrives_once_a_queue_is_bound() {
    let (folder, database) = (Folder::new(), Database::native(Kind::Postgres).await);
    let rabbit = Rabbit(server::url("POSTRIDER_TEST_RABBITMQ_URL"));
    let (exchange, queue) = (fresh_name("exchange_"), fresh_name("queue_"));
    rabbit.exchange(&exchange).await;
    rabbit.create(&queue).await;
    let rows: Vec<_> = (0..EVENTS).map(|n| format!("('Counted', 'key-{n}', '{n}')")).collect();
    let columns = "event_type, ordering_key, payload";
    database.run(&format!("INSERT INTO postrider_event ({columns}) VALUES {}", rows.join(", "))).await;
    let text = format!(
        "log: {{ format: json }}\noperations: {{ enabled: false }}\nsources:\n  shop:\n    url: {}\n    poll: {{ max: 100ms }}\n\
         \x20   routes: [{{ event_type: \"*\", sink: out }}]\n\
         sinks: {{ out: {{ rabbitmq: {{ url: \"{}\", exchange: {exchange}, routing_key: \"{{event_type}}\" }} }} }}\n",
        database.url, rabbit.0
    );
    let relay = Relay::start(&folder, &folder.write("postrider.yaml", &text));
    relay.until_logged("sink rejects everything").await;
    database.until("SELECT kind, name FROM postrider_pause", &["rejected|out"]).await;
    let dead = async || database.lines("SELECT payload FROM postrider_event WHERE status = 3").await;
    let died = dead().await;
    assert!((1..=10).contains(&died.len()), "{died:?}");

    rabbit.bind(&queue, &exchange).await;
    database.until("SELECT count(*)::text FROM postrider_event WHERE status <> 3", &["0"]).await;
    assert_eq!(dead().await.len(), died.len(), "nothing more died");
    let arrived: BTreeSet<_> = rabbit.take(&queue).await.into_iter().map(|message| message.payload).collect();
    let expected = (0..EVENTS).map(|n| n.to_string()).filter(|payload| !died.contains(payload));
    assert_eq!(arrived, expected.collect());
    database.until("SELECT kind FROM postrider_pause", &[]).await;
    rabbit.delete(&queue, &exchange).await;
}
