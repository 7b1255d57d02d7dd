//! The promises, held against the history.

mod attempts;
mod bounds;
mod delivery;
mod duplicates;
mod given_up;
mod in_time;
mod pauses;
mod ramp;
mod ready;
mod recovered;
mod rejections;
mod too_fast;
mod under_way;

use std::collections::BTreeMap;

use postrider_core::{EventId, store::EventStatus};

use super::{
    destinations::Destination,
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
    under_way::one_at_a_time(entries, scenario, keeps_order, &mut broken);
    attempts::counted(entries, scenario, &mut broken);
    bounds::confined(entries, scenario.max_attempts, &mut broken);
    bounds::fenced(entries, &mut broken);
    bounds::bounded(entries, &mut broken);
    in_time::delivered(entries, scenario, &mut broken);
    recovered::soon(entries, scenario, &mut broken);
    rejections::braked(entries, scenario, &mut broken);
    rejections::spared(entries, scenario, &mut broken);
    ramp::grows(entries, scenario, &mut broken);
    given_up::in_time(entries, scenario, &mut broken);
    ready::told(entries, scenario, &mut broken);
    too_fast::obeyed(entries, scenario, &mut broken);
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
    destination: Destination,
    delayed: bool,
}

/// Everything that committed.
fn written<'a>(entries: &'a [Entry], scenario: &Scenario) -> BTreeMap<&'a EventId, Written<'a>> {
    let mut all = BTreeMap::new();
    for (place, entry) in entries.iter().enumerate() {
        if let Happening::Committed { id, event_type, key, to, delayed } = &entry.what {
            let (key, to, delayed) = (key.as_deref(), *to, *delayed);
            let destination = scenario.receiver(to).map_or(0, |receiver| receiver.destination(key, id));
            all.insert(id, Written { place, at: entry.at, event_type, key, to, destination, delayed });
        }
    }
    all
}
