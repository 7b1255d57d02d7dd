//! The state of the servers: a table for people, and variables for programs.

use super::server::Server;
use super::state::State;
use std::fmt::Write as _;

/// A line for each server: name, version, port, process id, state.
pub(crate) fn table(
    all: &[&'static dyn Server],
    state: Option<&State>,
    pid: impl Fn(&str) -> Option<u32>,
    given: impl Fn(&str) -> Option<String>,
) -> String {
    let mut text = format!("{:<11} {:<10} {:>5} {:>8}  state\n", "server", "version", "port", "pid");
    for server in all {
        let entry = state.and_then(|state| state.servers.get(server.name()));
        let pid = pid(server.name());
        let what = match (entry, pid, given(server.variable())) {
            (_, _, Some(_)) => format!("given by {}", server.variable()),
            (None, _, None) => "not started".to_owned(),
            (Some(entry), Some(_), None) if entry.kept => "running".to_owned(),
            (Some(_), Some(_), None) => "running for a test".to_owned(),
            (Some(_), None, None) => "ended".to_owned(),
        };
        let dash = || "-".to_owned();
        let version = entry.and_then(|entry| entry.version.clone()).unwrap_or_else(dash);
        let port = entry.map_or_else(dash, |entry| entry.port.to_string());
        let pid = pid.map_or_else(dash, |pid| pid.to_string());
        let _ = writeln!(text, "{:<11} {version:<10} {port:>5} {pid:>8}  {what}", server.name());
    }
    text
}

/// The variables of servers that run, and of those that the caller set.
pub(crate) fn variables(
    all: &[&'static dyn Server],
    state: Option<&State>,
    is_alive: impl Fn(&str) -> bool,
    given: impl Fn(&str) -> Option<String>,
) -> Vec<(&'static str, String)> {
    let ours = |server: &dyn Server| {
        let entry = state?.servers.get(server.name())?;
        is_alive(server.name()).then(|| server.url(entry))
    };
    all.iter()
        .filter_map(|server| {
            let variable = server.variable();
            Some((variable, given(variable).or_else(|| ours(*server))?))
        })
        .collect()
}

/// Lines for `eval` in a shell.
pub(crate) fn exports(variables: &[(&'static str, String)]) -> String {
    variables.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value))).collect()
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::super::ALL;
    use super::super::state::Entry;
    use super::*;
    use std::collections::BTreeMap;

    fn state() -> State {
        let entry = |port, kept| Entry {
            port,
            inner_port: 1,
            password: "0a".to_owned(),
            version: Some("18.6".to_owned()),
            kept,
        };
        State {
            data: "/data".into(),
            servers: BTreeMap::from([
                ("postgres".to_owned(), entry(4001, true)),
                ("mariadb".to_owned(), entry(4002, false)),
            ]),
        }
    }

    #[test]
    fn a_variable_that_was_given_wins_and_one_of_a_server_that_does_not_run_is_absent() {
        let given =
            |variable: &str| (variable == "POSTRIDER_TEST_PGBOUNCER_URL").then(|| "theirs".to_owned());
        let found = variables(ALL, Some(&state()), |name| name == "postgres", given);
        assert_eq!(
            found,
            [
                ("POSTRIDER_TEST_POSTGRES_URL", "postgres://postrider:0a@127.0.0.1:4001/postgres".to_owned()),
                ("POSTRIDER_TEST_PGBOUNCER_URL", "theirs".to_owned()),
            ]
        );
        assert!(variables(ALL, None, |_| true, |_| None).is_empty());
    }

    #[test]
    fn a_value_reaches_the_shell_as_it_is() {
        assert_eq!(exports(&[("A", "a'b$c".to_owned())]), "export A='a'\\''b$c'\n");
    }

    #[test]
    fn the_table_tells_what_runs_from_what_ended_and_never_started() {
        let pid = |name: &str| (name == "postgres").then_some(77);
        let table = table(ALL, Some(&state()), pid, |_| None);
        let row = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(row("postgres ").contains("18.6") && row("postgres ").ends_with("4001       77  running"));
        assert!(row("mariadb").ends_with("4002        -  ended"));
        assert!(row("pgbouncer").ends_with("not started"));
        assert!(!table.contains("0a"), "a password is never shown");
    }
}
