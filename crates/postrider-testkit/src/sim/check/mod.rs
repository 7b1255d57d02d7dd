//! The promises, held against the history.

mod attempts;
mod bounds;
mod delivery;
mod duplicates;
mod outages;
mod pauses;
mod under_way;

use std::collections::BTreeMap;

use postrider_core::{EventId, store::EventStatus};

use super::{
    history::{Entry, Happening},
    receiver::To,
    scenario::Scenario,
};

/// Every broken promise, in words.
pub(super) fn promises(
    entries: &[Entry],
    scenario: &Scenario,
    rows: &[(EventId, EventStatus)],
) -> Vec<String> {
    let mut broken = Vec::new();
    delivery::atomic(entries, &mut broken);
    delivery::at_least_once(entries, rows, &mut broken);
    delivery::ordered(entries, &mut broken);
    duplicates::explained(entries, &mut broken);
    let keeps_order =
        |to| scenario.receivers.iter().any(|receiver| receiver.to == to && receiver.keeps_order);
    under_way::one_at_a_time(entries, keeps_order, &mut broken);
    attempts::counted(entries, scenario, &mut broken);
    bounds::confined(entries, scenario.max_attempts, &mut broken);
    bounds::fenced(entries, &mut broken);
    bounds::bounded(entries, &mut broken);
    outages::confined(entries, scenario, &mut broken);
    pauses::obeyed(entries, scenario, &mut broken);
    broken
}

/// What was written of an event.
struct Written<'a> {
    /// Its place among all that committed.
    place: usize,
    at: u64,
    event_type: &'a str,
    key: Option<&'a str>,
    to: To,
    delayed: bool,
}

/// Everything that committed.
fn written(entries: &[Entry]) -> BTreeMap<&EventId, Written<'_>> {
    let mut all = BTreeMap::new();
    for (place, entry) in entries.iter().enumerate() {
        if let Happening::Committed { id, event_type, key, to, delayed } = &entry.what {
            let key = key.as_deref();
            all.insert(id, Written { place, at: entry.at, event_type, key, to: *to, delayed: *delayed });
        }
    }
    all
}
