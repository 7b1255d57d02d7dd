//! Which route an event takes, and where that leads.

use std::collections::BTreeMap;

use serde_json::json;
use sqlx::SqliteConnection;

use crate::place::{Folder, Receiver, postrider, said};

async fn insert(database: &mut SqliteConnection, event_type: &str, aggregate_type: &str, payload: &str) {
    sqlx::query("INSERT INTO postrider_event (event_type, aggregate_type, payload) VALUES (?, ?, ?)")
        .bind(event_type)
        .bind(aggregate_type)
        .bind(payload)
        .execute(database)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_goes_where_the_route_that_won_it_says() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    for (event_type, aggregate_type, payload) in [
        ("OrderPlaced", "Shop", "1"),
        ("OrderPlaced", "Order", "2"),
        ("OrderPaid", "Shop", "3"),
        ("OrderSent", "Shop", "4"),
        ("Other", "Shop", "5"),
    ] {
        insert(&mut database, event_type, aggregate_type, payload).await;
    }
    let text = format!(
        "sources:\n  shop:\n    url: {}\n    routes:\n\
         \x20     - {{ event_type: \"Order*\", sink: shop, topic: /any }}\n\
         \x20     - {{ event_type: OrderPlaced, sink: shop, topic: /placed }}\n\
         \x20     - {{ event_type: OrderPlaced, aggregate_type: Order, sink: shop, topic: /pair }}\n\
         \x20     - {{ event_type: OrderPaid, sink: shop }}\n\
         \x20     - {{ event_type: \"*\", sink: shop }}\n\
         sinks:\n  shop:\n    http: {{ url: \"{}\", path: /own, paths: {{ OrderSent: /typed, Other: /other }} }}\n",
        folder.path("shop.db").display(),
        receiver.url
    );
    let file = folder.write("relay.yaml", &text);
    let output = postrider(&["run", "--once", "--config", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output));
    let arrived: BTreeMap<_, _> =
        receiver.requests().into_iter().map(|request| (request.path, request.body)).collect();
    let expected = [("/any", 4), ("/other", 5), ("/own", 3), ("/pair", 2), ("/placed", 1)];
    let expected = expected.map(|(path, payload)| (path.to_owned(), json!([payload])));
    assert_eq!(arrived, BTreeMap::from(expected));
}
