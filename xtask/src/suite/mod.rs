//! The tests: all of them with their servers, or those that need none.
//!
//! Which test needs a server is decided by the test itself: without one it fails and names the variable that is not set, or the
//! command that lends a server. So there is no list that somebody must keep, and a new test is always in one of the two runs.
//!
//! # Layout
//!
//! - `binary`: runs one test binary; cargo starts it for each of them
//! - `libtest`: reads what the harness of Rust prints
//! - `record`: what became of a binary
//! - `left`: what `cargo xtask quick` leaves out beside what needs servers

pub(crate) mod binary;
mod left;
mod libtest;
mod record;

use crate::place::Place;
use crate::services;
use crate::tools;
use binary::{Mode, PLAN, RECORDS};
pub(crate) use record::Record;
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const TEST_THREADS: &str = "RUST_TEST_THREADS";
const SEEDS: (&str, &str) = ("POSTRIDER_SIM_SEEDS", "200");

/// What `cargo test` is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) packages: Vec<String>,
    /// Test targets.
    pub(crate) targets: Vec<String>,
    /// Parts of the names of tests.
    pub(crate) names: Vec<String>,
}

impl Selection {
    pub(crate) fn is_all(&self) -> bool {
        *self == Self::default()
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["test".to_owned(), "--all-features".to_owned()];
        if self.packages.is_empty() {
            arguments.push("--workspace".to_owned());
        }
        arguments.extend(self.packages.iter().map(|package| format!("--package={package}")));
        match self.targets.as_slice() {
            [] => arguments.push("--tests".to_owned()),
            targets => arguments.extend(targets.iter().map(|target| format!("--test={target}"))),
        }
        arguments
    }
}

/// Builds every test binary, so that the steps after it take only their own time.
pub(crate) fn build(place: &Place) -> Result<String, String> {
    let mut cargo = place.command(place.cargo_program());
    place.run(cargo.args(place.arguments.selection.arguments()).arg("--no-run"))
}

/// All tests, with all servers.
pub(crate) fn all(place: &Place) -> Result<String, String> {
    let variables = place.services.start(place)?;
    let mut cargo = cargo_test(place, Mode::All, "")?;
    let result = place.run(cargo.envs(variables));
    let records = records(place)?;
    let summary = summary(&records);
    place.report.records(records);
    result.map(|_| summary)
}

/// The tests of the examples in the documentation.
pub(crate) fn documentation(place: &Place) -> Result<String, String> {
    place.cargo(&["test", "--workspace", "--all-features", "--doc"])
}

/// What needs no server, but for what takes long.
pub(crate) fn quick(place: &Place) -> Result<String, String> {
    tools::sqlite3()?;
    let list = fs::read_to_string(place.root.join(left::LIST))
        .map_err(|error| format!("Cannot read {}: {error}", left::LIST))?;
    let parsed = left::parse(&list)?;
    let mut cargo = without_servers(place, &list)?;
    for (variable, _) in env::vars_os() {
        if services::variables_of_servers().any(|server| variable == server) {
            cargo.env_remove(variable);
        }
    }
    let result = place.run(cargo.env(SEEDS.0, SEEDS.1));
    let records = records(place)?;
    let checked = left::check(&parsed, &records);
    let summary = summary(&records);
    place.report.records(records);
    result.and(checked).map(|()| summary)
}

