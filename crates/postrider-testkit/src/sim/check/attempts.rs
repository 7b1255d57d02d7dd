//! Which attempts count: an outage costs none.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::{EventId, store::Lane};

use super::{Written, bounds::UNSUSPECTED, written};
use crate::sim::{
    destinations::Destination,
    history::{Call, Entry, Happening, Name},
    receiver::To,
    scenario::Scenario,
    trial::Trial,
};

/// No event is tried more often than it may be, what costs no attempt is not counted, and nobody is dead before its time.
///
/// An attempt that failed through no fault of the event counts only if its destination was shown to work since it began, and never if a
/// batch failed as a whole. An attempt
/// that is written beforehand may stay counted although the event was never sent, if the process, the lane or the reply was lost in
/// between: each such fault is allowed for once. An event that ends the process is no such fault for its neighbours, once it is suspected.
pub(super) fn counted(entries: &[Entry], scenario: &Scenario, broken: &mut Vec<String>) {
    let mut counting = Counting {
        written: written(entries, scenario),
        most: scenario.max_attempts,
        gives_up: matches!(scenario.trial, Some((Trial::RefusedAlone, _))),
        // A stall can cost a lane at any time.
        allowance: if scenario.faults.stall.max(scenario.faults.stall_settle) > 0.0 {
            scenario.max_attempts
        } else {
            0
        },
        ..Counting::default()
    };
    for entry in entries {
        counting.see(entry, broken);
    }
}

/// An attempt that failed, and that may have been the receiver's fault.
struct Excusable<'a> {
    by: &'a Name,
    to: To,
    destination: Destination,
    since: u64,
    /// Whether a health check that passed is a sign of life.
    healthy_counts: bool,
}

/// Where an instance delivered something.
type Place<'a> = (&'a Name, To, Destination);

