//! `postrider check`, and what the other commands say.

use serde_json::Value;

use crate::place::{Folder, Receiver, insert, postrider, said};

const SHOP: &str = "sources:\n  shop:\n    url: DATABASE\n    routes: [{ event_type: \"*\", sink: out }]\nsinks:\n  out:\n    http: { url: \"URL\", token: canary }\n";

fn shop(folder: &Folder, url: &str) -> String {
    let text = SHOP.replace("DATABASE", &folder.path("shop.db").display().to_string()).replace("URL", url);
    folder.write("relay.yaml", &text).to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_is_told_with_file_line_and_hint_and_exit_status_2() {
    let folder = Folder::new();
    let file = folder.write("relay.yaml", &SHOP.replace("routes:", "ruotes:"));
    let output = postrider(&["check", "--config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let text = said(&output);
    assert!(text.contains("relay.yaml:4:5: there is no setting `ruotes`"), "{text}");
    assert!(text.contains("did you mean `routes`?"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_configuration_comes_to_is_printed_without_secrets() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    folder.database().await;
    let file = shop(&folder, &receiver.url);
    let output = postrider(&["check", "--config", &file]);
    assert!(output.status.success(), "{}", said(&output));
    let text = said(&output);
    assert!(text.contains("(hidden)") && !text.contains("canary"), "{text}");
    let output = postrider(&["check", "--config", &file, "--connect", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["good"], true, "{answer}");
    assert!(!said(&output).contains("canary"));
    let kinds: Vec<_> =
        answer["connections"].as_array().unwrap().iter().map(|part| part["kind"].clone()).collect();
    assert_eq!(kinds, ["source", "sink"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_not_there_makes_the_verdict_bad() {
    let folder = Folder::new();
    folder.database().await;
    let output =
        postrider(&["check", "--config", &shop(&folder, "http://127.0.0.1:1"), "--connect", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn status_why_and_dead_speak_of_what_is_in_the_table() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    insert(&mut database, "OrderPlaced", "Order:1", "{").await;
    insert(&mut database, "OrderPaid", "Order:1", "2").await;
    let file = shop(&folder, &receiver.url);
    let run = postrider(&["run", "--once", "--config", &file]);
    assert_eq!(run.status.code(), Some(1), "a dead letter is no good verdict: {}", said(&run));
    let json = |args: &[&str]| -> Value {
        let output = postrider(&[args, &["--json", "--config", &file]].concat());
        assert!(output.status.success(), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let status = json(&["status"]);
    assert_eq!((&status["shop"]["dead"], &status["shop"]["parked"]), (&1.into(), &1.into()), "{status}");
    let dead = json(&["dead", "list"]);
    let letter = &dead["dead"][0];
    assert_eq!((&letter["key"], &letter["blocks"]), (&"Order:1".into(), &true.into()), "{dead}");
    let id = letter["id"].as_str().unwrap();
    assert_eq!(json(&["why", "--id", id])["status"], "dead");
    assert_eq!(json(&["why", "--key", "Order:1"])["reason"], "dead");
    assert_eq!(json(&["dead", "discard", "--id", id])["would_discard"], 1);
    assert_eq!(json(&["dead", "redrive", "--id", id])["redriven"], 1);
    assert_eq!(json(&["status"])["shop"]["dead"], 0);
}

#[test]
fn a_url_with_a_password_is_in_no_output() {
    let output = postrider(&["status", "--url", "postgres://shop:canary@127.0.0.1:1/shop"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(!said(&output).contains("canary"), "{}", said(&output));
}
