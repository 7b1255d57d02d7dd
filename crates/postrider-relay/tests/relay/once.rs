//! `postrider run --once`: what is due is delivered, and it ends, whatever is down.

use std::path::PathBuf;

use serde_json::json;

use crate::{
    place::{Folder, Receiver, Relay, TIMEOUT, eventually, insert, postrider, said},
    server::{Database, Kind},
};

/// Orders go to one receiver and bills to another.
fn config(folder: &Folder, orders: &Receiver, bills: &Receiver, more: &str) -> PathBuf {
    let database = folder.path("shop.db").display().to_string();
    let text = format!(
        "log: {{ format: json }}\noperations: {{ enabled: false }}\nsources:\n  shop:\n    url: {database}\n    poll: {{ max: 50ms }}\n    routes:\n\
         \x20     - {{ event_type: Order, sink: orders }}\n      - {{ event_type: Bill, sink: bills{more} }}\n\
         sinks:\n  orders: {{ http: {{ url: \"{}\" }} }}\n  bills: {{ http: {{ url: \"{}\" }} }}\n",
        orders.url, bills.url
    );
    folder.write("relay.yaml", &text)
}

fn once(file: &std::path::Path, more: &[&str]) -> std::process::Output {
    postrider(&[&["run", "--once", "--config", file.to_str().unwrap()], more].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_for_a_receiver_that_is_down_or_switched_off_is_left_and_the_rest_is_delivered() {
    let (folder, orders, bills) = (Folder::new(), Receiver::start().await, Receiver::start().await);
    let mut database = folder.database().await;
    // More than are tried at a time; and an order behind a bill of its key.
    for n in 0..30 {
        insert(&mut database, "Bill", &format!("Bill:{n}"), &n.to_string()).await;
    }
    insert(&mut database, "Order", "Bill:0", "1").await;
    insert(&mut database, "Order", "Order:1", "2").await;
    bills.answers(503);
    let down = once(&config(&folder, &orders, &bills, ""), &[]);
    assert_eq!(down.status.code(), Some(1), "{}", said(&down));
    assert_eq!(orders.payloads(), [json!(2)]);

    bills.answers(200);
    insert(&mut database, "Order", "Order:1", "3").await;
    let off = once(&config(&folder, &orders, &bills, ", enabled: false"), &[]);
    assert_eq!(off.status.code(), Some(1), "{}", said(&off));
    assert_eq!(orders.payloads(), [json!(2), json!(3)]);

    let well = once(&config(&folder, &orders, &bills, ""), &[]);
    assert_eq!(well.status.code(), Some(0), "{}", said(&well));
    assert_eq!((orders.payloads().len(), bills.payloads().len()), (3, 30));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_fails_or_dies_in_a_run_makes_its_conclusion_bad() {
    let (folder, orders, bills) = (Folder::new(), Receiver::start().await, Receiver::start().await);
    let mut database = folder.database().await;
    insert(&mut database, "Nobodys", "Bill:1", "1").await;
    let file = config(&folder, &orders, &bills, "");
    assert_eq!(once(&file, &[]).status.code(), Some(1), "nobody wants it, and it is dead");
    insert(&mut database, "Bill", "Bill:2", "2").await;
    let output = once(&file, &[]);
    assert_eq!(output.status.code(), Some(0), "it was dead before: {}", said(&output));
    insert(&mut database, "Bill", "Bill:3", "3").await;
    bills.answers(400);
    assert_eq!(once(&file, &[]).status.code(), Some(1), "it was refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waits_for_others_ends_when_its_time_is_up_or_it_is_asked_to() {
    let (folder, orders, bills) = (Folder::new(), Receiver::start().await, Receiver::start().await);
    let mut database = folder.database().await;
    bills.answers(503);
    insert(&mut database, "Bill", "Bill:1", "1").await;
    let file = config(&folder, &orders, &bills, "");
    // It holds the lanes, and what is due stays due.
    let mut other = Relay::start(&file, &[]);
    other.until_logged("unavailable");
    let output = once(&file, &["--timeout", "100ms"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let mut asked = Relay::start_with(&file, &["--once"], &[]);
    asked.until_logged("delivering what is due");
    asked.signal("TERM");
    assert_eq!(asked.ended(), 1, "{:?}", asked.log);
    bills.answers(200);
    eventually("the other delivers", async || bills.payloads() == [json!(1)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_of_a_second_is_waited_for_and_all_is_delivered() {
    let (folder, orders, bills) = (Folder::new(), Receiver::start().await, Receiver::start().await);
    let mut database = folder.database().await;
    for n in 0..95 {
        insert(&mut database, "Bill", &format!("Bill:{n}"), &n.to_string()).await;
    }
    bills.answers(429);
    let file = config(&folder, &orders, &bills, "");
    let mut run = Relay::start_with(&file, &["--once"], &[("POSTRIDER_LOG", "debug")]);
    run.until_logged("attempt failed");
    bills.answers(200);
    assert_eq!(run.ended(), 0, "{:#?}", run.log);
    assert_eq!(bills.payloads().len(), 95);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_receiver_asks_for_pauses_without_end_delivers_the_rest_ends_and_says_why() {
    let (folder, orders, bills) = (Folder::new(), Receiver::start().await, Receiver::start().await);
    let mut database = folder.database().await;
    insert(&mut database, "Bill", "Bill:1", "1").await;
    insert(&mut database, "Order", "Order:1", "2").await;
    bills.answers(429);
    let output = once(&config(&folder, &orders, &bills, ""), &[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_eq!(orders.payloads(), [json!(2)]);
    assert!(said(&output).contains("a receiver asked for a pause"), "{}", said(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_says_why_something_is_left() {
    let (folder, orders, bills) = (Folder::new(), Receiver::start().await, Receiver::start().await);
    let mut database = folder.database().await;
    insert(&mut database, "Bill", "Bill:1", "1").await;
    bills.answers(400);
    let output = once(&config(&folder, &orders, &bills, ""), &[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("events died"), "{}", said(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_reads_holds_nothing_up() {
    let (folder, orders, bills) = (Folder::new(), Receiver::start().await, Receiver::start().await);
    let mut database = folder.database().await;
    insert(&mut database, "Order", "Order:1", "1").await;
    insert(&mut database, "Bill", "Bill:1", "2").await;
    bills.answers(503);
    let file = config(&folder, &orders, &bills, "");
    let mut relay = tokio::process::Command::new(env!("CARGO_BIN_EXE_postrider"));
    relay
        .args(["run", "--once", "--config"])
        .arg(file)
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true);
    let mut relay = relay.spawn().unwrap();
    drop(relay.stderr.take());
    let ended = tokio::time::timeout(TIMEOUT, relay.wait()).await;
    assert_eq!(ended.expect("it ends").unwrap().code(), Some(1));
    assert_eq!(orders.payloads(), [json!(1)]);
}

/// A PostgreSQL database with three orders, and a relay's configuration with a lease of a second.
async fn on_postgresql(folder: &Folder, orders: &Receiver) -> (Database, PathBuf) {
    let mut database = Database::new(Kind::Postgres).await;
    postrider::connect(&database.url).await.unwrap().store.migrate().await.unwrap();
    let rows = (0..3).map(|n| format!("('Order', 'Order:{n}', '{n}')")).collect::<Vec<_>>().join(", ");
    let insert = "INSERT INTO postrider_event (event_type, ordering_key, payload) VALUES";
    database.run(&format!("{insert} {rows}")).await;
    let text = format!(
        "log: {{ format: json }}\noperations: {{ enabled: false }}\nsources:\n  shop:\n    url: \"{}\"\n    lease: 1s\n    drain_timeout: 1s\n\
         \x20   poll: {{ max: 50ms }}\n    routes: [{{ event_type: \"*\", sink: orders }}]\nsinks: {{ orders: {{ http: {{ url: \"{}\" }} }} }}\n",
        database.url, orders.url
    );
    let file = folder.write("relay.yaml", &text);
    (database, file)
}

/// A run that ends by itself, with its exit status and what it said.
fn ended(file: &std::path::Path) -> (Option<i32>, String) {
    let mut relay = Relay::start_with(file, &["--once"], &[]);
    let status = relay.ended_within(TIMEOUT);
    (status, relay.log.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_beside_a_session_that_has_locked_rows_delivers_the_others_and_ends_with_what_it_could_not_write()
 {
    let (folder, orders) = (Folder::new(), Receiver::start().await);
    let (mut database, file) = on_postgresql(&folder, &orders).await;
    // The whole table, with which it cannot run at all, and then one row.
    database.run("BEGIN; LOCK TABLE postrider_event IN SHARE MODE").await;
    let (status, said) = ended(&file);
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("the database is locked by somebody else"), "{said}");
    database.run("COMMIT").await;
    database.run("BEGIN; SELECT * FROM postrider_event WHERE ordering_key = 'Order:1' FOR UPDATE").await;
    let (status, said) = ended(&file);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("another session has locked their rows"), "{said}");
    database.run("COMMIT").await;
    // The server may still have been waiting with an outcome when the process ended, and writes it now.
    let left = database.one("SELECT coalesce(string_agg(payload, ','), '') FROM postrider_event").await;
    assert!(["1", ""].contains(&left.as_str()), "{left}");
    let (status, said) = ended(&file);
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(database.one("SELECT count(*)::text FROM postrider_event").await, "0");
    database.drop(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_can_have_no_lane_because_a_session_has_locked_all_could_not_run_and_says_why() {
    let (folder, orders) = (Folder::new(), Receiver::start().await);
    let (mut database, file) = on_postgresql(&folder, &orders).await;
    database.run("BEGIN; SELECT * FROM postrider_lane FOR UPDATE").await;
    let (status, said) = ended(&file);
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("another session has locked the rows of 64 lanes"), "{said}");
    assert_eq!(orders.payloads(), Vec::<serde_json::Value>::new());
    database.run("COMMIT").await;
    assert_eq!(ended(&file).0, Some(0));
    assert_eq!(orders.payloads().len(), 3);
    database.drop(&[]).await;
}
