//! The promises, held against what was written, what arrived and what was done.

mod duplicates;
mod lateness;
mod self_check;
mod spans;

use std::collections::{BTreeMap, HashMap};

pub(crate) use self::self_check::sees_every_kind_of_wrong;
use crate::{
    incidents::{Incident, Scope},
    ledger::{Arrival, Book, Event, NEVER, Number, RelayId, TxOutcome},
    logs::Trouble,
    time::{Micros, SECOND},
    world::{ATTEMPTS, Destination, FEED, REJECTED_MAX},
};

/// Redis gives times in whole milliseconds, and by its own clock.
const FEED_CLOCK: Micros = 5_000;

/// A request that was under way when a receiver began or ceased to reject.
const REJECTION_EDGE: Micros = SECOND;

/// Which promise is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    Lost,
    Phantom,
    OutOfOrder,
    Unexplained,
    Dead,
    NotDead,
    Late,
}

impl Promise {
    pub(crate) const ALL: [Self; 7] = [
        Self::Lost,
        Self::Phantom,
        Self::OutOfOrder,
        Self::Unexplained,
        Self::Dead,
        Self::NotDead,
        Self::Late,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Phantom => "phantom",
            Self::OutOfOrder => "out_of_order",
            Self::Unexplained => "unexplained_duplicates",
            Self::Dead => "wrongly_dead",
            Self::NotDead => "poisoned_and_not_dead",
            Self::Late => "late",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) promise: Promise,
    pub(crate) what: String,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Conclusion {
    pub(crate) wrong: Vec<Wrong>,
    pub(crate) duplicates: usize,
    /// Duplicates that no fault explains, but a relay's log does: the machine was too slow for a lease.
    pub(crate) of_slowness: usize,
    pub(crate) poisoned: usize,
    pub(crate) rejected: usize,
    /// Events that came later than a minute, with a reason.
    pub(crate) late_for_a_reason: usize,
    /// How long events took in whose way nothing stood, nor in the minute before; in order.
    pub(crate) clear_lags: Vec<Micros>,
}

impl Conclusion {
    fn wrong(&mut self, promise: Promise, what: String) {
        self.wrong.push(Wrong { promise, what });
    }

    pub(crate) fn count(&self, promise: Promise) -> usize {
        self.wrong.iter().filter(|wrong| wrong.promise == promise).count()
    }
}

/// All that is known of a run.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub(crate) book: &'a Book,
    pub(crate) incidents: &'a [Incident],
    /// When lanes had an owner that could not deliver.
    pub(crate) orphaned: &'a [Incident],
    pub(crate) troubles: &'a [Trouble],
    pub(crate) seats: usize,
}

pub(crate) fn judge(case: &Case<'_>) -> Conclusion {
    let mut conclusion = Conclusion::default();
    for (number, event) in numbered(case.book) {
        presence(number, event, &mut conclusion);
    }
    let strangers = case.book.strangers.iter();
    strangers.for_each(|number| conclusion.wrong(Promise::Phantom, format!("e{number} was never written")));
    order(case.book, &mut conclusion);
    deaths(case, &mut conclusion);
    duplicates::judge(case, &mut conclusion);
    lateness::judge(case, &mut conclusion);
    conclusion
}

fn numbered(book: &Book) -> impl Iterator<Item = (Number, &Event)> {
    (0..).zip(&book.events)
}

/// Every committed event arrived, or was poisoned and is dead. Nothing else arrived.
fn presence(number: Number, event: &Event, conclusion: &mut Conclusion) {
    let is_committed = event.outcome == TxOutcome::Committed;
    if !is_committed && event.first.is_some() {
        conclusion.wrong(Promise::Phantom, format!("e{number} was not committed: {event:?}"));
    }
    if is_committed && event.poisoned {
        conclusion.poisoned += 1;
        if event.dead_at == NEVER {
            conclusion.wrong(Promise::NotDead, format!("e{number}: {event:?}"));
        }
    }
    if is_committed && !event.poisoned && event.first.is_none() {
        conclusion.wrong(Promise::Lost, format!("e{number}: {event:?}"));
    }
}

