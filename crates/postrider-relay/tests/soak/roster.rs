//! Every relay that was ever started: its name, its seat, and when it ended.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{ledger::RelayId, time::Micros};

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) seat: u8,
    pub(crate) ended_at: Option<Micros>,
}

#[derive(Debug, Default)]
pub(crate) struct Roster(Mutex<Vec<Entry>>);

impl Roster {
    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A relay is about to start on a seat. Gives its number and its name.
    pub(crate) fn enter(&self, seat: u8) -> (RelayId, String) {
        let mut all = self.lock();
        let generation = all.iter().filter(|entry| entry.seat == seat).count() + 1;
        let name = format!("{}{generation}", char::from(b'a' + seat));
        all.push(Entry { name: name.clone(), seat, ended_at: None });
        (RelayId::try_from(all.len() - 1).unwrap_or(RelayId::MAX), name)
    }

    pub(crate) fn ended(&self, relay: RelayId, at: Micros) {
        if let Some(entry) = self.lock().get_mut(usize::from(relay)) {
            entry.ended_at = Some(at);
        }
    }

    pub(crate) fn ended_at(&self, relay: RelayId) -> Option<Micros> {
        self.lock().get(usize::from(relay)).and_then(|entry| entry.ended_at)
    }

    /// Those that were entered after so many.
    pub(crate) fn after(&self, count: usize) -> Vec<RelayId> {
        (count..self.lock().len()).filter_map(|relay| RelayId::try_from(relay).ok()).collect()
    }

    pub(crate) fn all(&self) -> Vec<Entry> {
        self.lock().clone()
    }
}
