//! Ending servers: only processes that are on record as ours, whatever became of the `up` that started them.

use super::home::{Home, remove_folder};
use super::state::Entry;
use super::{find, process};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;

/// Ends the servers that `which` picks and removes their data. Says what it ended.
pub(crate) fn down(home: &Home, which: impl Fn(&Entry) -> bool) -> Result<Vec<String>, String> {
    let mut state = home.read_state()?;
    let kept: Vec<String> = state
        .iter()
        .flat_map(|state| &state.servers)
        .filter(|(_, entry)| !which(entry))
        .map(|(name, _)| name.clone())
        .collect();
    let mut records: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for record in records_of(home)? {
        let file = record.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let server = file.split('.').next().unwrap_or_default().to_owned();
        if !kept.contains(&server) {
            records.entry(server).or_default().push(record);
        }
    }

    let mut ended = Vec::new();
    let mut failures = Vec::new();
    thread::scope(|scope| {
        let threads: Vec<_> =
            records.iter().map(|(name, records)| (name, scope.spawn(|| stop(name, records)))).collect();
        for (name, thread) in threads {
            match thread.join() {
                Ok(Ok(true)) => ended.push(name.clone()),
                Ok(Ok(false)) => {}
                Ok(Err(why)) => failures.push(format!("{name}: {why}")),
                Err(_) => failures.push(format!("{name}: the thread that ends it panicked.")),
            }
        }
    });
    // What could not be ended stays in the state, data and all, for the next try.
    if !failures.is_empty() {
        return Err(failures.join("\n"));
    }
    if let Some(state) = &mut state {
        for name in state.servers.keys().filter(|name| !kept.contains(name)) {
            remove_folder(&state.data.join(name))?;
        }
        state.servers.retain(|name, _| kept.contains(name));
        if state.servers.is_empty() {
            remove_folder(&state.data)?;
            home.remove_state()?;
        } else {
            home.write_state(state)?;
        }
    }
    Ok(ended)
}

fn records_of(home: &Home) -> Result<Vec<PathBuf>, String> {
    let folder = home.processes();
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("Cannot read {}: {error}", folder.display()))?;
    Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
}

/// Whether any process was still alive. The server's own record sorts before those of its companions, which it needs.
fn stop(name: &str, records: &[PathBuf]) -> Result<bool, String> {
    let signal = find(name).map_or("TERM", |server| server.stop_signal());
    let mut records = records.to_vec();
    records.sort();
    let mut any = false;
    for record in records {
        any |= process::alive(&record).is_some();
        process::stop(&record, signal)?;
    }
    Ok(any)
}
