//! Owns outcomes in the shape that a settle takes.

use postrider_core::{
    Event,
    store::{Change, Lease, Seq, Settlement},
};

use super::LaneKey;
use crate::destination::DestinationId;

/// Outcomes of events on their way to the table.
#[derive(Debug, Default)]
pub(crate) struct PendingSettlements {
    origins: Vec<SettlementOrigin>,
    settlements: Vec<Settlement>,
}

/// What is known of an event beyond its settlement.
#[derive(Debug)]
pub(crate) struct SettlementOrigin {
    lease: Lease,
    key_number: u64,
    /// Where it was sent.
    destination: Option<DestinationId>,
    /// Whether it was under way together with earlier events of its key.
    batched_with_head: bool,
    /// How often it was postponed.
    tries: u32,
    event: Option<Event>,
}

impl SettlementOrigin {
    pub(crate) fn new(
        lease: Lease,
        key_number: u64,
        destination: Option<DestinationId>,
        batched_with_head: bool,
        event: Option<Event>,
    ) -> Self {
        Self { lease, key_number, destination, batched_with_head, tries: 0, event }
    }
}

/// The outcome of one event.
#[derive(Debug)]
pub(crate) struct PendingSettlement {
    /// The lease under which its event was claimed.
    pub(crate) lease: Lease,
    /// The number of its event's key, or of the event itself.
    pub(crate) key_number: u64,
    /// How often it was postponed.
    pub(crate) tries: u32,
    /// Its event, if its row holds one.
    pub(crate) event: Option<Event>,
    pub(crate) settlement: Settlement,
}

impl PendingSettlement {
    /// The key that is busy with its event.
    pub(super) fn lane_key(&self) -> Option<LaneKey> {
        let key = self.settlement.key.clone()?;
        Some(LaneKey { lane: self.settlement.lane, key, number: self.key_number })
    }
}

impl PendingSettlements {
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self { origins: Vec::with_capacity(count), settlements: Vec::with_capacity(count) }
    }

    pub(crate) fn push(&mut self, origin: SettlementOrigin, settlement: Settlement) {
        self.origins.push(origin);
        self.settlements.push(settlement);
    }

    /// Adds an outcome that was postponed.
    pub(super) fn push_postponed(&mut self, outcome: PendingSettlement) {
        let PendingSettlement { lease, key_number, tries, event, settlement } = outcome;
        self.origins.push(SettlementOrigin {
            lease,
            key_number,
            destination: None,
            batched_with_head: false,
            tries,
            event,
        });
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

    /// Takes all of them out and keeps the capacity.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = PendingSettlement> {
        self.origins.drain(..).zip(self.settlements.drain(..)).map(|(origin, settlement)| PendingSettlement {
            lease: origin.lease,
            key_number: origin.key_number,
            tries: origin.tries,
            event: origin.event,
            settlement,
        })
    }

    /// Returns the change of the first one.
    pub(crate) fn first_change(&self) -> Option<&Change> {
        self.settlements.first().map(|settlement| &settlement.change)
    }

    /// Replaces the change of the first one.
    pub(crate) fn set_first_change(&mut self, change: Change) {
        self.settlements.first_mut().into_iter().for_each(|settlement| settlement.change = change.clone());
    }

    /// Splits them in the middle, in order.
    pub(crate) fn halve(mut self) -> (Self, Self) {
        let middle = self.len() / 2;
        let (origins, settlements) = (self.origins.split_off(middle), self.settlements.split_off(middle));
        (self, Self { origins, settlements })
    }

    /// Takes these events out.
    pub(crate) fn take_out(&mut self, seqs: &[Seq]) -> Vec<PendingSettlement> {
        if seqs.is_empty() {
            return Vec::new();
        }
        let mut all = std::mem::take(self);
        let mut out = Vec::with_capacity(seqs.len());
        for (origin, settlement) in all.origins.drain(..).zip(all.settlements.drain(..)) {
            if seqs.contains(&settlement.seq) {
                let SettlementOrigin { lease, key_number, tries, event, .. } = origin;
                out.push(PendingSettlement { lease, key_number, tries, event, settlement });
            } else {
                self.origins.push(origin);
                self.settlements.push(settlement);
            }
        }
        out
    }

    /// Returns the destinations and key numbers of the delivered events.
    pub(super) fn delivered(&self) -> impl Iterator<Item = (Option<DestinationId>, u64)> {
        let all = self.origins.iter().zip(&self.settlements);
        all.filter(|(_, settlement)| settlement.change == Change::Done)
            .map(|(origin, _)| (origin.destination, origin.key_number))
    }

    /// Returns the first event that was delivered.
    pub(super) fn first_delivered(&self) -> Option<Seq> {
        self.settlements.iter().find(|settlement| settlement.change == Change::Done).map(|done| done.seq)
    }

    /// Returns the leases in the order of their lanes, each once.
    pub(crate) fn distinct_leases(&self) -> Vec<Lease> {
        let mut leases = Vec::new();
        for SettlementOrigin { lease, .. } in &self.origins {
            if leases.last() != Some(lease) {
                leases.push(*lease);
            }
        }
        leases.sort_unstable_by_key(|lease| lease.lane);
        leases.dedup();
        leases
    }

    pub(super) fn append(&mut self, other: &mut Self) {
        self.origins.append(&mut other.origins);
        self.settlements.append(&mut other.settlements);
    }

    /// Takes outcomes from the front. The rest moves into `room`.
    ///
    /// An event that holds its key goes into a later settle than earlier events of the key that leave: one
    /// settle changes a key in one way only.
    pub(super) fn take(&mut self, most: usize, mut room: Self) -> Self {
        let mut all = self.origins.iter().zip(&self.settlements).take(most);
        let holds_key = |(origin, settlement): (&SettlementOrigin, &Settlement)| {
            origin.batched_with_head && settlement.change != Change::Done
        };
        let most = match all.position(holds_key) {
            Some(place) if place > 0 => place,
            _ => most,
        };
        if self.len() > most {
            room.origins.extend(self.origins.drain(most..));
            room.settlements.extend(self.settlements.drain(most..));
        }
        std::mem::replace(self, room)
    }

    /// Splits them by their leases: those to keep, and the others.
    pub(super) fn part(self, keep: impl Fn(Lease) -> bool) -> (Self, Self) {
        // Nearly always all of them.
        if self.distinct_leases().into_iter().all(&keep) {
            return (self, Self::default());
        }
        let (mut kept, mut parted) = (Self::default(), Self::default());
        for (origin, settlement) in self.origins.into_iter().zip(self.settlements) {
            let to = if keep(origin.lease) { &mut kept } else { &mut parted };
            to.origins.push(origin);
            to.settlements.push(settlement);
        }
        (kept, parted)
    }

    pub(super) fn clear(&mut self) {
        self.origins.clear();
        self.settlements.clear();
    }
}
