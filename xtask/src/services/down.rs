//! Ends servers. It touches only processes that are on record as ours, even if the `up` that started them was killed.

use super::home::{Home, remove_folder};
use super::state::{Entry, State};
use super::{find, process};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

/// Ends the servers that the filter picks and removes their data. Returns their names.
pub(crate) fn down(home: &Home, which: impl Fn(&Entry) -> bool) -> Result<Vec<String>, String> {
    let mut state = home.read_state()?;
    let kept: Vec<String> = state
        .iter()
        .flat_map(|state| &state.servers)
        .filter(|(_, entry)| !which(entry))
        .map(|(name, _)| name.clone())
        .collect();
    let names: BTreeSet<String> = records_of(home)?
        .iter()
        .map(|record| server_of(record))
        .filter(|name| !kept.contains(name))
        .collect();

    let mut ended = Vec::new();
    let mut failures = Vec::new();
    thread::scope(|scope| {
        let threads: Vec<_> = names.iter().map(|name| (name, scope.spawn(|| stop(home, name)))).collect();
        for (name, thread) in threads {
            match thread.join() {
                Ok(Ok(true)) => ended.push(name.clone()),
                Ok(Ok(false)) => {}
                Ok(Err(why)) => failures.push(format!("{name}: {why}")),
                Err(_) => failures.push(format!("{name}: the thread that ends it panicked.")),
            }
        }
    });
    // A server that did not end stays in the state with its data, for the next try.
    if !failures.is_empty() {
        return Err(failures.join("\n"));
    }
    if let Some(state) = &mut state {
        forget(home, state, |name| kept.iter().all(|kept| kept != name))?;
    }
    Ok(ended)
}

/// Ends one server and removes its data.
pub(crate) fn down_one(home: &Home, name: &str) -> Result<(), String> {
    stop(home, name)?;
    let Some(mut state) = home.read_state()? else { return Ok(()) };
    forget(home, &mut state, |other| other == name)
}

/// Removes the data and the records of servers that have ended.
fn forget(home: &Home, state: &mut State, which: impl Fn(&str) -> bool) -> Result<(), String> {
    for name in state.servers.keys().filter(|name| which(name)) {
        remove_folder(&state.data.join(name))?;
    }
    state.servers.retain(|name, _| !which(name));
    if state.servers.is_empty() {
        remove_folder(&state.data)?;
        return home.remove_state();
    }
    home.write_state(state)
}

fn records_of(home: &Home) -> Result<Vec<PathBuf>, String> {
    let folder = home.processes();
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("Cannot read {}: {error}", folder.display()))?;
    Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
}

/// The part before the dot: a companion's record is called `SERVER.COMPANION`.
fn server_of(record: &Path) -> String {
    record.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Ends the processes of a server: first the server, then the companions that it needs. Returns whether any was alive.
pub(crate) fn stop(home: &Home, name: &str) -> Result<bool, String> {
    stop_by(home, name, find(name).map_or("TERM", |server| server.stop_signal()))
}

/// The same with another signal.
pub(crate) fn stop_by(home: &Home, name: &str, signal: &str) -> Result<bool, String> {
    let mut records = records_of(home)?;
    records.retain(|record| server_of(record) == name);
    records.sort();
    let mut any = false;
    for record in records {
        any |= process::alive(&record).is_some();
        process::stop(&record, signal)?;
    }
    Ok(any)
}
