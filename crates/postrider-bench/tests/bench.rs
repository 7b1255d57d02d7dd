//! The benchmarks as people run them, on a small scale.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what is not as it should be fails the test")]

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// What is promised, and what it is measured against.
const FIGURES: [&str; 19] = [
    "backlog_rss_mib",
    "engine_to_channel",
    "memory_events_per_s",
    "channel_events_per_s",
    "drain_to_bare",
    "drain_events_per_s",
    "bare_drain_per_s",
    "write_to_bare_insert",
    "write_us",
    "bare_insert_us",
    "hot_us_p50",
    "hot_us_p99",
    "claim_ms_empty",
    "claim_ms_history",
    "claim_ms_parked",
    "plain_insert_ms_p50",
    "plain_insert_ms_p99",
    "plain_insert_cpu",
    "cores",
];

/// The benchmark, with the relay that was built beside it and without what the environment could change.
fn bench() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider-bench"));
    command.env_remove("CARGO").env_remove("POSTRIDER_LOG").stdin(Stdio::null());
    command
}

/// What a run printed on stdout and on stderr.
fn texts(run: &Output) -> (String, String) {
    (String::from_utf8_lossy(&run.stdout).into_owned(), String::from_utf8_lossy(&run.stderr).into_owned())
}

/// The figures of a run with `--json`.
fn figures(run: &Output) -> Value {
    serde_json::from_slice(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

fn number(figures: &Value, name: &str) -> f64 {
    figures[name].as_f64().unwrap_or_else(|| panic!("no {name} in {figures}"))
}

#[test]
fn the_backlog_is_measured_and_its_memory_is_within_the_limit() {
    let run = bench().args(["--only", "backlog", "--keys", "3000", "--json"]).output().unwrap();
    let counted = figures(&run);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    assert!(number(&counted, "backlog_rss_mib") > 0.0 && number(&counted, "backlog_rss_mib") < 256.0);
    assert_eq!(number(&counted, "backlog_keys"), 3000.0);
    assert_eq!(texts(&run).0.lines().count(), 1);
}

#[test]
fn a_quick_run_has_every_figure_in_one_flat_object_and_no_limit_is_held_against_it() {
    let run = bench().args(["--quick", "--json"]).output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let (stdout, stderr) = texts(&run);
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    let counted = figures(&run);
    for name in FIGURES {
        assert!(number(&counted, name) > 0.0, "{name}: {counted:?}");
    }
    assert_eq!(stderr, "", "a program reads it, and nobody else");
}

#[test]
fn only_what_is_named_is_measured_and_each_round_is_told_if_rounds_are_asked_for() {
    let run = bench().args(["--quick", "--only", "write,drain", "--rounds", "2"]).output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let (stdout, _) = texts(&run);
    for line in ["write, round 1: ours ", "write, round 2: ours ", "drain, round 2: ours "] {
        assert!(stdout.contains(line), "no {line:?} in {stdout}");
    }
    assert!(!stdout.contains("hot") && !stdout.contains("round 3"), "{stdout}");
}

/// The URL of a server that tests run on.
fn server(name: &str) -> Result<String, String> {
    let variable = format!("POSTRIDER_TEST_{name}_URL");
    std::env::var(&variable).map_err(|_| format!("{variable} is not set: see `cargo xtask services env`"))
}

#[test]
fn the_relay_is_measured_from_a_server_to_every_kind_of_sink() {
    for sink in [
        "http".to_owned(),
        server("KAFKA").unwrap(),
        server("NATS").unwrap(),
        server("RABBITMQ").unwrap(),
        server("REDIS").unwrap(),
    ] {
        let run = bench()
            .args([
                "--quick",
                "--json",
                "--only",
                "sink",
                "--store",
                &server("POSTGRES").unwrap(),
                "--sink",
                &sink,
            ])
            .output()
            .unwrap();
        assert_eq!(run.status.code(), Some(0), "{run:?}");
        let counted = figures(&run);
        for name in ["sink_to_limit", "sink_events_per_s", "sink_drain_per_s", "sink_producer_per_s"] {
            assert!(number(&counted, name) > 0.0, "{name}: {counted:?}");
        }
    }
}

#[test]
fn the_relay_is_measured_as_a_process_of_its_own() {
    let run = bench()
        .args([
            "--quick",
            "--json",
            "--only",
            "relay",
            "--store",
            &server("POSTGRES").unwrap(),
            "--sink",
            "http",
        ])
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let counted = figures(&run);
    for name in ["backlog_rss_mib", "first_delivery_s", "idle_rss_mib", "idle_cpu"] {
        assert!(number(&counted, name) > 0.0, "{name}: {counted:?}");
    }
}

#[test]
fn what_needs_a_sink_says_so() {
    let run = bench().args(["--only", "sink"]).output().unwrap();
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    assert!(texts(&run).1.contains("sink can only be measured with --store and --sink"), "{run:?}");
    let run =
        bench().args(["--store", &server("POSTGRES").unwrap(), "--sink", "smoke://here"]).output().unwrap();
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    assert!(texts(&run).1.contains("kafka://host:port"), "{run:?}");
}

#[test]
fn a_wrong_name_or_number_is_a_usage_error() {
    for args in [["--only", "nothing"], ["--keys", "0"]] {
        let run = bench().args(args).output().unwrap();
        assert_eq!(run.status.code(), Some(2), "{args:?}");
        assert!(!run.stderr.is_empty() && run.stdout.is_empty(), "{args:?}");
    }
}
