//! The promises, held against the history.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::{
    EventId,
    store::{EventStatus, Lane},
};

use super::{
    history::{Happening, History, Name},
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
    attempts(&entries, scenario, &mut broken);
    confined(&entries, scenario.max_attempts, &mut broken);
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

/// An event that was answered as delivered comes again only if its lane changed hands since the one who delivered it took
/// it, or an operator asked for it. An answer that nobody heard, or that said something else, is no delivery.
fn explained(entries: &[Happening], broken: &mut Vec<String>) {
    let mut called: BTreeMap<(&EventId, &Name), usize> = BTreeMap::new();
    let mut delivered: BTreeMap<&EventId, (&Name, usize)> = BTreeMap::new();
    let mut taken: BTreeMap<(&Name, Lane), usize> = BTreeMap::new();
    let mut last_jump = None;
    for (moment, entry) in entries.iter().enumerate() {
        match entry {
            Happening::Leased { by, lanes } => {
                taken.extend(lanes.iter().map(|lane| ((by, *lane), moment)));
            }
            Happening::Redriving(id) => _ = delivered.remove(id),
            Happening::ClockJumped => last_jump = Some(moment),
            Happening::Called { id, lane, by, .. } => {
                let taken_by = |name| taken.get(&(name, *lane)).copied().unwrap_or(0);
                let again = delivered.get(id).is_some_and(|(before, called)| {
                    // Who calls now must have taken the lane after who delivered it did; or, the same, after it called.
                    // One whose lease the database's clock ended at a jump does not know it yet, until its own deadline.
                    let unaware = last_jump.is_some_and(|jump| jump > taken_by(by));
                    if *before == by {
                        taken_by(by) < *called
                    } else {
                        taken_by(by) < taken_by(before) && !unaware
                    }
                });
                if again {
                    broken.push(format!(
                        "explained: {id} came again after it was delivered, under the same lease"
                    ));
                }
                called.insert((id, by), moment);
            }
            Happening::Answered { id, outcome: "delivered", by } => {
                let called = called.get(&(id, by)).copied().unwrap_or(0);
                delivered.insert(id, (by, called));
            }
            _ => {}
        }
    }
}

/// No event is tried more often than it may be, and what costs no attempt is not counted. An attempt that is written
/// beforehand may stay counted although the event was never sent, if the process, the lane or the reply was lost in
/// between: each such fault is allowed for once. An event that ends the process is no such fault for its neighbours.
fn attempts(entries: &[Happening], scenario: &Scenario, broken: &mut Vec<String>) {
    let most = scenario.max_attempts;
    // Failures, and calls that were never answered: one that ends the process is counted too.
    let mut counted: BTreeMap<&EventId, u32> = BTreeMap::new();
    // A stall can cost a lane at any time.
    let mut allowance: u32 = if scenario.faults.stall > 0.0 { most } else { 0 };
    let mut called: BTreeMap<(&EventId, &Name), usize> = BTreeMap::new();
    let mut delivered: BTreeMap<&Name, usize> = BTreeMap::new();
    for (moment, entry) in entries.iter().enumerate() {
        match entry {
            Happening::Called { id, attempt, by, .. } => {
                called.insert((id, by), moment);
                let so_far = counted.entry(id).or_default();
                if *attempt > most {
                    broken.push(format!("attempts: {id} was tried a {attempt}th time of {most}"));
                }
                if *attempt > *so_far + 1 + allowance {
                    broken.push(format!("attempts: {id} counts attempt {attempt} after {so_far} failures"));
                }
                *so_far += 1;
            }
            Happening::Answered { id, outcome: outcome @ ("delivered" | "deferred" | "unavailable"), by } => {
                // Refused while the same engine could deliver others: that is a failure of the event.
                let others = delivered.get(by) > called.get(&(id, by));
                if !(*outcome == "unavailable" && others) {
                    let so_far = counted.entry(id).or_default();
                    *so_far = so_far.saturating_sub(1);
                }
                if *outcome == "delivered" {
                    delivered.insert(by, moment);
                }
            }
            Happening::Fault(..) | Happening::Crashed | Happening::Stopped | Happening::ClockJumped => {
                allowance += 1
            }
            Happening::Killed(_) => allowance = allowance.saturating_sub(1),
            _ => {}
        }
    }
}

/// An event that ends the process is dead after so many attempts: it may do so once hot and once as one of many, before
/// anybody suspects it.
fn confined(entries: &[Happening], most: u32, broken: &mut Vec<String>) {
    const UNSUSPECTED: u32 = 2;
    let mut kills: BTreeMap<&EventId, u32> = BTreeMap::new();
    for entry in entries {
        match entry {
            Happening::Killed(id) => {
                let count = kills.entry(id).or_default();
                *count += 1;
                if *count > most + UNSUSPECTED {
                    broken.push(format!(
                        "confined: {id} ended a process for the {count}th time, of {most} attempts"
                    ));
                }
            }
            Happening::Redriving(id) => _ = kills.remove(id),
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
