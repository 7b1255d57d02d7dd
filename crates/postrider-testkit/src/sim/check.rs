//! The promises, held against the history.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::{EventId, store::EventStatus};

use super::{
    history::{Happening, History},
    scenario::Scenario,
};

/// Every broken promise, in words.
pub(super) fn promises(
    history: &History,
    scenario: &Scenario,
    rows: &[(EventId, EventStatus)],
) -> Vec<String> {
    let entries = history.entries();
    let mut broken = Vec::new();
    atomic(&entries, &mut broken);
    at_least_once(&entries, rows, &mut broken);
    ordered(&entries, &mut broken);
    explained(&entries, &mut broken);
    attempts(&entries, scenario.max_attempts, &mut broken);
    broken
}

/// Nothing that was rolled back, and nothing that was never written, is ever delivered.
fn atomic(entries: &[Happening], broken: &mut Vec<String>) {
    let mut committed = BTreeSet::new();
    for entry in entries {
        match entry {
            Happening::Committed { id, .. } => _ = committed.insert(id),
            Happening::Called { id, .. } if !committed.contains(id) => {
                broken.push(format!("atomic: {id} was delivered and had not committed"));
            }
            _ => {}
        }
    }
}

/// A committed event took effect, or an operator discarded it.
fn at_least_once(entries: &[Happening], rows: &[(EventId, EventStatus)], broken: &mut Vec<String>) {
    let effects: BTreeSet<_> = ids(entries, |entry| match entry {
        Happening::Effect(id) => Some(id),
        _ => None,
    });
    let discarded: BTreeSet<_> = ids(entries, |entry| match entry {
        Happening::Discarding(id) => Some(id),
        _ => None,
    });
    for (id, status) in rows {
        match status {
            EventStatus::Absent | EventStatus::Done { .. } => {
                if !effects.contains(id) && !discarded.contains(id) {
                    broken.push(format!("at least once: {id} is gone and was never delivered"));
                }
            }
            EventStatus::Dead { .. } => {}
            status => broken.push(format!("at least once: {id} is still {status:?} at the end")),
        }
    }
}

/// First effects of a key follow the order of commits. Delayed events stand outside, and a discarded one lets the key
/// pass.
fn ordered(entries: &[Happening], broken: &mut Vec<String>) {
    let mut keys: BTreeMap<&str, Vec<&EventId>> = BTreeMap::new();
    let mut key_of = BTreeMap::new();
    let mut settled: BTreeSet<&EventId> = BTreeSet::new();
    for entry in entries {
        match entry {
            Happening::Committed { id, key: Some(key), delayed: false } => {
                keys.entry(key).or_default().push(id);
                key_of.insert(id, key.as_str());
            }
            Happening::Discarding(id) => _ = settled.insert(id),
            Happening::Effect(id) => {
                let before = key_of.get(id).and_then(|key| keys.get(key)).into_iter().flatten();
                if settled.insert(id) {
                    for earlier in before.take_while(|earlier| **earlier != id) {
                        if !settled.contains(earlier) {
                            broken
                                .push(format!("ordered: {id} took effect before {earlier} of the same key"));
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

/// An event that was answered as delivered comes again only if a lease changed hands, or an operator asked for it.
fn explained(entries: &[Happening], broken: &mut Vec<String>) {
    let mut answered: BTreeMap<&EventId, usize> = BTreeMap::new();
    let mut last_lease = None;
    for (moment, entry) in entries.iter().enumerate() {
        match entry {
            Happening::Answered { id, outcome: "delivered" } => _ = answered.insert(id, moment),
            Happening::Leased(_) => last_lease = Some(moment),
            Happening::Redriving(id) => _ = answered.remove(id),
            Happening::Called { id, .. } => {
                let delivered_at = answered.get(id).copied();
                if delivered_at.is_some_and(|moment| last_lease.is_none_or(|lease| lease < moment)) {
                    broken.push(format!(
                        "explained: {id} came again after it was delivered, under the same lease"
                    ));
                }
            }
            _ => {}
        }
    }
}

/// No event is tried more often than it may be, and what costs no attempt is not counted.
fn attempts(entries: &[Happening], most: u32, broken: &mut Vec<String>) {
    let mut counted: BTreeMap<&EventId, u32> = BTreeMap::new();
    for entry in entries {
        match entry {
            Happening::Called { id, attempt } => {
                let so_far = counted.get(id).copied().unwrap_or(0);
                if *attempt > most {
                    broken.push(format!("attempts: {id} was tried a {attempt}th time of {most}"));
                }
                if *attempt > so_far + 1 {
                    broken.push(format!("attempts: {id} counts attempt {attempt} after {so_far} failures"));
                }
            }
            Happening::Answered { id, outcome: "failed" | "panicked" | "unknown" | "rejected" } => {
                *counted.entry(id).or_default() += 1;
            }
            _ => {}
        }
    }
}

fn ids<'a>(
    entries: &'a [Happening],
    pick: impl Fn(&'a Happening) -> Option<&'a EventId>,
) -> BTreeSet<&'a EventId> {
    entries.iter().filter_map(pick).collect()
}