#[derive(Default)]
struct Counting<'a> {
    written: BTreeMap<&'a EventId, Written<'a>>,
    most: u32,
    /// Whether an event can be refused for too long.
    gives_up: bool,
    allowance: u32,
    /// Most attempts that an event can have: calls, without those that are known not to count.
    counted: BTreeMap<&'a EventId, u32>,
    excusable: BTreeMap<&'a EventId, Vec<Excusable<'a>>>,
    calls: BTreeMap<Call, Vec<(&'a EventId, Excusable<'a>)>>,
    /// Calls of more than one event: if they fail as a whole, any of them may be the reason.
    batches: BTreeSet<Call>,
    /// What was delivered, by whom and when.
    delivered: BTreeMap<Place<'a>, Vec<(&'a EventId, u64)>>,
    healthy: BTreeMap<(&'a Name, To, Destination), u64>,
    /// Since when a lane is held that somebody held before: its events may be suspects.
    taken_over: BTreeMap<(&'a Name, Lane), u64>,
    lanes: BTreeSet<Lane>,
    rejected: BTreeSet<&'a EventId>,
    /// How often each event ended the process.
    kills: BTreeMap<&'a EventId, u32>,
}

impl<'a> Counting<'a> {
    fn see(&mut self, entry: &'a Entry, broken: &mut Vec<String>) {
        match &entry.what {
            Happening::Called { id, attempt, by, to, call, lane } => {
                self.excuse(id);
                self.check_call(id, *attempt, broken);
                *self.counted.entry(id).or_default() += 1;
                // The attempt of a suspect begins when it is written, which takes its time.
                let since = self.taken_over.get(&(by, *lane)).copied().unwrap_or(entry.at);
                let destination = self.destination(id);
                let excusable = Excusable { by, to: *to, destination, since, healthy_counts: true };
                let calls = self.calls.entry(*call).or_default();
                calls.push((id, excusable));
                if calls.len() > 1 {
                    self.batches.insert(*call);
                }
            }
            Happening::Answered { id, outcome, by, to, call } => {
                let calls = self.calls.entry(*call).or_default();
                let Some(place) = calls.iter().position(|(other, _)| *other == id) else { return };
                let (_, mut excusable) = calls.swap_remove(place);
                match *outcome {
                    "delivered" => {
                        self.uncount(id);
                        let destination = excusable.destination;
                        self.delivered.entry((by, *to, destination)).or_default().push((id, entry.at));
                    }
                    // Behind one that failed: it was not tried.
                    "deferred" | "behind" | "too fast" => self.uncount(id),
                    // Any event of the batch may be the reason.
                    "together" => self.uncount(id),
                    "panicked" | "missing" if self.batches.contains(call) => self.uncount(id),
                    "rejected" => _ = self.rejected.insert(id),
                    "unavailable" => {
                        excusable.healthy_counts = false;
                        self.excusable.entry(id).or_default().push(excusable);
                    }
                    // A handler in this process is always there.
                    _ if *to == To::Handler => {}
                    _ => self.excusable.entry(id).or_default().push(excusable),
                }
            }
            Happening::Ended { call, late } => {
                // Without an answer: too late, or the process has ended, and then it may count.
                for (id, excusable) in self.calls.remove(call).unwrap_or_default() {
                    if *late && self.batches.contains(call) {
                        self.uncount(id);
                    } else if *late && excusable.to != To::Handler {
                        self.excusable.entry(id).or_default().push(excusable);
                    }
                }
            }
            Happening::Healthy { by, to, destination } => {
                _ = self.healthy.insert((by, *to, destination.unwrap_or(0)), entry.at);
            }
            Happening::Leased { by, lanes, .. } => {
                for lane in lanes {
                    if !self.lanes.insert(*lane) {
                        self.taken_over.insert((by, *lane), entry.at);
                    }
                }
            }
            Happening::Dead(id) => {
                self.excuse(id);
                let count = self.counted.get(id).copied().unwrap_or(0);
                if count + self.allowance < self.most && !self.rejected.contains(id) {
                    broken.push(format!("attempts: {id} is dead after {count} failures of {}", self.most));
                }
            }
            Happening::Fault(..)
            | Happening::CutOff(_)
            | Happening::Crashed
            | Happening::Stopped { .. }
            | Happening::WentBack
            | Happening::ClockJumped => self.allowance += 1,
            Happening::Killed(id) => {
                let kills = self.kills.entry(id).or_default();
                *kills += 1;
                // Until it is suspected it may go beside a suspect of another receiver, whose attempt stays counted.
                self.allowance = match *kills > UNSUSPECTED {
                    true => self.allowance.saturating_sub(1),
                    false => self.allowance + 1,
                };
            }
            Happening::Redriving(id) => _ = self.kills.remove(id),
            // It may be dead because it was refused for too long.
            Happening::Poison(id) if self.gives_up => _ = self.rejected.insert(id),
            _ => {}
        }
    }

    fn check_call(&self, id: &EventId, attempt: u32, broken: &mut Vec<String>) {
        let (most, so_far) = (self.most, self.counted.get(id).copied().unwrap_or(0));
        if attempt > most {
            broken.push(format!("attempts: {id} was tried a {attempt}th time of {most}"));
        }
        if attempt > so_far + 1 + self.allowance {
            broken.push(format!("attempts: {id} counts attempt {attempt} after {so_far} failures"));
        }
    }

    /// What failed before is settled now: whether it counted is known.
    fn excuse(&mut self, id: &'a EventId) {
        for excusable in self.excusable.remove(id).unwrap_or_default() {
            if !self.was_alive(id, &excusable) {
                self.uncount(id);
            }
        }
    }

    /// Whether an event of another key was delivered since, or a health check passed.
    fn was_alive(&self, id: &EventId, excusable: &Excusable<'_>) -> bool {
        let Excusable { by, to, destination, since, healthy_counts } = excusable;
        let there = (*by, *to, *destination);
        let key = self.written.get(id).and_then(|written| written.key);
        let other = |other: &EventId| {
            other != id && (key.is_none() || self.written.get(other).and_then(|written| written.key) != key)
        };
        let healthy = self.healthy.get(&there).is_some_and(|at| at >= since);
        let delivered = self.delivered.get(&there).into_iter().flatten().rev();
        (healthy && *healthy_counts)
            || delivered.take_while(|(_, at)| at >= since).any(|(delivered, _)| other(delivered))
    }

    fn destination(&self, id: &EventId) -> Destination {
        self.written.get(id).map_or(0, |written| written.destination)
    }

    fn uncount(&mut self, id: &'a EventId) {
        let count = self.counted.entry(id).or_default();
        *count = count.saturating_sub(1);
    }
}
