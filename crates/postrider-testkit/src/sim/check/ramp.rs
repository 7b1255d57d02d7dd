//! After an outage a sink is not sent everything at once.

use std::collections::BTreeMap;

use super::written;
use crate::sim::{
    history::{Call, Entry, Happening, Name},
    receiver::To,
    scenario::{HealthHabit, ReceiverScenario, Scenario},
    trial::Trial,
};

/// After so many deliveries all that is allowed may go at once.
const STEPS: usize = 8;

/// What one engine has done at one sink.
#[derive(Default)]
struct Sink {
    /// Calls under way, with the place in the history where each began and how many events it has.
    under_way: BTreeMap<Call, (usize, usize)>,
    delivered_at: usize,
    /// Events that were delivered since the sink was last known to be down; none if it never was.
    since_down: Option<usize>,
}

impl Sink {
    /// Most calls at a time, and most events in one of them.
    fn allowed(&self, batches: bool) -> Option<(usize, usize)> {
        let steps = self.since_down.filter(|steps| *steps < STEPS)?;
        Some((if batches { 1 + steps } else { 1 << steps }, 1 << steps))
    }
}

/// Where a sink with one destination says that it is down, and nothing else goes wrong, calls become more and larger only with what it takes. One whose
/// health check hangs is known to be down only after that.
pub(super) fn grows(entries: &[Entry], scenario: &Scenario, broken: &mut Vec<String>) {
    let Some((Trial::Outage, to)) = scenario.trial else { return };
    let has_one = |each: &&ReceiverScenario| each.destinations == 1 && each.health != HealthHabit::Hangs;
    let Some(receiver) = scenario.receiver(to).filter(|_| to != To::Handler).filter(has_one) else { return };
    let written = written(entries, scenario);
    let mut sinks: BTreeMap<&Name, Sink> = BTreeMap::new();
    for (place, entry) in entries.iter().enumerate() {
        match &entry.what {
            Happening::Called { id, by, to: at, call, .. } if *at == to && written.contains_key(id) => {
                let sink = sinks.entry(by).or_default();
                sink.under_way.entry(*call).or_insert((place, 0)).1 += 1;
                let size = sink.under_way.get(call).map_or(0, |(_, size)| *size);
                let calls = sink.under_way.len();
                if let Some((calls_max, size_max)) = sink.allowed(receiver.batch_max > 1)
                    && (calls > calls_max || size > size_max)
                {
                    let taken = sink.since_down.unwrap_or_default();
                    broken.push(format!(
                        "ramp: {to:?} has {calls} calls, one of {size} events, and took {taken} since it was down"
                    ));
                }
            }
            Happening::Answered { outcome, by, to: at, call, .. } if *at == to => {
                let sink = sinks.entry(by).or_default();
                let began = sink.under_way.get(call).map_or(0, |(began, _)| *began);
                match *outcome {
                    "delivered" => {
                        sink.delivered_at = place;
                        sink.since_down = sink.since_down.map(|events| events + 1);
                    }
                    // Where something was delivered meanwhile, the sink may be up.
                    "unavailable" if began > sink.delivered_at => sink.since_down = Some(0),
                    _ => {}
                }
            }
            Happening::Ended { call, .. } => {
                sinks.values_mut().for_each(|sink| _ = sink.under_way.remove(call));
            }
            _ => {}
        }
    }
}
