//! Once everything works again, what is left is delivered soon.

use std::collections::BTreeMap;

use postrider_core::EventId;

use super::written;
use crate::sim::{
    history::{Entry, Happening},
    scenario::{Moods, Scenario},
};

/// Longest that an event waits at a destination that works: a breaker is open for up to 30 s, what was put off waits for up to 30 s more; and a send
/// that hangs is given up after its time-out.
const WAIT_US_MAX: u64 = 70_000_000;

/// After the last fault an event is delivered within a bound, from when its turn in its key has come and no lane has changed hands any more.
pub(super) fn soon(entries: &[Entry], scenario: &Scenario, broken: &mut Vec<String>) {
    // What is refused for good, or slowed down, has its own time.
    let refused = |moods: &Moods| moods.poison > 0.0 || moods.defer > 0.0;
    let slowed =
        scenario.receivers.iter().any(|receiver| refused(&receiver.moods) || receiver.limit.is_some());
    if slowed || scenario.mishaps.leave_unsettled() {
        return;
    }
    let timeout = scenario.receivers.iter().map(|receiver| receiver.send_timeout).max().unwrap_or_default();
    let most = WAIT_US_MAX + timeout.as_micros() as u64;
    let written = written(entries, scenario);
    let mut ends: BTreeMap<&EventId, u64> = BTreeMap::new();
    let mut turns: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut since, mut healed) = (0, false);
    for entry in entries {
        let over = match &entry.what {
            Happening::Healed => {
                (healed, since) = (true, entry.at);
                continue;
            }
            Happening::Started(_) | Happening::Crashed | Happening::Killed(_) | Happening::Leased { .. } => {
                since = entry.at;
                continue;
            }
            Happening::Discarding(id) | Happening::Redriving(id) => id,
            Happening::Answered { id, outcome: "delivered", .. } => {
                let Some(event) = written.get(id).filter(|_| !ends.contains_key(id)) else { continue };
                let turn = event.key.and_then(|key| turns.get(key)).copied().unwrap_or(0);
                let waited = entry.at.saturating_sub(since.max(turn).max(event.at));
                if healed && waited > most {
                    broken.push(format!("recovered: {id} to {:?} waited {} ms", event.to, waited / 1000));
                }
                id
            }
            _ => continue,
        };
        ends.insert(over, entry.at);
        if let Happening::Redriving(id) = &entry.what {
            ends.remove(id);
        }
        written
            .get(over)
            .and_then(|event| event.key)
            .into_iter()
            .for_each(|key| _ = turns.insert(key, entry.at));
    }
}
