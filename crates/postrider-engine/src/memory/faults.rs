//! What can be wrong with a database, for tests and the simulator: it goes back in time, rows are locked, settles are refused.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use postrider_core::{
    EventId, Result, StoreError, StoreErrorKind,
    store::{Claim, Lane, Leased, Settlement},
};

use super::{MemoryStore, tables::Tables};

/// Which settlements are refused.
type Refusal = Arc<dyn Fn(&Settlement) -> bool + Send + Sync>;

/// All that was stored at one moment.
#[derive(Clone)]
pub struct Snapshot(Box<Tables>);

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("rows", &self.0.rows.len()).finish_non_exhaustive()
    }
}

#[derive(Default)]
pub(super) struct Faults {
    /// Events whose rows somebody else has locked.
    locked: BTreeSet<EventId>,
    refusal: Option<Refusal>,
    /// How often the store went back in time, how often it had when each token was given out and to whom, and what each owner has been told.
    pub(super) times_back: u64,
    tokens: BTreeMap<(Lane, u64), (String, u64)>,
    told: BTreeMap<String, u64>,
}

impl Faults {
    pub(super) fn is_locked(&self, id: &EventId) -> bool {
        self.locked.contains(id)
    }

    /// An error if one of the settlements is refused.
    pub(super) fn refuse(&self, settlements: &[Settlement]) -> Result<()> {
        match &self.refusal {
            Some(refuses) if settlements.iter().any(|settlement| refuses(settlement)) => {
                let (kind, what) = (StoreErrorKind::Other, "cannot settle events in memory");
                Err(StoreError::new(kind, what, "a row was refused").into())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn note_tokens(&mut self, leased: &Leased, owner: &str) {
        self.told.entry(owner.to_owned()).or_insert(self.times_back);
        for taken in &leased.taken {
            let lease = taken.lease;
            self.tokens.insert((lease.lane, lease.token.nonce), (owner.to_owned(), self.times_back));
        }
    }

    /// An error if a claim comes under a lease from before the store went back, or is the first of its owner since.
    pub(super) fn check(&mut self, claim: &Claim) -> Result<()> {
        let mut went_back = false;
        for lease in claim.lanes.iter().map(|lane| lane.lease) {
            let Some((owner, then)) = self.tokens.get(&(lease.lane, lease.token.nonce)) else { continue };
            let told = self.told.get_mut(owner).map(|told| std::mem::replace(told, self.times_back));
            went_back |= *then < self.times_back || told.is_some_and(|told| told < self.times_back);
        }
        if went_back {
            let (kind, what) = (StoreErrorKind::WentBack, "cannot claim events in memory");
            return Err(StoreError::new(kind, what, "an earlier state was restored").into());
        }
        Ok(())
    }
}

impl MemoryStore {
    /// All that is stored now, to be [restored](MemoryStore::restore) later.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(Box::new(self.shared.lock().clone()))
    }

    /// Goes back in time: what was committed since is lost, numbers are given again, leases are what they were, and transactions that are open
    /// end with an error. The next claim of each instance that held a lane before says so.
    pub fn restore(&self, snapshot: &Snapshot) {
        let mut tables = self.shared.lock();
        *tables = (*snapshot.0).clone();
        tables.close_all();
        self.shared.faults().times_back += 1;
    }

    /// How often it went back in time.
    pub fn times_back(&self) -> u64 {
        self.shared.faults().times_back
    }

    /// Locks the row of an event, as somebody else's `SELECT … FOR UPDATE` would, until it is [unlocked](MemoryStore::unlock_row). Settles
    /// and claims leave it as it is.
    pub fn lock_row(&self, id: &EventId) {
        self.shared.faults().locked.insert(id.clone());
    }

    /// Ends what [`lock_row`](MemoryStore::lock_row) began.
    pub fn unlock_row(&self, id: &EventId) {
        self.shared.faults().locked.remove(id);
    }

    /// Refuses every settle that has a settlement of which this is true, as a constraint or a trigger would.
    pub fn refuse_settles(&self, refuses: impl Fn(&Settlement) -> bool + Send + Sync + 'static) {
        self.shared.faults().refusal = Some(Arc::new(refuses));
    }

    /// Refuses no settle any more.
    pub fn accept_settles(&self) {
        self.shared.faults().refusal = None;
    }
}
