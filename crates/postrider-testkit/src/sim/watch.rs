//! What can be seen between engine and store, and nowhere else.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use postrider_core::store::{Admission, Change, Claim, Lane, Lease, RowSummary, Seq, Settled, Settlement};
use postrider_engine::memory::MemoryStore;

use super::history::{Happening, History, Name};

/// The lanes with a key that waits for its head.
pub(super) fn held_lanes(store: &MemoryStore) -> BTreeSet<Lane> {
    let waits = |status: u8, attempts: u32| status == 3 || (status == 2 && attempts > 0);
    let rows = store.rows();
    rows.iter().filter(|row| row.parked || waits(row.status, row.attempts)).map(|row| row.lane).collect()
}

/// Whether somebody who had lost a lane was stopped. To be asked right after the settle.
pub(super) fn fence(store: &MemoryStore, leases: &[Lease], settled: &Settled, history: &History) {
    if !settled.lost.is_empty() {
        history.note(Happening::Fenced);
    }
    if settled.applied > 0 {
        let held = store.leases();
        for lease in leases.iter().filter(|lease| !held.contains(lease)) {
            history.note(Happening::FenceBroken(lease.lane));
        }
    }
}

/// Which events are dead by a settle.
pub(super) fn died(by: &Name, settlements: &[Settlement], settled: &Settled, history: &History) {
    if settled.lost.is_empty() {
        for dead in settlements.iter().filter(|each| matches!(each.change, Change::Dead { .. })) {
            history.note(Happening::Died { by: by.clone(), id: dead.event_id.clone() });
        }
    }
}

/// Counts what a claim leaves where it is.
#[derive(Debug)]
pub(super) struct Skipped {
    inner: Option<Arc<dyn Admission>>,
    rows: AtomicUsize,
    walk: bool,
}

impl Admission for Skipped {
    fn admits(&self, row: &RowSummary<'_>) -> bool {
        let wanted = self.inner.as_ref().is_none_or(|inner| inner.admits(row));
        self.rows.fetch_add(usize::from(!wanted), Relaxed);
        wanted
    }
}

impl Skipped {
    pub(super) fn note(&self, history: &History) {
        match self.rows.load(Relaxed) {
            0 => {}
            rows => history.note(Happening::Skipped(rows)),
        }
        if self.walk {
            history.note(Happening::Walked);
        }
    }
}

/// The same claim, whose admission is counted.
pub(super) fn skipped(claim: &Claim) -> (Claim, Arc<Skipped>) {
    let counted = Arc::new(Skipped {
        inner: claim.admission.clone(),
        rows: AtomicUsize::new(0),
        walk: claim.lanes.iter().any(|lane| lane.to != Seq::MAX),
    });
    let admission = claim.admission.as_ref().map(|_| counted.clone() as Arc<dyn Admission>);
    (Claim { admission, ..claim.clone() }, counted)
}
