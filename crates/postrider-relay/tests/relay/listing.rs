//! `postrider events`.

use serde_json::{Value, json};

use crate::{
    place::{Folder, Program, Receiver, insert, postrider, said},
    server::{BOTH, Database},
};

/// What `events --json` prints, a value a line.
fn events(args: &[&str]) -> Vec<Value> {
    let output = postrider(&[&["events", "--json"], args].concat());
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn of(events: &[Value], name: &str) -> Vec<Value> {
    events.iter().map(|event| event[name].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_listed_newest_last_with_their_states_and_without_their_payloads() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    insert(&mut database, "OrderPlaced", "Order:1", "{ \"secret\" : 1 }").await;
    insert(&mut database, "OrderPlaced", "Order:2", "{").await;
    insert(&mut database, "OrderPaid", "Order:2", "3").await;
    let path = folder.path("shop.db").display().to_string();
    let config = folder.write(
        "relay.yaml",
        &format!(
            "sources: {{ shop: {{ url: \"{path}\", routes: [{{ event_type: \"*\", sink: out }}] }} }}\nsinks: {{ out: {{ http: {{ url: \"{}\" }} }} }}\n",
            receiver.url
        ),
    );
    assert_eq!(postrider(&["run", "--once", "--config", config.to_str().unwrap()]).status.code(), Some(1));
    insert(&mut database, "Other\u{1b}[2J", "Order:3", "4").await;

    let all = events(&["--url", &path]);
    assert_eq!(of(&all, "status"), ["done", "dead", "parked", "new"], "{all:?}");
    assert_eq!(of(&all, "key"), ["Order:1", "Order:2", "Order:2", "Order:3"]);
    assert!(all.iter().all(|event| event.get("payload").is_none()), "{all:?}");
    for (args, keys) in [
        (["--limit", "2"], json!(["Order:2", "Order:3"])),
        (["--status", "pending"], json!(["Order:2", "Order:3"])),
        (["--status", "dead"], json!(["Order:2"])),
        (["--status", "done"], json!(["Order:1"])),
        (["--status", "waiting"], json!([])),
        (["--type", "OrderPlaced"], json!(["Order:1", "Order:2"])),
        (["--key", "Order:2"], json!(["Order:2", "Order:2"])),
    ] {
        let found = events(&[&["--url", &path], args.as_slice()].concat());
        assert_eq!(Value::from(of(&found, "key")), keys, "{args:?}");
    }
    let shown = events(&["--url", &path, "--payload", "--status", "done"]);
    assert_eq!(shown[0]["payload"], json!({ "secret": 1 }));

    let text = said(&postrider(&["events", "--url", &path]));
    assert!(text.contains("parked") && !text.contains("secret") && !text.contains('\u{1b}'), "{text}");
    let text = said(&postrider(&["events", "--url", &path, "--payload"]));
    assert!(text.contains("\"secret\" : 1"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_server_are_listed_and_followed_until_interrupted() {
    for kind in BOTH {
        let mut database = Database::new(kind).await;
        let url = database.url.clone();
        assert!(postrider(&["init", "--url", &url]).status.success());
        let insert = |key: &str| {
            format!(
                "INSERT INTO postrider_event (event_type, ordering_key, payload) VALUES ('OrderPlaced', '{key}', '1')"
            )
        };
        database.run(&insert("Order:1")).await;
        let mut following = Program::start(&["events", "--follow", "--json"], &[("POSTRIDER_URL", &url)]);
        assert_eq!(following.line()["key"], "Order:1");
        database.run(&insert("Order:2")).await;
        assert_eq!(following.line()["key"], "Order:2");
        // What becomes of one is told too.
        // MySQL and MariaDB demand to be told that this is no event of a writer.
        let touched = if url.starts_with("mysql") { ", touched = 1" } else { "" };
        let dies = format!(
            "UPDATE postrider_event SET status = 3, last_error = 'no'{touched} WHERE ordering_key = 'Order:1'"
        );
        database.run(&dies).await;
        let dead = following.line();
        assert_eq!((&dead["key"], &dead["status"]), (&json!("Order:1"), &json!("dead")), "{kind:?}");
        following.signal("INT");
        assert_eq!(following.ended(), 0, "{kind:?}");
        database.drop(&[]).await;
    }
}
