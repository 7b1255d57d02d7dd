//! `/health/ready` beside a session that stands in the way.

use serde_json::{Value, json};

use crate::{
    place::{Folder, Receiver, Relay, eventually, get},
    server::{Database, Kind},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_whose_lanes_another_session_has_locked_is_not_ready_until_they_are_free() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = Database::new(Kind::Postgres).await;
    postrider::connect(&database.url).await.unwrap().store.migrate().await.unwrap();
    let text = format!(
        "log: {{ format: json }}\noperations: {{ listen: \"127.0.0.1:0\" }}\nsources:\n  shop:\n    url: \"{}\"\n    lease: 1s\n\
         \x20   poll: {{ max: 50ms }}\n    routes: [{{ event_type: \"*\", sink: orders }}]\nsinks: {{ orders: {{ http: {{ url: \"{}\" }} }} }}\n",
        database.url, receiver.url
    );
    let file = folder.write("relay.yaml", &text);
    let mut relay = Relay::start(&file, &[]);
    let address = format!("{}/health/ready", relay.operations());
    let ready = async || get(&address, None).await;
    eventually("it is ready", async || ready().await.0 == 200).await;

    database.run("BEGIN; SELECT * FROM postrider_lane FOR UPDATE").await;
    database.run("INSERT INTO postrider_event (event_type, payload) VALUES ('Order', '1')").await;
    eventually("it is not ready", async || ready().await.0 == 503).await;
    // For longer than it takes to give all lanes up and to ask for them again.
    let locked = "another session has locked the rows of 64 lanes";
    eventually("it says why", async || ready().await.1.contains(locked)).await;
    relay.until_logged("lanes cannot be taken");
    let (status, body) = ready().await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 503, "{body}");
    assert!(body["reasons"]["shop"].as_str().unwrap().contains(locked), "{body}");

    database.run("COMMIT").await;
    eventually("it is ready again", async || ready().await.0 == 200).await;
    eventually("what waited is delivered", async || receiver.payloads() == [json!(1)]).await;
    database.drop(&[]).await;
}
