//! Nothing that is paused is sent.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::{
    EventId,
    store::{Seq, Subject},
};

use super::{Written, written};
use crate::sim::{
    history::{Entry, Happening, Name},
    scenario::Scenario,
};

/// How often an engine looks at what is paused.
const LOOK_US: u64 = 1_000_000;

/// Longest that one call of the database is held up on its way there, and on its way back: where it stalls, and where it does not.
const STALL_US: u64 = 3_000_000;
const DELAY_US: u64 = 3_000;

/// What is known of one engine.
#[derive(Default)]
struct Seen<'a> {
    /// What it knows to be paused, and at which place of the history it learned that.
    paused: BTreeMap<&'a Subject, usize>,
    /// Where it began to write an attempt down, for each event; and for the last that was written, and when that was.
    counting: BTreeMap<Seq, usize>,
    counted: Option<(usize, u64)>,
}

/// An engine that has seen a pause begins no send of it, but for one whose attempt it was writing down; and where the database answers, it
/// sees it soon.
pub(super) fn obeyed(entries: &[Entry], scenario: &Scenario, broken: &mut Vec<String>) {
    let written = written(entries, scenario);
    let mut engines: BTreeMap<&Name, Seen<'_>> = BTreeMap::new();
    let mut paused: BTreeMap<&Subject, u64> = BTreeMap::new();
    for (place, entry) in entries.iter().enumerate() {
        match &entry.what {
            Happening::Paused(subject) => _ = paused.entry(subject).or_insert(entry.at),
            Happening::Resumed(subject) => _ = paused.remove(subject),
            Happening::SawPauses { by, subjects } => {
                let seen = &mut engines.entry(by).or_default().paused;
                let now: BTreeSet<&Subject> = subjects.iter().collect();
                seen.retain(|subject, _| now.contains(*subject));
                now.into_iter().for_each(|subject| _ = seen.entry(subject).or_insert(place));
            }
            Happening::Counting(by, seq) => _ = engines.entry(by).or_default().counting.insert(*seq, place),
            Happening::Counted(by, seq) => {
                let seen = engines.entry(by).or_default();
                seen.counted = seen.counting.remove(seq).map(|began| (began, entry.at));
            }
            Happening::Called { id, by, .. } => {
                let Some(event) = written.get(id) else { continue };
                let seen = engines.entry(by).or_default();
                let began = seen.counted.filter(|(_, at)| *at == entry.at).map(|(began, _)| began);
                let known = seen.paused.iter().filter(|(subject, _)| is_of(event, subject));
                for (subject, since) in known.filter(|(_, since)| began.is_none_or(|began| began > **since)) {
                    broken.push(told(id, subject, by, &format!("which has known it since entry {since}")));
                }
                let late = paused.iter().filter(|(subject, _)| is_of(event, subject));
                for (subject, since) in late.filter(|(_, since)| entry.at > *since + bound_us(scenario)) {
                    broken.push(told(id, subject, by, &format!("{} µs after the pause", entry.at - since)));
                }
            }
            _ => {}
        }
    }
}

fn told(id: &EventId, subject: &Subject, by: &Name, how: &str) -> String {
    format!("paused: {id} of {subject} was sent by {by}, {how}")
}

/// How long after a pause something of it may be sent. No end where looks fail: an engine goes by what it knows.
fn bound_us(scenario: &Scenario) -> u64 {
    let faults = scenario.faults;
    if faults.refuse > 0.0 || faults.lose_reply > 0.0 {
        return u64::MAX / 2;
    }
    let delay = |rate: f64| if rate > 0.0 { STALL_US } else { DELAY_US };
    // A look that came too early to see it and is on its way back; the next one, there and back; and an attempt that was being written down.
    LOOK_US + 3 * delay(faults.stall) + 2 * delay(faults.stall.max(faults.stall_settle)) + DELAY_US
}

fn is_of(event: &Written<'_>, subject: &Subject) -> bool {
    match subject {
        Subject::Source => true,
        Subject::Rejected(_) | Subject::Brake(_) => false,
        Subject::Type(pattern) => pattern.matches(event.event_type),
        Subject::Key(key) => event.key == Some(key),
        Subject::Sink(name) => event.to.name() == name,
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::rng::Rng;

    use super::*;
    use crate::sim::receiver::To;

    fn entry(at: u64, what: Happening) -> Entry {
        Entry { at, what }
    }

    fn run(between: &[Entry], call_at: u64) -> usize {
        let mut rng = Rng::seeded(1);
        let scenario = std::iter::repeat_with(|| Scenario::draw(&mut rng)).find(Scenario::is_calm).unwrap();
        let (id, to, by) = (EventId::ulid(), To::Batch, Name::from("engine"));
        let (event_type, key) = ("Batched", None);
        let mut entries = vec![
            entry(0, Happening::Committed { id: id.clone(), event_type, key, to, delayed: false }),
            entry(0, Happening::Paused(Subject::event_type("Batch*"))),
        ];
        entries.extend_from_slice(between);
        entries.push(entry(call_at, Happening::Called { id, attempt: 1, lane: 0, by, to, call: 1 }));
        let mut broken = Vec::new();
        obeyed(&entries, &scenario, &mut broken);
        broken.len()
    }

    #[test]
    fn a_send_of_what_is_known_to_be_paused_is_told_of_and_one_that_was_being_counted_is_not() {
        let by = Name::from("engine");
        let saw =
            entry(5, Happening::SawPauses { by: by.clone(), subjects: vec![Subject::event_type("Batch*")] });
        assert_eq!(run(&[], 10), 0, "it does not know");
        assert_eq!(run(std::slice::from_ref(&saw), 10), 1);
        let (counting, counted) =
            (entry(4, Happening::Counting(by.clone(), 1)), entry(10, Happening::Counted(by.clone(), 1)));
        assert_eq!(run(&[counting.clone(), saw.clone(), counted.clone()], 10), 0);
        assert_eq!(run(&[saw.clone(), counting, counted], 10), 1, "it knew before");
        let gone = entry(6, Happening::SawPauses { by, subjects: Vec::new() });
        assert_eq!(run(&[saw, gone], 10), 0);
    }

    #[test]
    fn a_send_long_after_the_pause_is_told_of_whatever_the_engine_knows() {
        assert_eq!((run(&[], LOOK_US / 2), run(&[], 2 * LOOK_US)), (0, 1));
    }
}