/// The selected tests. Servers are started only when a test asks for them, and only those that it asks for.
///
/// A test asks for one server at a time, so those that still miss one run again until none does.
pub(crate) fn selected(place: &Place) -> Result<String, String> {
    tools::sqlite3()?;
    let mut result = place.run(&mut without_servers(place, "")?);
    let mut last = records(place)?;
    let mut found = last.clone();
    let mut started: Option<Vec<&str>> = None;
    while result.is_ok() && last.iter().any(|record| !record.needing.is_empty()) {
        let variables: BTreeSet<&str> =
            found.iter().flat_map(|record| &record.variables).map(String::as_str).collect();
        let servers = services::servers_of(&variables);
        if started.as_ref() == Some(&servers) {
            result = Err(format!("Tests miss a server although these run: {}.", servers.join(", ")));
            break;
        }
        println!("Servers for these tests: {}", servers.join(", "));
        // Tests may also borrow servers, and start those themselves.
        let variables =
            if servers.is_empty() { Vec::new() } else { place.services.start_only(place, &servers)? };
        let plan: String = last.iter().map(Record::line).collect();
        let mut cargo = cargo_test(place, Mode::NeedingServers, &plan)?;
        result = place.run(cargo.args(["--quiet", "--no-fail-fast"]).envs(variables));
        last = records(place)?;
        found.iter_mut().for_each(Record::settle_needing);
        found.extend(last.iter().cloned());
        started = Some(servers);
    }
    found.retain(|record| record.passed + record.failed + record.left > 0);
    let summary = summary(&found);
    place.report.records(found);
    result.map(|_| summary)
}

fn without_servers(place: &Place, plan: &str) -> Result<Command, String> {
    let mut cargo = cargo_test(place, Mode::WithoutServers, plan)?;
    cargo
        .args(["--quiet", "--no-fail-fast"])
        .env(services::LENDING.0, services::LENDING.1)
        .env("RUST_BACKTRACE", "0");
    if !place.arguments.selection.names.is_empty() {
        cargo.arg("--").args(&place.arguments.selection.names);
    }
    Ok(cargo)
}

/// `cargo test` with this program as the runner of the test binaries.
fn cargo_test(place: &Place, mode: Mode, plan: &str) -> Result<Command, String> {
    let folder = folder(place);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(folder.join(PLAN), plan))
        .map_err(|error| format!("Cannot write below {}: {error}", folder.display()))?;
    let program = env::current_exe().map_err(|error| format!("This program is not to be found: {error}"))?;
    let runner = [program.as_os_str(), binary::COMMAND.as_ref(), mode.word().as_ref(), folder.as_os_str()];
    let runner: Vec<String> = runner.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    let mut cargo = place.command(place.cargo_program());
    cargo.arg("--config").arg(format!("target.'cfg(all())'.runner=[{}]", runner.join(", ")));
    cargo.args(place.arguments.selection.arguments());
    if env::var_os(TEST_THREADS).is_none() {
        cargo.env(TEST_THREADS, test_threads().to_string());
    }
    Ok(cargo)
}

/// Most tests wait for a server or for time to pass, so four run at once for each core.
fn test_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get) * 4
}

fn folder(place: &Place) -> PathBuf {
    place.target.join("xtask-tests").join(std::process::id().to_string())
}

/// What the runner wrote down. The folder goes.
fn records(place: &Place) -> Result<Vec<Record>, String> {
    let file = folder(place).join(RECORDS);
    let text = fs::read_to_string(&file).unwrap_or_default();
    let _ = fs::remove_dir_all(folder(place));
    text.lines()
        .map(|line| {
            Record::parse(line).ok_or_else(|| format!("{} is not understood: {line}", file.display()))
        })
        .collect()
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn summary(records: &[Record]) -> String {
    let passed: usize = records.iter().map(|record| record.passed).sum();
    let left: usize = records.iter().map(|record| record.left).sum();
    let left = if left == 0 { String::new() } else { format!(", {left} left to `cargo xtask test`") };
    // A binary whose tests needed servers has a record of each run.
    let binaries: BTreeSet<_> = records.iter().map(|record| (&record.package, &record.target)).collect();
    format!("{passed} tests in {} binaries{left}", binaries.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_becomes_arguments_of_cargo() {
        let all = ["test", "--all-features", "--workspace", "--tests"];
        assert_eq!(Selection::default().arguments(), all);
        let some = Selection {
            packages: vec!["a".to_owned()],
            targets: vec!["b".to_owned()],
            names: vec!["c".to_owned()],
        };
        assert_eq!(some.arguments(), ["test", "--all-features", "--package=a", "--test=b"]);
    }

    #[test]
    fn a_path_is_quoted_for_toml() {
        assert_eq!(quoted(r#"C:\a "b""#), r#""C:\\a \"b\"""#);
    }
}
