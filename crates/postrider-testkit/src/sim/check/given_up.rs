//! An event that its sink refuses alone is dead after `unavailable_for`, not before, and never where that is zero.

use std::collections::BTreeMap;

use postrider_core::EventId;

use super::written;
use crate::sim::{
    history::{Entry, Happening},
    scenario::{HealthHabit, Scenario},
    trial::Trial,
};

/// How much later the engine may notice that an event was refused for long enough: one more retry, and a health check that hangs.
const RETRY_US: u64 = 4_000_000;
const HEALTH_US: u64 = 5_000_000;

/// So many refusals more may be needed: what was delivered in between is known a little later to the engine.
const REFUSALS: u32 = 2;

#[derive(Default)]
struct Refused {
    first_at: Option<u64>,
    last_place: usize,
    /// Since when, and how often, it was refused after its destination had taken another event.
    alone: Option<(u64, u32)>,
    /// It ought to be dead.
    overdue: bool,
}

pub(super) fn in_time(entries: &[Entry], scenario: &Scenario, broken: &mut Vec<String>) {
    let Some((Trial::RefusedAlone, to)) = scenario.trial else { return };
    let limit = scenario.unavailable_for.as_micros() as u64;
    let hangs = scenario.receiver(to).is_some_and(|receiver| receiver.health == HealthHabit::Hangs);
    let slack = RETRY_US + if hangs { HEALTH_US } else { 0 };
    let written = written(entries, scenario);
    let destination = |id: &EventId| written.get(id).map(|event| event.destination);
    let mut refused: BTreeMap<&EventId, Refused> = BTreeMap::new();
    let mut delivered: BTreeMap<u64, usize> = BTreeMap::new();
    for (place, entry) in entries.iter().enumerate() {
        match &entry.what {
            Happening::Healed => return,
            Happening::Answered { id, outcome: "delivered", to: at, .. } if *at == to => {
                destination(id).into_iter().for_each(|destination| _ = delivered.insert(destination, place));
            }
            Happening::Answered { id, outcome: "unavailable", .. } => {
                let known = refused.entry(id).or_default();
                let taken = destination(id).and_then(|destination| delivered.get(&destination));
                if known.first_at.is_some() && taken.is_some_and(|taken| *taken > known.last_place) {
                    let (since, times) = known.alone.get_or_insert((entry.at, 0));
                    *times += 1;
                    known.overdue = limit > 0
                        && entry.at > *since + limit + slack
                        && *times >= scenario.max_attempts + REFUSALS;
                }
                known.first_at.get_or_insert(entry.at);
                known.last_place = place;
            }
            Happening::Called { id, .. } if refused.get(id).is_some_and(|known| known.overdue) => {
                broken.push(format!(
                    "given up: {id} is refused alone for longer than {limit} µs, and not dead"
                ));
            }
            Happening::Died { id, .. } => {
                let since = refused.get(id).and_then(|known| known.first_at);
                let lasts = since.map_or(0, |since| entry.at - since);
                if limit == 0 || lasts < limit {
                    broken.push(format!("given up: {id} is dead after {lasts} µs of {limit}"));
                }
            }
            _ => {}
        }
    }
}
