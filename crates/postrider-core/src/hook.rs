//! What runs at the writing side.

use std::sync::Arc;

use crate::{Error, Event, EventId};

/// What became of the transaction that events were written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TxOutcome {
    /// It committed.
    Committed,
    /// It was rolled back.
    RolledBack,
    /// The receipt was dropped without a word: rolled back as a rule, but the table alone knows.
    Unknown,
}

/// Changes or suppresses events before they are written, and observes what became of them.
pub trait WriteHook: Send + Sync + 'static {
    /// Called for each event before the insert. `Ok(None)` suppresses it, an error fails the write.
    fn before_write(&self, event: Event) -> Result<Option<Event>, Error> {
        Ok(Some(event))
    }

    /// Called once for each write with the ids of the events that were inserted.
    fn after(&self, ids: &[EventId], outcome: TxOutcome) {
        let _ = (ids, outcome);
    }
}

impl<T: WriteHook + ?Sized> WriteHook for Arc<T> {
    fn before_write(&self, event: Event) -> Result<Option<Event>, Error> {
        (**self).before_write(event)
    }

    fn after(&self, ids: &[EventId], outcome: TxOutcome) {
        (**self).after(ids, outcome);
    }
}
