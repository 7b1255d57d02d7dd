//! Programs in other languages write events with a plain `INSERT`, and the relay delivers them: the commands of
//! `examples/languages/README.md`, run as they stand.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::json;
use tokio::process::Command;

use crate::{
    database::{Database, Kind},
    endpoint::Endpoint,
    place::{Folder, program, said},
};

/// A registry may be slow, and so may be a compiler.
const RUN_MAX: std::time::Duration = std::time::Duration::from_secs(300);

const README: &str = include_str!("../../../../examples/languages/README.md");

/// What is written under the name of a language.
fn commands(language: &str) -> &'static str {
    let (_, section) = README.split_once(&format!("## {language}\n")).expect("the README names the language");
    let (_, block) = section.split_once("```sh\n").unwrap();
    block.split_once("```").unwrap().0
}

/// What the programs leave behind stays out of the checkout.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}

async fn an_order_and_its_event_are_written_or_neither(language: &str) {
    let (folder, database) = (Folder::new(), Database::native(Kind::Postgres).await);
    database.run("CREATE TABLE orders (id int, total int)").await;
    let examples = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/languages"));
    let place = folder.path().join("program");
    copy(&examples.join(language.to_lowercase()), &place);

    let mut shell = Command::new("sh");
    shell.args(["-eu", "-c", commands(language)]).current_dir(&place).kill_on_drop(true).stdin(Stdio::null());
    // Go's driver takes a server without TLS only if it is told to.
    shell.env("DATABASE_URL", format!("{}?sslmode=disable", database.url));
    let output = tokio::time::timeout(RUN_MAX, shell.output()).await.expect("the program ends").unwrap();
    assert!(output.status.success(), "{language}: {}", said(&output));

    let endpoint = Endpoint::start(|_, _| (200, String::new()));
    let config = format!(
        "sources:\n  shop: {{ url: \"{}\", routes: [{{ event_type: OrderPlaced, sink: out }}] }}\n\
         sinks:\n  out: {{ http: {{ url: \"{}\" }} }}\n",
        database.url,
        endpoint.url()
    );
    let config = folder.write("postrider.yaml", &config);
    let run = program().args(["run", "--once", "--config"]).arg(config).output().unwrap();
    assert!(run.status.success(), "{}", said(&run));
    let came: Vec<_> = endpoint.answered().into_iter().map(|request| request.body).collect();
    assert_eq!(came, [json!([{ "order": 1, "total": 12 }])], "{language}");
    assert_eq!(database.lines("SELECT id::text, total::text FROM orders").await, ["1|12"], "{language}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_program_writes_an_event_with_its_order_or_neither() {
    an_order_and_its_event_are_written_or_neither("Python").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_java_program_writes_an_event_with_its_order_or_neither() {
    an_order_and_its_event_are_written_or_neither("Java").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_go_program_writes_an_event_with_its_order_or_neither() {
    an_order_and_its_event_are_written_or_neither("Go").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_program_writes_an_event_with_its_order_or_neither() {
    an_order_and_its_event_are_written_or_neither("Node").await;
}
