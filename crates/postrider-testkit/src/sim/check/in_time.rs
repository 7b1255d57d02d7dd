//! Where one thing alone goes wrong, nobody else is held up by it.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::{EventId, store::Lane};

use super::{Written, written};
use crate::sim::{
    destinations::Destination,
    history::{Entry, Happening},
    scenario::{HealthHabit, MANY_ROWS, Scenario},
    trial::Trial,
    writers::{LATE_US_MAX, LONG_KEY},
};

/// Longest that an event waits which has nothing to do with what goes wrong. A lane that changes hands waits for what is under way: a send of up to
/// a second...
const WAIT_US_MAX: u64 = 4_000_000;

/// ...and a health check that hangs, which is given five.
const HEALTH_US: u64 = 5_000_000;

/// ...and a call of the database that is never answered, which is given two, and a pause before it is repeated.
const HUNG_US: u64 = 3_000_000;

/// ...and so many deadlines of sends that mix destinations, one of which hangs.
const DEADLINES: u64 = 2;

/// What was written so long after a lane was taken over is no suspect.
const ACQUITTED_US: u64 = 2_100_000;

/// An event that has nothing to do with what goes wrong, and whose key has no earlier event that has, is delivered soon.
pub(super) fn delivered(entries: &[Entry], scenario: &Scenario, broken: &mut Vec<String>) {
    let Some((trial, to)) = scenario.trial else { return };
    let ends = ends(entries);
    let end = |id: &EventId| ends.get(id).copied().unwrap_or(u64::MAX);
    let hangs = scenario.receiver(to).is_some_and(|receiver| receiver.health == HealthHabit::Hangs);
    let most = WAIT_US_MAX
        + if hangs { HEALTH_US } else { 0 }
        + open_us(scenario)
        + mixed_us(scenario)
        + scenario.hung.len() as u64 * HUNG_US;
    let involved = Involved::new(entries, scenario);
    let written = written(entries, scenario);
    let mut keys: BTreeMap<&str, Vec<(&EventId, &Written<'_>)>> = BTreeMap::new();
    for (id, event) in &written {
        event.key.into_iter().for_each(|key| keys.entry(key).or_default().push((id, event)));
    }
    for (id, event) in written.iter().filter(|(id, event)| !event.delayed && !involved.is(id, event)) {
        let earlier = || {
            let of_key = event.key.and_then(|key| keys.get(key)).into_iter().flatten();
            of_key.filter(|(_, other)| other.place < event.place)
        };
        if earlier().any(|(id, other)| involved.is(id, other) && end(id) > event.at) {
            continue;
        }
        // Its turn comes when all before it are over.
        let turn = earlier().filter(|(_, other)| !other.delayed).map(|(id, _)| end(id)).max();
        let waited = end(id).saturating_sub(turn.unwrap_or(0).max(event.at));
        if waited > most {
            let (its, ms) = (event.to, waited / 1000);
            broken.push(format!("in time: {id} to {its:?} waited {ms} ms, {trial:?} at {to:?}"));
        }
    }
}

/// A walk over what was skipped begins anew for as long as a transaction is open. If a claim reads few rows, it does not get far by then.
fn open_us(scenario: &Scenario) -> u64 {
    let is_stuck = scenario.scanned < MANY_ROWS && scenario.commits_late > 0.0;
    if is_stuck { 2 * LATE_US_MAX } else { 0 }
}

/// Where one destination hangs and sends mix it with others, these wait for a send that ends with its deadline.
fn mixed_us(scenario: &Scenario) -> u64 {
    let Some((Trial::HangingDestination, to)) = scenario.trial else { return 0 };
    let mixing = scenario.receiver(to).filter(|receiver| !receiver.has_one_destination());
    mixing.map_or(0, |receiver| DEADLINES * receiver.send_timeout.as_micros() as u64)
}

/// When each event was first delivered.
fn ends(entries: &[Entry]) -> BTreeMap<&EventId, u64> {
    let mut ends = BTreeMap::new();
    for entry in entries {
        if let Happening::Answered { id, outcome: "delivered", .. } = &entry.what {
            ends.entry(id).or_insert(entry.at);
        }
    }
    ends
}

/// Whom it happens to.
struct Involved<'a> {
    scenario: &'a Scenario,
    /// Events that were not delivered when they were sent.
    failed: BTreeSet<&'a EventId>,
    /// Destinations of events that are refused alone.
    refusing: BTreeSet<Destination>,
    /// The lanes of events, and those with an event that goes in one send with the long key.
    lanes: BTreeMap<&'a EventId, Lane>,
    slow_lanes: BTreeSet<Lane>,
    /// When a lane was last taken.
    leased_at: u64,
}

