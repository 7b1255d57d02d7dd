//! An outage of one receiver, or its pause, holds up nobody else.

use std::collections::BTreeMap;

use postrider_core::{EventId, store::Subject};

use super::{Written, written};
use crate::sim::{
    history::{Entry, Happening},
    receiver::To,
    scenario::Scenario,
};

/// Longest that an event waits in a run in which nothing goes wrong but one outage, of another receiver. A lane that changes hands waits
/// for what is under way: a send of up to a second, and a health check that hangs, which is given five.
const WAIT_US_MAX: u64 = 8_000_000;

/// Where nothing else goes wrong, an event that goes to another receiver, and whose key has no earlier event for the one that is
/// down, is delivered soon.
pub(super) fn confined(entries: &[Entry], scenario: &Scenario, broken: &mut Vec<String>) {
    let Some(down) = down(scenario).filter(|_| scenario.calm) else { return };
    let mut delivered: BTreeMap<&EventId, u64> = BTreeMap::new();
    for entry in entries {
        if let Happening::Answered { id, outcome: "delivered", .. } = &entry.what {
            delivered.entry(id).or_insert(entry.at);
        }
    }
    let written = written(entries);
    let mut keys: BTreeMap<&str, Vec<(&EventId, &Written<'_>)>> = BTreeMap::new();
    for (id, event) in &written {
        event.key.into_iter().for_each(|key| keys.entry(key).or_default().push((id, event)));
    }
    for (id, event) in written.iter().filter(|(_, event)| event.to != down && !event.delayed) {
        let end = |id: &EventId| delivered.get(id).copied().unwrap_or(u64::MAX);
        let earlier = || {
            let of_key = event.key.and_then(|key| keys.get(key)).into_iter().flatten();
            of_key.filter(|(_, other)| other.place < event.place)
        };
        if earlier().any(|(id, other)| other.to == down && end(id) > event.at) {
            continue;
        }
        // Its turn comes when all before it are over.
        let turn = earlier().filter(|(_, other)| !other.delayed).map(|(id, _)| end(id)).max();
        let waited = end(id).saturating_sub(turn.unwrap_or(0).max(event.at));
        if waited > WAIT_US_MAX {
            let (to, ms) = (event.to, waited / 1000);
            broken.push(format!("outage: {id} to {to:?} waited {ms} ms while {down:?} was down"));
        }
    }
}

/// The receiver that is down, or paused.
fn down(scenario: &Scenario) -> Option<To> {
    let paused = |to: &To| scenario.breaks.iter().any(|each| each.subject == Subject::sink(to.name()));
    let down = scenario.receivers.iter().find(|receiver| !receiver.outages.is_empty());
    down.map(|receiver| receiver.to).or_else(|| To::ALL.into_iter().find(paused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_another_receiver_that_waits_for_the_end_of_an_outage_is_told_of() {
        let mut rng = postrider_core::rng::Rng::seeded(1);
        let scenario = std::iter::repeat_with(|| Scenario::draw(&mut rng)).find(|scenario| scenario.calm);
        let scenario = scenario.unwrap();
        let down = super::down(&scenario).unwrap();
        let other = To::ALL.into_iter().find(|to| *to != down).unwrap();
        let id = EventId::ulid();
        let entry = |at, what| Entry { at, what };
        let late = WAIT_US_MAX + 1;
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
            confined(&entries, &scenario, &mut broken);
            broken.len()
        };
        assert_eq!((run(other), run(down)), (1, 0));
    }
}
