//! Confined, fenced, bounded.

use std::collections::BTreeMap;

use postrider_core::EventId;

use crate::sim::history::{Entry, Happening};

/// An event may end the process so often before anybody suspects it: once hot, and once as one of many.
pub(super) const UNSUSPECTED: u32 = 2;

/// An event that ends the process is dead after so many attempts: it may do so once hot and once as one of many, before
/// anybody suspects it.
pub(super) fn confined(entries: &[Entry], most: u32, broken: &mut Vec<String>) {
    let mut kills: BTreeMap<&EventId, u32> = BTreeMap::new();
    for entry in entries {
        match &entry.what {
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
            // Attempts were lost with the rest.
            Happening::WentBack => kills.clear(),
            _ => {}
        }
    }
}

/// Who has lost a lane settles nothing of it.
pub(super) fn fenced(entries: &[Entry], broken: &mut Vec<String>) {
    for entry in entries {
        if let Happening::FenceBroken(lane) = &entry.what {
            broken.push(format!(
                "fenced: a settle of lane {lane} was written, and its lease was somebody else's"
            ));
        }
    }
}

/// No more is in memory than may be.
pub(super) fn bounded(entries: &[Entry], broken: &mut Vec<String>) {
    for entry in entries {
        if let Happening::Overfull(hot, cold) = &entry.what {
            broken.push(format!("bounded: {hot} hot and {cold} cold events are in memory"));
        }
    }
}
