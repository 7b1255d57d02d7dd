//! Standard output, which belongs to a whole process: a child of this one is asked.

#![allow(clippy::print_stderr, reason = "a child talks to its parent")]

use std::{
    env,
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
};

use postrider_file::StdoutSink;

use crate::{ids, send};

/// The child: writes when its input ends, and says on its standard error what came of it.
#[tokio::test]
#[ignore = "is run by the tests below, in a process of its own"]
async fn child() {
    eprintln!("ready");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    eprintln!("outcomes: {:?}", send(&StdoutSink::new(), &["1", "2"]).await);
}

fn command() -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "stdout::child", "--nocapture"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn lines_go_to_standard_output() {
    let output = command().spawn().unwrap().wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("outcomes: [Delivered, Delivered]"), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: String = text.split_inclusive('\n').filter(|line| line.starts_with("{\"id\":")).collect();
    assert_eq!(ids(&lines), ["1", "2"]);
}

#[test]
fn a_reader_that_went_away_is_an_outage() {
    let mut child = command().spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    drop(child.stdout.take());
    drop(child.stdin.take());
    let said: String = said.lines().map(Result::unwrap).collect();
    child.wait().unwrap();
    assert!(said.contains("outcomes: [Unavailable") && said.contains("Broken pipe"), "{said}");
}