impl<'a> Involved<'a> {
    fn new(entries: &'a [Entry], scenario: &'a Scenario) -> Self {
        let written = written(entries, scenario);
        let (mut failed, mut refusing, mut called) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        let (mut lanes, mut leased_at) = (BTreeMap::new(), 0);
        let (mut of_calls, mut slow_calls) = (Vec::new(), BTreeSet::new());
        for entry in entries {
            match &entry.what {
                Happening::Spoiler(id) => _ = failed.insert(id),
                Happening::Poison(id) => refusing.extend(written.get(id).map(|event| event.destination)),
                Happening::Leased { .. } => leased_at = entry.at,
                Happening::Called { id, call, lane, .. } => {
                    called.insert(call, id);
                    lanes.insert(id, *lane);
                    of_calls.push((*call, *lane));
                    if written.get(id).is_some_and(|event| event.key == Some(LONG_KEY)) {
                        slow_calls.insert(*call);
                    }
                }
                Happening::Ended { call, late: true } => failed.extend(called.get(call).copied()),
                _ => {}
            }
        }
        let slow = of_calls.into_iter().filter(|(call, _)| slow_calls.contains(call));
        let slow_lanes = slow.map(|(_, lane)| lane).collect();
        Self { scenario, failed, refusing, lanes, slow_lanes, leased_at }
    }

    fn is(&self, id: &EventId, event: &Written<'_>) -> bool {
        let Some((trial, to)) = self.scenario.trial else { return false };
        match trial {
            Trial::StoreRefuses => return true,
            Trial::HungVerbs | Trial::Peeks => return false,
            // Suspects of all receivers go one at a time.
            Trial::Suspects => return event.to == to || event.at < self.leased_at + ACQUITTED_US,
            // The lane with the slow send is not idle.
            Trial::Stop | Trial::Join => {
                return self.lanes.get(id).is_some_and(|lane| self.slow_lanes.contains(lane));
            }
            _ => {}
        }
        let receiver = self.scenario.receiver(to).filter(|_| event.to == to);
        let Some(receiver) = receiver else { return false };
        let hit = |only: Option<u64>| only.is_none_or(|only| only == event.destination);
        match trial {
            Trial::Pause => true,
            Trial::LongKey => event.key == Some(LONG_KEY),
            Trial::Outage
            | Trial::OneDestination
            | Trial::HangingDestination
            | Trial::Rejects
            | Trial::Broken => receiver.outages.iter().any(|outage| hit(outage.destination)),
            Trial::TooFast => receiver.limit.as_ref().is_some_and(|limit| hit(limit.destination)),
            Trial::FailingKeys => receiver.fails(to, event.key),
            // A destination that refuses one event may be down.
            Trial::RefusedAlone => self.refusing.contains(&event.destination),
            _ => self.failed.contains(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::receiver::To;

    #[test]
    fn an_event_of_another_receiver_that_waits_for_the_end_of_an_outage_is_told_of() {
        let mut rng = postrider_core::rng::Rng::seeded(1);
        let outage = |scenario: &Scenario| matches!(scenario.trial, Some((Trial::Outage, _)));
        let scenario = std::iter::repeat_with(|| Scenario::draw(&mut rng)).find(outage).unwrap();
        let down = scenario.trial.unwrap().1;
        let other = To::ALL.into_iter().find(|to| *to != down).unwrap();
        let id = EventId::ulid();
        let entry = |at, what| Entry { at, what };
        let late = WAIT_US_MAX + HEALTH_US + 2 * LATE_US_MAX + 1;
        let run = |to| {
            let (outcome, by) = ("delivered", "engine".into());
            let entries = [
                entry(
                    0,
                    Happening::Committed { id: id.clone(), event_type: "", key: None, to, delayed: false },
                ),
                entry(late, Happening::Answered { id: id.clone(), outcome, by, to, call: 1 }),
            ];
            let mut broken = Vec::new();
            delivered(&entries, &scenario, &mut broken);
            broken.len()
        };
        assert_eq!((run(other), run(down)), (1, 0));
    }
}
