//! Atomic, at least once, ordered.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::{EventId, store::EventStatus};

use crate::sim::history::{Entry, Happening};

/// Nothing that was rolled back, and nothing that was never written, is ever delivered.
pub(super) fn atomic(entries: &[Entry], broken: &mut Vec<String>) {
    let mut committed = BTreeSet::new();
    for entry in entries {
        match &entry.what {
            Happening::Committed { id, .. } => _ = committed.insert(id),
            Happening::Called { id, .. } if !committed.contains(id) => {
                broken.push(format!("atomic: {id} was delivered and had not committed"));
            }
            _ => {}
        }
    }
}

/// A committed event took effect, or an operator discarded it, or the database lost it.
pub(super) fn at_least_once(entries: &[Entry], rows: &[(EventId, EventStatus)], broken: &mut Vec<String>) {
    let over = |entry: &Entry| match &entry.what {
        Happening::Effect(id) | Happening::Discarding(id) | Happening::Lost(id) => Some(id.clone()),
        _ => None,
    };
    let over: BTreeSet<EventId> = entries.iter().filter_map(over).collect();
    for (id, status) in rows {
        match status {
            EventStatus::Absent | EventStatus::Done { .. } => {
                if !over.contains(id) {
                    broken.push(format!("at least once: {id} is gone and was never delivered"));
                }
            }
            EventStatus::Dead { .. } => {}
            status => broken.push(format!("at least once: {id} is still {status:?} at the end")),
        }
    }
}

/// First effects of a key follow the order of commits, whatever receivers they go to. Delayed events stand outside, and a discarded
/// one lets the key pass, and so does one that the database lost.
pub(super) fn ordered(entries: &[Entry], broken: &mut Vec<String>) {
    let mut keys: BTreeMap<&str, Vec<&EventId>> = BTreeMap::new();
    let mut key_of = BTreeMap::new();
    let mut settled: BTreeSet<&EventId> = BTreeSet::new();
    for entry in entries {
        match &entry.what {
            Happening::Committed { id, key: Some(key), delayed: false, .. } => {
                keys.entry(key).or_default().push(id);
                key_of.insert(id, key.as_str());
            }
            Happening::Discarding(id) | Happening::Lost(id) => _ = settled.insert(id),
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
