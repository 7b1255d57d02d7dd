//! Starts servers, all at the same time, unless they run.

use super::account::Account;
use super::home::{Home, make_folder, random_hex};
use super::server::{Room, Server};
use super::state::{Entry, State};
use super::{ALL, clients, down, is_alive, ports, ready};
use crate::apt::{self, Package};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::Instant;

pub(crate) const PASSWORD_BYTES: usize = 16;

/// The servers of these names (none means all) that have no URL yet, and the servers that they need, in order.
pub(crate) fn wanted(
    all: &[&'static dyn Server],
    names: &[&str],
    given: impl Fn(&str) -> Option<String>,
) -> Result<Vec<&'static dyn Server>, String> {
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|server| server.name() != **name)) {
        let known: Vec<_> = all.iter().map(|server| server.name()).collect();
        return Err(format!("No server is called {unknown}. There are: {}", known.join(", ")));
    }
    let asked_for: Vec<_> = all
        .iter()
        .filter(|server| names.is_empty() || names.contains(&server.name()))
        .filter(|server| given(server.variable()).is_none())
        .collect();
    let needed: BTreeSet<_> = asked_for.iter().filter_map(|server| server.needs()).collect();
    let is_wanted = |server: &dyn Server| {
        needed.contains(server.name()) || asked_for.iter().any(|asked_for| asked_for.name() == server.name())
    };
    Ok(all.iter().copied().filter(|server| is_wanted(*server)).collect())
}

/// Starts the servers that do not run and waits for all of them. `kept` ones outlive test runs.
pub(crate) fn up(home: &Home, servers: &[&'static dyn Server], kept: bool) -> Result<(), String> {
    if servers.is_empty() {
        return Ok(());
    }
    if !cfg!(target_os = "linux") {
        return Err(only_linux(servers));
    }
    let mut state = state(home)?;
    choose(home, &mut state, servers, kept)?;
    // Before anything is started, so that `down` always knows.
    begin(home, &state)?;

    let ended = servers.iter().filter(|server| !is_alive(home, server.name()));
    let missing = ended.flat_map(|server| server.missing(home));
    let missing: BTreeMap<&str, Package> = missing.map(|package| (package.name, package)).collect();
    apt::install(&missing.into_values().collect::<Vec<_>>())?;
    let mut rooms = Vec::new();
    for server in servers {
        let entry = state.servers.get(server.name()).ok_or("A server is not in the state.")?;
        let account = server.account().map_or(Ok(None), Account::of)?;
        rooms.push((*server, Room { name: server.name(), home, state: &state, entry, account }));
    }

    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = rooms
            .iter()
            .map(|(server, room)| (server.name(), scope.spawn(|| start(*server, room))))
            .collect();
        threads.into_iter().map(|(name, thread)| (name, thread.join())).collect()
    });
    let mut versions = BTreeMap::new();
    let mut failures = Vec::new();
    for (name, result) in results {
        match result {
            Ok(Ok(version)) => _ = versions.insert(name, version),
            Ok(Err(why)) => failures.push(format!("{name} did not start. {why}")),
            Err(_) => failures.push(format!("{name}: the thread that starts it panicked.")),
        }
    }
    drop(rooms);
    for (name, version) in versions {
        if let (Some(entry), Some(version)) = (state.servers.get_mut(name), version) {
            entry.version = Some(version);
        }
    }
    home.write_state(&state)?;
    if !failures.is_empty() {
        return Err(failures.join("\n"));
    }
    servers.iter().try_for_each(|server| clients::write(home, &server.clients(home)?))
}

/// The state, or a new one.
pub(crate) fn state(home: &Home) -> Result<State, String> {
    match home.read_state()? {
        Some(state) => Ok(state),
        None => Ok(State { data: home.choose_data()?, servers: BTreeMap::new() }),
    }
}

/// Records what is about to be started, and makes its folder.
pub(crate) fn begin(home: &Home, state: &State) -> Result<(), String> {
    home.write_state(state)?;
    make_folder(&state.data, 0o711)?;
    fs::set_permissions(&state.data, Permissions::from_mode(0o711))
        .map_err(|error| format!("Cannot open {} to servers: {error}", state.data.display()))
}

