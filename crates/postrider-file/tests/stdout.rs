//! Standard output, which belongs to a whole process: this program starts itself as another one and reads what it writes.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "tests may")]

use std::{
    env, io,
    io::Read,
    process::{Child, Command, Stdio},
};

use postrider_core::{Delivery, Event, Sink, Source};
use postrider_file::StdoutSink;

const CHILD: &str = "POSTRIDER_STDOUT_CHILD";

fn main() {
    if env::var_os(CHILD).is_some() {
        return write_lines();
    }
    lines_go_to_standard_output();
    a_reader_that_went_away_is_an_outage();
    println!("standard output: 2 checks passed");
}

/// The other program: writes when its input ends, and says on its standard error what came of it.
fn write_lines() {
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let delivery = |id: &str| {
        let event = Event::json_text("Tested", "{}").id(id).build().unwrap();
        Delivery { event, source: Source::Cold, attempt: 1, lane: 0 }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let sink = StdoutSink::new();
    eprintln!("{:?}", runtime.block_on(sink.send(&[delivery("1"), delivery("2")])));
}

fn start() -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.env(CHILD, "1").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn lines_go_to_standard_output() {
    let output = start().wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "[Delivered, Delivered]\n");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    let whole =
        |line: &&str, id: &str| line.starts_with(&format!("{{\"id\":\"{id}\",")) && line.ends_with("}\n");
    assert!(matches!(lines.as_slice(), [one, two] if whole(one, "1") && whole(two, "2")), "{text}");
}

fn a_reader_that_went_away_is_an_outage() {
    let mut child = start();
    drop(child.stdout.take());
    let said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.starts_with("[Unavailable") && said.contains("Broken pipe"), "{said}");
}
