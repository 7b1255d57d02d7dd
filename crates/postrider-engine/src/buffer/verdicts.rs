//! Outcomes, in the shape that a settle takes them in.

use postrider_core::store::{Lease, Settlement};

/// Outcomes of events on their way to the table, each with the lease that its event was claimed under.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    leases: Vec<Lease>,
    settlements: Vec<Settlement>,
}

impl Verdicts {
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self { leases: Vec::with_capacity(count), settlements: Vec::with_capacity(count) }
    }

    pub(crate) fn push(&mut self, lease: Lease, settlement: Settlement) {
        self.leases.push(lease);
        self.settlements.push(settlement);
    }

    pub(crate) fn len(&self) -> usize {
        self.settlements.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.settlements.is_empty()
    }

    pub(crate) fn settlements(&self) -> &[Settlement] {
        &self.settlements
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Lease, &Settlement)> {
        self.leases.iter().copied().zip(&self.settlements)
    }

    /// The leases in lane order, each once.
    pub(crate) fn distinct_leases(&self) -> Vec<Lease> {
        let mut leases = self.leases.clone();
        leases.dedup();
        leases.sort_unstable_by_key(|lease| lease.lane);
        leases.dedup();
        leases
    }

    pub(super) fn append(&mut self, other: &mut Self) {
        self.leases.append(&mut other.leases);
        self.settlements.append(&mut other.settlements);
    }

    /// Takes up to so many from the front.
    pub(super) fn take(&mut self, most: usize) -> Self {
        if self.len() <= most {
            return std::mem::take(self);
        }
        let rest =
            Self { leases: self.leases.split_off(most), settlements: self.settlements.split_off(most) };
        std::mem::replace(self, rest)
    }

    /// Parts them by their leases: those that `keep` says, and the others.
    pub(super) fn part(self, keep: impl Fn(Lease) -> bool) -> (Self, Self) {
        // All of them, nearly always.
        if self.distinct_leases().into_iter().all(&keep) {
            return (self, Self::default());
        }
        let (mut kept, mut parted) = (Self::default(), Self::default());
        for (lease, settlement) in self.leases.into_iter().zip(self.settlements) {
            if keep(lease) { kept.push(lease, settlement) } else { parted.push(lease, settlement) }
        }
        (kept, parted)
    }

    pub(super) fn clear(&mut self) {
        self.leases.clear();
        self.settlements.clear();
    }
}
