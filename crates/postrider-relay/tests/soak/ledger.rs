//! What was written and what arrived: one record for each event.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{
    time::Micros,
    world::{Destination, Kind},
};

/// The number of an event, in the order in which they were inserted. It is in the payload and in the id.
pub(crate) type Number = u32;

/// A process that delivers, by the order of starts.
pub(crate) type RelayId = u16;

/// A time that has not come.
pub(crate) const NEVER: Micros = Micros::MAX;

/// What became of the transaction that wrote an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TxOutcome {
    Open,
    Committed,
    RolledBack,
}

/// What an operator did with a dead event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    Discarded,
    Redriven,
}

/// An arrival: when, by which relay, and whether its receiver acknowledged it in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) at: Micros,
    pub(crate) by: RelayId,
    pub(crate) acknowledged: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// Zero for none.
    pub(crate) key: u32,
    pub(crate) kind: Kind,
    pub(crate) destination: Destination,
    pub(crate) lane: u8,
    pub(crate) poisoned: bool,
    pub(crate) outcome: TxOutcome,
    pub(crate) committed_at: Micros,
    pub(crate) first: Option<Arrival>,
    pub(crate) last: Option<Arrival>,
    /// When it was last seen dead, and when an operator last released it.
    pub(crate) dead_at: Micros,
    pub(crate) released: Option<(Release, Micros)>,
}

impl Event {
    pub(crate) fn new(key: u32, kind: Kind, destination: Destination, poisoned: bool) -> Self {
        Self {
            key,
            kind,
            destination,
            lane: 0,
            poisoned,
            outcome: TxOutcome::Open,
            committed_at: NEVER,
            first: None,
            last: None,
            dead_at: NEVER,
            released: None,
        }
    }

    pub(crate) fn is_discarded(&self) -> bool {
        matches!(self.released, Some((Release::Discarded, _)))
    }

    pub(crate) fn is_redriven(&self) -> bool {
        matches!(self.released, Some((Release::Redriven, _)))
    }

    /// Nobody has to wait for it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.first.is_some() || self.is_discarded()
    }
}

/// An event that arrived again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Again {
    pub(crate) number: Number,
    pub(crate) before: Arrival,
    pub(crate) now: Arrival,
}

/// A dead event, as an operator found it.
#[derive(Debug, Clone)]
pub(crate) struct Dead {
    pub(crate) number: Number,
    pub(crate) at: Micros,
    pub(crate) attempts: i32,
    pub(crate) error: String,
}

/// An answer of 400.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rejection {
    pub(crate) number: Number,
    pub(crate) by: RelayId,
    pub(crate) at: Micros,
}

/// Everything that the judge reads.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) events: Vec<Event>,
    pub(crate) again: Vec<Again>,
    pub(crate) dead: Vec<Dead>,
    pub(crate) rejections: Vec<Rejection>,
    /// Arrivals of numbers that nobody wrote.
    pub(crate) strangers: Vec<Number>,
    pub(crate) committed: usize,
    pub(crate) rolled_back: usize,
    pub(crate) delivered: usize,
    /// Below this everything is over.
    over_to: usize,
}

impl Book {
    pub(crate) fn event(&self, number: Number) -> Option<&Event> {
        self.events.get(usize::try_from(number).ok()?)
    }

    fn event_mut(&mut self, number: Number) -> Option<&mut Event> {
        self.events.get_mut(usize::try_from(number).ok()?)
    }

    /// Committed events that are still to come: how many, and when the oldest was committed.
    pub(crate) fn waiting(&mut self) -> (usize, Option<Micros>) {
        let is_past = |event: &Event| event.outcome == TxOutcome::RolledBack || event.is_over();
        while self.events.get(self.over_to).is_some_and(is_past) {
            self.over_to += 1;
        }
        let rest = self.events.iter().skip(self.over_to);
        let waiting = rest.filter(|event| event.outcome == TxOutcome::Committed && !event.is_over());
        let times = waiting.map(|event| event.committed_at);
        times.fold((0, None), |(count, oldest), at| {
            (count + 1, Some(oldest.map_or(at, |oldest: Micros| oldest.min(at))))
        })
    }
}

/// The book, for all tasks.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Book>);

impl Ledger {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An event is about to be inserted. Gives its number.
    pub(crate) fn insert(&self, event: Event) -> Number {
        let mut book = self.lock();
        book.events.push(event);
        Number::try_from(book.events.len() - 1).unwrap_or(Number::MAX)
    }

    pub(crate) fn lane(&self, number: Number, lane: i32) {
        if let Some(event) = self.lock().event_mut(number) {
            event.lane = u8::try_from(lane).unwrap_or(u8::MAX);
        }
    }

    pub(crate) fn ended(&self, numbers: &[Number], outcome: TxOutcome, at: Micros) {
        let mut book = self.lock();
        for number in numbers {
            if let Some(event) = book.event_mut(*number) {
                (event.outcome, event.committed_at) = (outcome, at);
            }
        }
        match outcome {
            TxOutcome::Committed => book.committed += numbers.len(),
            TxOutcome::RolledBack => book.rolled_back += numbers.len(),
            TxOutcome::Open => {}
        }
    }

    /// An event has arrived. Arrivals may be noted a little later than they happened.
    pub(crate) fn arrived(&self, number: Number, now: Arrival) {
        let mut book = self.lock();
        let Some(event) = book.event_mut(number) else {
            book.strangers.push(number);
            return;
        };
        let Some(last) = event.last else {
            (event.first, event.last) = (Some(now), Some(now));
            book.delivered += 1;
            return;
        };
        let (before, after) = if now.at < last.at { (now, last) } else { (last, now) };
        event.last = Some(after);
        if event.first.is_some_and(|first| now.at < first.at) {
            event.first = Some(now);
        }
        book.again.push(Again { number, before, now: after });
    }

    pub(crate) fn rejected(&self, rejection: Rejection) {
        self.lock().rejections.push(rejection);
    }

    /// Notes a dead event. False if it is known already.
    pub(crate) fn dead(&self, dead: Dead) -> bool {
        let mut book = self.lock();
        let Some(event) = book.event_mut(dead.number) else { return false };
        let known = event.dead_at != NEVER && event.released.is_none_or(|(_, at)| at < event.dead_at);
        if !known {
            event.dead_at = dead.at;
            book.dead.push(dead);
        }
        !known
    }

    pub(crate) fn released(&self, number: Number, release: Release, at: Micros) {
        if let Some(event) = self.lock().event_mut(number) {
            event.released = Some((release, at));
        }
    }
}