pub(crate) fn only_linux(servers: &[&'static dyn Server]) -> String {
    let variables: Vec<_> = servers.iter().map(|server| server.variable()).collect();
    format!("Servers are started on Linux only; elsewhere set {} to servers of yours.", variables.join(", "))
}

/// Chooses ports and a password for each server. A server that died keeps them, so that its URL stays valid, if its port is free.
fn choose(home: &Home, state: &mut State, servers: &[&'static dyn Server], kept: bool) -> Result<(), String> {
    let mut new_ports = ports::free(2 * servers.len())?.into_iter();
    let mut next_port = || new_ports.next().ok_or("There are too few ports.");
    for server in servers {
        let name = server.name();
        if !is_alive(home, name) {
            // Its companions may still run.
            down::stop(home, name)?;
        }
        if let Some(entry) = state.servers.get_mut(name) {
            entry.kept |= kept;
            let ports_are_free = ports::is_free(entry.port) && ports::is_free(entry.inner_port);
            if !is_alive(home, name) && !ports_are_free {
                (entry.port, entry.inner_port) = (next_port()?, next_port()?);
                // A server in front of it would connect to the old port.
                for dependent in ALL.iter().filter(|server| server.needs() == Some(name)) {
                    down::stop(home, dependent.name())?;
                }
            }
            continue;
        }
        // PgBouncer passes the password on to PostgreSQL.
        let behind = server.needs().and_then(|needed| state.servers.get(needed));
        let password =
            behind.map_or_else(|| random_hex(PASSWORD_BYTES), |entry| Ok(entry.password.clone()))?;
        let (port, inner_port) = (next_port()?, next_port()?);
        state.servers.insert(name.to_owned(), Entry { port, inner_port, password, version: None, kept });
    }
    Ok(())
}

/// Returns its version if it was started now.
pub(crate) fn start(server: &dyn Server, room: &Room<'_>) -> Result<Option<String>, String> {
    let begun = Instant::now();
    let run = || {
        if room.is_alive() {
            ready::wait(server, room)?;
            return Ok(None);
        }
        room.clear()?;
        server.prepare(room)?;
        let version = server.launch(room)?;
        ready::wait(server, room)?;
        let time = begun.elapsed().as_secs_f64();
        println!("{} {version} is ready on 127.0.0.1:{} after {time:.1} s", room.name, room.entry.port);
        Ok(Some(version))
    };
    run().map_err(|why: String| match ready::tail(&room.log()) {
        tail if tail.is_empty() => why,
        tail => format!("{why}\nThe end of its log ({}):\n{tail}", room.log().display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(asked: &[&str], given: &[&str]) -> Vec<&'static str> {
        let given = |variable: &str| given.contains(&variable).then(|| "somewhere".to_owned());
        wanted(ALL, asked, given).unwrap().iter().map(|server| server.name()).collect()
    }

    #[test]
    fn without_names_all_are_wanted_but_those_that_somebody_gave() {
        assert_eq!(names(&[], &[]).len(), ALL.len());
        let rest = names(&[], &["POSTRIDER_TEST_MYSQL_URL"]);
        assert_eq!(rest.len(), ALL.len() - 1);
        assert!(!rest.contains(&"mariadb"));
        assert!(names(&["mariadb"], &["POSTRIDER_TEST_MYSQL_URL"]).is_empty());
    }

    #[test]
    fn what_a_server_stands_in_front_of_is_started_before_it_even_if_another_was_given() {
        assert_eq!(names(&["pgbouncer"], &[]), ["postgres", "pgbouncer"]);
        assert_eq!(
            names(&["pgbouncer", "postgres"], &["POSTRIDER_TEST_POSTGRES_URL"]),
            ["postgres", "pgbouncer"]
        );
    }

    #[test]
    fn a_name_that_no_server_has_is_an_error_that_lists_the_names() {
        let why = wanted(ALL, &["oracle"], |_| None).err().unwrap();
        assert!(why.contains("oracle") && why.contains("postgres15"), "{why}");
    }
}
