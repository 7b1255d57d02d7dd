//! Who delivers, as `postrider status` and `postrider why` tell it.

use serde_json::{Value, json};
use sqlx::SqliteConnection;

use crate::place::{Folder, Relay, eventually, insert, postrider, said};

fn config(folder: &Folder) -> String {
    format!(
        "instance: north-1\nlog: {{ format: json }}\noperations: {{ enabled: false }}\n\
         sources: {{ shop: {{ url: {}, routes: [{{ event_type: \"*\", sink: orders, enabled: false }}] }} }}\n\
         sinks: {{ orders: {{ stdout: {{}} }} }}\n",
        folder.path("shop.db").display()
    )
}

/// What the program says to people, and to programs.
fn asked(args: &[&str]) -> (String, Value) {
    let people = postrider(args);
    let programs = postrider(&[args, &["--json"]].concat());
    assert!(people.status.success() && programs.status.success(), "{} {}", said(&people), said(&programs));
    (said(&people), serde_json::from_slice(&programs.stdout).unwrap())
}

async fn id_of_one(database: &mut SqliteConnection) -> String {
    insert(database, "OrderPlaced", "Order:1", "1").await;
    sqlx::query_scalar("SELECT event_id FROM postrider_event").fetch_one(database).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn status_and_why_say_that_nobody_delivers() {
    let folder = Folder::new();
    let id = id_of_one(&mut folder.database().await).await;
    let file = folder.write("relay.yaml", &config(&folder));
    let file = file.to_str().unwrap();
    let (people, programs) = asked(&["status", "--config", file]);
    assert!(people.contains("shop: no instance is alive: nothing is delivered"), "{people}");
    assert_eq!(programs["shop"]["instances"], json!([]), "{programs}");
    for args in [["why", "--config", file, "--id", &id], ["why", "--config", file, "--key", "Order:1"]] {
        let (people, programs) = asked(&args);
        assert!(people.contains("waits: no instance is alive: nothing is delivered"), "{people}");
        assert_eq!((&programs["instances"], &programs["status"]), (&json!([]), &json!("new")), "{programs}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_and_why_name_the_instances_that_are_alive_with_their_lanes() {
    let folder = Folder::new();
    let id = id_of_one(&mut folder.database().await).await;
    let file = folder.write("relay.yaml", &config(&folder));
    let mut relay = Relay::start(&file, &[]);
    relay.until_logged("delivering");
    let file = file.to_str().unwrap();
    let mut told = Value::Null;
    eventually("it holds the lane", async || {
        told = asked(&["status", "--config", file]).1["shop"]["instances"].clone();
        told[0]["lanes"] == json!([0])
    })
    .await;
    assert_eq!((told.as_array().unwrap().len(), &told[0]["name"]), (1, &json!("north-1")), "{told}");
    assert!(told[0]["until"].as_str().unwrap().ends_with('Z'), "{told}");
    let (people, _) = asked(&["status", "--config", file]);
    assert!(people.contains("shop: instance north-1 holds 1 of 1 lane until "), "{people}");
    let (people, programs) = asked(&["why", "--config", file, "--id", &id]);
    assert!(!people.contains("no instance"), "{people}");
    assert_eq!(programs["instances"][0]["name"], json!("north-1"), "{programs}");
    relay.signal("TERM");
    assert_eq!(relay.ended(), 0);
    let (people, _) = asked(&["status", "--config", file]);
    assert!(people.contains("no instance is alive"), "what has ended is alive no more: {people}");
}
