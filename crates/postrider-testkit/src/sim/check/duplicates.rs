//! Every duplicate has a fault that explains it.

use std::collections::BTreeMap;

use postrider_core::{EventId, store::Lane};

use crate::sim::history::{Call, Entry, Happening, Name};

/// An event that was answered as delivered comes again only if its lane changed hands since the one who delivered it took
/// it, or an operator asked for it. An answer that nobody heard, or that said something else, is no delivery.
pub(super) fn explained(entries: &[Entry], broken: &mut Vec<String>) {
    let mut called: BTreeMap<(&EventId, Call), usize> = BTreeMap::new();
    let mut delivered: BTreeMap<&EventId, (&Name, usize)> = BTreeMap::new();
    let mut taken: BTreeMap<(&Name, Lane), usize> = BTreeMap::new();
    let mut last_jump = None;
    for (moment, entry) in entries.iter().enumerate() {
        match &entry.what {
            Happening::Leased { by, lanes, .. } => {
                taken.extend(lanes.iter().map(|lane| ((by, *lane), moment)));
            }
            Happening::Redriving(id) => _ = delivered.remove(id),
            Happening::ClockJumped => last_jump = Some(moment),
            // What was delivered is in the table again, and who had its lane does not know it yet.
            Happening::WentBack => {
                delivered.clear();
                last_jump = Some(moment);
            }
            Happening::Called { id, lane, by, call, .. } => {
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
                called.insert((id, *call), moment);
            }
            Happening::Answered { id, outcome: "delivered", by, call, .. } => {
                let called = called.get(&(id, *call)).copied().unwrap_or(0);
                delivered.insert(id, (by, called));
            }
            _ => {}
        }
    }
}
