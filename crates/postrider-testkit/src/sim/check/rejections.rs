//! A destination that rejects everything kills few.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::EventId;

use super::written;
use crate::sim::{
    destinations::Destination,
    history::{Call, Entry, Happening, Name},
    receiver::To,
    scenario::Scenario,
    trial::Trial,
};

/// So many keys in a row that a destination rejected may have died of it.
const KEYS_MAX: usize = 10;

/// So many keys in a row that used up their attempts may have died of it.
const EXHAUSTED_MAX: usize = 25;

/// What one engine got from one destination since something was delivered there: the events that were rejected, and by which call.
type Rejected<'a> = BTreeMap<(&'a Name, To, Destination), Vec<(&'a EventId, Call)>>;

/// No more than a few keys in a row die because a sink rejects them, of each engine and since something was delivered at the same destination.
pub(super) fn braked(entries: &[Entry], scenario: &Scenario, broken: &mut Vec<String>) {
    let written = written(entries, scenario);
    let died_of = died_of(entries);
    let mut rejected: Rejected<'_> = BTreeMap::new();
    for entry in entries {
        let Happening::Answered { id, outcome, by, to, call } = &entry.what else { continue };
        let Some(event) = written.get(id).filter(|_| *to != To::Handler) else { continue };
        let so_far = rejected.entry((by, *to, event.destination)).or_default();
        match *outcome {
            // What was rejected beside it is judged after it.
            "delivered" => so_far.retain(|(_, other)| other == call),
            "rejected" => {
                so_far.push((id, *call));
                let dead = so_far.iter().filter(|(id, call)| died_of.get(&(by, *id)) == Some(call));
                let name = |id: &EventId| written.get(id).and_then(|event| event.key).map(str::to_owned);
                let keys: BTreeSet<String> =
                    dead.map(|(id, _)| name(id).unwrap_or_else(|| id.as_str().to_owned())).collect();
                if keys.len() > KEYS_MAX {
                    let count = keys.len();
                    broken.push(format!(
                        "braked: {id} is the {count}th in a row that {to:?} rejected, and died"
                    ));
                }
            }
            _ => {}
        }
    }
}

/// The last answer before each death. An event that was rejected and spared may die of something else later.
fn died_of(entries: &[Entry]) -> BTreeMap<(&Name, &EventId), Call> {
    let (mut last, mut died) = (BTreeMap::new(), BTreeMap::new());
    for entry in entries {
        match &entry.what {
            Happening::Answered { id, by, call, .. } => _ = last.insert((by, id), *call),
            Happening::Died { by, id } => {
                if let Some(call) = last.get(&(by, id)) {
                    died.insert((by, id), *call);
                }
            }
            _ => {}
        }
    }
    died
}

/// Where a sink fails everything and says that it is well, no more than a few keys in a row die of it, of each engine.
pub(super) fn spared(entries: &[Entry], scenario: &Scenario, broken: &mut Vec<String>) {
    let Some((Trial::Broken, to)) = scenario.trial else { return };
    let written = written(entries, scenario);
    let mut delivered: BTreeMap<(&Name, Destination), usize> = BTreeMap::new();
    let mut failed: BTreeMap<&EventId, usize> = BTreeMap::new();
    let mut died: BTreeMap<(&Name, Destination), BTreeSet<&str>> = BTreeMap::new();
    for (place, entry) in entries.iter().enumerate() {
        match &entry.what {
            Happening::Healed => return,
            Happening::Answered { id, outcome, by, to: at, .. } if *at == to => {
                let Some(event) = written.get(id) else { continue };
                if *outcome == "delivered" {
                    delivered.insert((by, event.destination), place);
                    died.remove(&(by, event.destination));
                } else {
                    failed.insert(id, place);
                }
            }
            Happening::Died { by, id } => {
                let Some(event) = written.get(id).filter(|event| event.to == to) else { continue };
                let there = (by, event.destination);
                // Something may have been delivered since it was decided that it dies.
                if failed.get(id) < delivered.get(&there) {
                    continue;
                }
                let keys = died.entry(there).or_default();
                keys.insert(event.key.unwrap_or(id.as_str()));
                if keys.len() > EXHAUSTED_MAX {
                    let count = keys.len();
                    broken
                        .push(format!("braked: {id} is the {count}th in a row that {to:?} failed, and died"));
                }
            }
            _ => {}
        }
    }
}
