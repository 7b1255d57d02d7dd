//! A receiver that says "too fast" is not asked much more often than it allows.

use std::collections::{BTreeMap, BTreeSet};

use super::written;
use crate::sim::{
    history::{Call, Entry, Happening},
    receiver::To,
    scenario::{ReceiverScenario, Scenario},
    trial::Trial,
};

/// So many requests may be refused for each engine and destination until the limit is known, and one of so many later.
const FIRST: usize = 20;
const ONE_OF: usize = 4;

/// Where nothing else goes wrong, few requests are too many.
pub(super) fn obeyed(entries: &[Entry], scenario: &Scenario, broken: &mut Vec<String>) {
    let Some((Trial::TooFast, to)) = scenario.trial else { return };
    let Some(receiver) = scenario.receiver(to) else { return };
    let (taken, refused) = requests(entries, scenario, receiver, to);
    // Destinations that share a limit find out each for itself.
    let only = receiver.limit.as_ref().is_some_and(|limit| limit.destination.is_some());
    let destinations = if only { 1 } else { receiver.destinations as usize };
    let most = FIRST * scenario.instances * destinations + taken / ONE_OF;
    if refused > most {
        broken.push(format!("too fast: {to:?} refused {refused} requests, and took {taken}"));
    }
}

/// How many requests were taken and refused where the limit is.
fn requests(entries: &[Entry], scenario: &Scenario, receiver: &ReceiverScenario, to: To) -> (usize, usize) {
    let written = written(entries, scenario);
    let only = receiver.limit.as_ref().and_then(|limit| limit.destination);
    let mut calls: BTreeMap<bool, BTreeSet<(Call, u64)>> = BTreeMap::new();
    for (place, entry) in entries.iter().enumerate() {
        let Happening::Answered { id, outcome, call, to: at, .. } = &entry.what else { continue };
        let Some(event) = written.get(id) else { continue };
        let there = only.is_none_or(|only| only == event.destination);
        let refused = *outcome == "too fast";
        if *at == to && there && (refused || *outcome == "delivered") {
            let one = if receiver.limits_events { place as u64 } else { event.destination };
            calls.entry(refused).or_default().insert((*call, one));
        }
    }
    let count = |refused| calls.get(&refused).map_or(0, BTreeSet::len);
    (count(false), count(true))
}
