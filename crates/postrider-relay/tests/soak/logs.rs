//! What relays logged of lost lanes and of a database that they could not use.

use std::{fs, path::Path, time::UNIX_EPOCH};

use serde_json::Value;

use crate::{
    Failure,
    ledger::RelayId,
    roster::Entry,
    time::{Clock, Micros},
};

/// Words that stand in such a line.
const WORDS: [&str; 5] = ["lane lost", "lane given up", "fenced", "lease renewal failed", "settle failed"];

/// A relay had trouble that can make an event come again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trouble {
    pub(crate) relay: RelayId,
    pub(crate) at: Micros,
}

pub(crate) fn troubles(folder: &Path, roster: &[Entry], clock: Clock) -> Result<Vec<Trouble>, Failure> {
    let mut troubles = Vec::new();
    for (relay, entry) in (0..).zip(roster) {
        let log = fs::read_to_string(folder.join(format!("relay-{}.log", entry.name)))?;
        let lines = log.lines().filter(|line| WORDS.iter().any(|word| line.contains(word)));
        for line in lines {
            let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
            let Some(time) = line.get("timestamp").and_then(Value::as_str) else { continue };
            let at = humantime::parse_rfc3339(time)?.duration_since(UNIX_EPOCH)?;
            troubles.push(Trouble { relay, at: clock.of_unix(at) });
        }
    }
    Ok(troubles)
}

/// Lines of errors that no fault accounts for: panics.
pub(crate) fn panics(folder: &Path, roster: &[Entry]) -> Result<Vec<String>, Failure> {
    let mut panics = Vec::new();
    for entry in roster {
        let log = fs::read_to_string(folder.join(format!("relay-{}.log", entry.name)))?;
        let lines = log.lines().filter(|line| line.contains("panicked"));
        panics.extend(lines.map(|line| format!("relay {} panicked: {line}", entry.name)));
    }
    Ok(panics)
}
