//! An admission for checks.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use postrider_core::{
    Timestamp,
    store::{Admission, Lane, RowSummary, Seq},
};

/// A row that a store asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) lane: Lane,
    pub(super) seq: Seq,
    pub(super) event_type: String,
    pub(super) aggregate_type: String,
    pub(super) key: Option<String>,
    pub(super) due_at: Option<Timestamp>,
}

/// Wants rows by their key or type, and remembers all that it was asked about.
pub(super) struct Gate {
    wants: fn(&RowSummary<'_>) -> bool,
    asked: Mutex<Vec<Asked>>,
}

impl Gate {
    pub(super) fn new(wants: fn(&RowSummary<'_>) -> bool) -> Arc<Self> {
        Arc::new(Self { wants, asked: Mutex::default() })
    }

    /// What it was asked about since it was last asked this.
    pub(super) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn asked_seqs(&self) -> Vec<Seq> {
        self.asked().iter().map(|asked| asked.seq).collect()
    }
}

impl Admission for Gate {
    fn admits(&self, row: &RowSummary<'_>) -> bool {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(Asked {
            lane: row.lane,
            seq: row.seq,
            event_type: row.event_type.to_owned(),
            aggregate_type: row.aggregate_type.to_owned(),
            key: row.key.map(str::to_owned),
            due_at: row.due_at,
        });
        (self.wants)(row)
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}
