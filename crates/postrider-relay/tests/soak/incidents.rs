//! What was done to whom, and from when to when.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    history::History,
    ledger::{NEVER, Number, RelayId},
    time::{Clock, Micros},
    world::{Destination, Kind},
};

/// What an incident concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Every event.
    All,
    Destination(Destination),
    Kind(Kind),
    Lane(u8),
    Key(u32),
    Event(Number),
    /// One process, and the seat that it has.
    Relay {
        seat: u8,
        relay: RelayId,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Incident {
    pub(crate) what: &'static str,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) from: Micros,
    /// [`NEVER`] while it lasts.
    pub(crate) to: Micros,
}

/// An incident that lasts.
#[derive(Debug)]
#[must_use]
pub(crate) struct Open(usize);

/// All incidents of a run.
#[derive(Debug)]
pub(crate) struct Incidents {
    clock: Clock,
    history: History,
    all: Mutex<Vec<Incident>>,
}

impl Incidents {
    pub(crate) fn new(clock: Clock, history: History) -> Self {
        Self { clock, history, all: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Incident>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, what: &'static str, scopes: Vec<Scope>) -> Open {
        let from = self.clock.now();
        self.history.note(from, format_args!("begins: {what} {scopes:?}"));
        let mut all = self.lock();
        all.push(Incident { what, scopes, from, to: NEVER });
        Open(all.len() - 1)
    }

    /// Adds what turns out to be concerned.
    pub(crate) fn concerns(&self, open: &Open, scopes: impl IntoIterator<Item = Scope>) {
        if let Some(incident) = self.lock().get_mut(open.0) {
            incident.scopes.extend(scopes);
        }
    }

    pub(crate) fn end(&self, open: Open) {
        let to = self.clock.now();
        if let Some(incident) = self.lock().get_mut(open.0) {
            incident.to = to;
            self.history.note(to, format_args!("ends: {} {:?}", incident.what, incident.scopes));
        }
    }

    /// Something that is over as soon as it has begun.
    pub(crate) fn moment(&self, what: &'static str, scopes: Vec<Scope>) {
        let open = self.begin(what, scopes);
        self.end(open);
    }

    pub(crate) fn all(&self) -> Vec<Incident> {
        self.lock().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// What lasts now.
    pub(crate) fn lasting(&self) -> Vec<&'static str> {
        self.lock().iter().filter(|incident| incident.to == NEVER).map(|incident| incident.what).collect()
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for incident in &*self.lock() {
            *counts.entry(incident.what).or_insert(0) += 1;
        }
        counts
    }
}