/// First arrivals of a key follow the order in which its events were written.
fn order(book: &Book, conclusion: &mut Conclusion) {
    let mut before: HashMap<u32, (Number, Arrival, Destination)> = HashMap::new();
    let ordered = numbered(book).filter(|(_, event)| event.key != 0 && event.outcome == TxOutcome::Committed);
    for (number, event) in ordered {
        // A dead event of such a route stops nobody, and comes when an operator says so.
        if event.dead_at != NEVER && event.kind.skips_dead() {
            continue;
        }
        let discarded = match event.released {
            Some((_, at)) if event.is_discarded() => {
                Some(Arrival { at, by: RelayId::MAX, acknowledged: true })
            }
            _ => None,
        };
        let Some(over) = event.first.or(discarded) else { continue };
        let now = (number, over, event.destination);
        let Some(last) = before.get(&event.key).copied() else {
            before.insert(event.key, now);
            continue;
        };
        let feeds = [last.2, event.destination].iter().filter(|place| **place == FEED).count();
        let tolerance = match feeds {
            0 => 0,
            2 if last.1.by == over.by => 0,
            _ => FEED_CLOCK,
        };
        if over.at + tolerance < last.1.at {
            let what = format!(
                "k{}: e{number} came at {} by {}, and e{}, which is before it, at {} by {}",
                event.key,
                seconds(over.at),
                over.by,
                last.0,
                seconds(last.1.at),
                last.1.by
            );
            conclusion.wrong(Promise::OutOfOrder, what);
        } else {
            before.insert(event.key, now);
        }
    }
}

/// Only what was poisoned is dead, and what a receiver rejected that rejected everything: ten for each relay and destination.
fn deaths(case: &Case<'_>, conclusion: &mut Conclusion) {
    let mut rejecting: HashMap<Number, Vec<(RelayId, Micros)>> = HashMap::new();
    for rejection in &case.book.rejections {
        rejecting.entry(rejection.number).or_default().push((rejection.by, rejection.at));
    }
    let mut allowed: BTreeMap<(usize, RelayId, Destination), Vec<Number>> = BTreeMap::new();
    for dead in &case.book.dead {
        let Some(event) = case.book.event(dead.number) else { continue };
        if event.poisoned && dead.attempts == ATTEMPTS {
            continue;
        }
        let what = format!("e{} after {} attempts: {} {event:?}", dead.number, dead.attempts, dead.error);
        let rejected = rejecting
            .get(&dead.number)
            .and_then(|all| all.iter().rev().find(|(_, at)| *at <= dead.at).copied());
        let window = rejected.and_then(|(by, at)| {
            let window = case.incidents.iter().position(|incident| {
                let here = incident.scopes.contains(&Scope::Destination(event.destination));
                let then =
                    incident.from <= at + REJECTION_EDGE && at <= incident.to.saturating_add(REJECTION_EDGE);
                here && then && incident.what == "webhook answers 400"
            });
            window.map(|window| (window, by, event.destination))
        });
        match window {
            Some(window) if dead.error.contains("400") => {
                conclusion.rejected += 1;
                allowed.entry(window).or_default().push(dead.number);
            }
            _ => conclusion.wrong(Promise::Dead, what),
        }
    }
    for ((window, by, destination), dead) in allowed {
        if dead.len() > REJECTED_MAX {
            let from = case.incidents.get(window).map_or(0, |incident| incident.from);
            let what = format!(
                "relay {by} let {} events of {} die that were rejected from {} on, and not {REJECTED_MAX}: {dead:?}",
                dead.len(),
                destination.name(),
                seconds(from)
            );
            conclusion.wrong(Promise::Dead, what);
        }
    }
}

/// A time, for people.
fn seconds(at: Micros) -> String {
    if at == NEVER { "never".to_owned() } else { format!("{}.{:03} s", at / SECOND, at % SECOND / 1000) }
}
