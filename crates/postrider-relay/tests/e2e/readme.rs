//! The way from an `INSERT` to Kafka that `docs/tables.md` shows is what happens: its commands are read from there and run as they stand.

use std::{env, ffi::OsString, path::Path, process::Stdio};

use tokio::process::Command;

use crate::{
    database::{Database, Kind},
    place::{Folder, said},
    server::Lent,
    time::TIMEOUT,
};

/// Stands before the commands in the document.
const MARK: &str = "<!-- walk: a test runs these commands as they stand -->\n\n```sh\n";

const DOCUMENT: &str = include_str!("../../../../docs/tables.md");

/// PATH, with the program and the servers' clients before everything else.
fn path() -> OsString {
    let program = Path::new(env!("CARGO_BIN_EXE_postrider")).parent().unwrap().to_owned();
    let clients = env::var_os("POSTRIDER_TEST_CLIENTS").map(Into::into);
    let rest = env::var_os("PATH").unwrap_or_default();
    env::join_paths([program].into_iter().chain(clients).chain(env::split_paths(&rest))).unwrap()
}

/// The commands: lines that begin one, and not those that go on with it.
fn commands(script: &str) -> usize {
    let (mut count, mut here_document) = (0, false);
    for line in script.lines() {
        match line {
            "END" => here_document = false,
            line if here_document || line.starts_with(' ') || line.is_empty() => {}
            line => {
                count += 1;
                here_document = line.contains("<<'END'");
            }
        }
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readme_goes_from_an_insert_in_psql_to_a_consumed_kafka_message_in_under_ten_commands() {
    let (_, script) = DOCUMENT.split_once(MARK).expect("the document has the walk");
    let (script, _) = script.split_once("```").unwrap();
    assert!(commands(script) < 10, "{} commands:\n{script}", commands(script));

    let (folder, database, kafka) =
        (Folder::new(), Database::new(Kind::Postgres).await, Lent::borrow("kafka").await);
    let mut shell = Command::new("sh");
    shell.args(["-eu", "-c", script]).current_dir(folder.path()).kill_on_drop(true);
    shell.env("PATH", path()).env("DATABASE_URL", &database.url).env("KAFKA", kafka.address());
    let running = shell.stdin(Stdio::null()).output();
    let output = tokio::time::timeout(TIMEOUT, running).await.expect("the commands end").unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let (_, shown) = DOCUMENT.split_once(MARK).unwrap().1.split_once("prints `").unwrap();
    let (payload, _) = shown.split_once('`').unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.lines().any(|line| line == payload), "{payload} is not in {}", said(&output));
    database.until("SELECT total::text FROM orders", &["12"]).await;
}
