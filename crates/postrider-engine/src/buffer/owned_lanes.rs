//! Owns the lanes that this instance holds, each under its lease.

use std::collections::{BTreeMap, btree_map};

use postrider_core::store::{AcquiredLane, Lane, Lease, Seq};
use tokio::time::Instant;

use super::OwnedLane;

/// The lanes of this instance. What comes under an older lease of a lane finds nothing here.
#[derive(Default)]
pub(super) struct OwnedLanes {
    lanes: BTreeMap<Lane, OwnedLane>,
    first_deadline: Option<Instant>,
}

impl OwnedLanes {
    pub(super) fn insert(&mut self, taken: AcquiredLane, deadline: Instant) {
        self.lanes.insert(taken.lease.lane, OwnedLane::new(taken, deadline));
        self.note_deadlines();
    }

    /// Removes the lane of a lease; none if it is held under another one.
    pub(super) fn remove(&mut self, lease: Lease) -> Option<OwnedLane> {
        self.under(lease)?;
        let lost = self.lanes.remove(&lease.lane);
        self.note_deadlines();
        lost
    }

    /// A lease was renewed.
    pub(super) fn extend(&mut self, lease: Lease, deadline: Instant) {
        self.under_mut(lease).into_iter().for_each(|lane| lane.deadline = deadline);
        self.note_deadlines();
    }

    fn note_deadlines(&mut self) {
        self.first_deadline = self.lanes.values().map(|lane| lane.deadline).min();
    }

    /// The local moment after which nothing of the lane that ends first is sent.
    pub(super) fn first_deadline(&self) -> Option<Instant> {
        self.first_deadline
    }

    /// The lane of a lease, while it is held under that lease.
    pub(super) fn under(&self, lease: Lease) -> Option<&OwnedLane> {
        self.lanes.get(&lease.lane).filter(|lane| lane.lease == lease)
    }

    pub(super) fn under_mut(&mut self, lease: Lease) -> Option<&mut OwnedLane> {
        self.lanes.get_mut(&lease.lane).filter(|lane| lane.lease == lease)
    }

    /// The lane, under whatever lease it is held now.
    pub(super) fn get(&self, lane: Lane) -> Option<&OwnedLane> {
        self.lanes.get(&lane)
    }

    pub(super) fn get_mut(&mut self, lane: Lane) -> Option<&mut OwnedLane> {
        self.lanes.get_mut(&lane)
    }

    /// The lanes with their numbers, in order.
    pub(super) fn iter(&self) -> btree_map::Iter<'_, Lane, OwnedLane> {
        self.lanes.iter()
    }

    pub(super) fn iter_mut(&mut self) -> btree_map::IterMut<'_, Lane, OwnedLane> {
        self.lanes.iter_mut()
    }

    pub(super) fn values(&self) -> btree_map::Values<'_, Lane, OwnedLane> {
        self.lanes.values()
    }

    pub(super) fn values_mut(&mut self) -> btree_map::ValuesMut<'_, Lane, OwnedLane> {
        self.lanes.values_mut()
    }

    /// The lanes in turn, those after this one first.
    pub(super) fn after(&self, lane: Lane) -> impl Iterator<Item = (&Lane, &OwnedLane)> {
        self.lanes.range(lane.saturating_add(1)..).chain(self.lanes.range(..=lane))
    }

    /// The leases, each with the last event that may have been sent by an owner that crashed.
    pub(super) fn with_suspects(&self) -> Vec<(Lease, Seq)> {
        self.lanes.values().map(|lane| (lane.lease, lane.suspect_to)).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postrider_core::store::Token;

    use super::*;

    fn taken(lane: Lane, epoch: u64) -> AcquiredLane {
        AcquiredLane { lease: Lease { lane, token: Token { epoch, nonce: 1 } }, suspect_to: 0 }
    }

    #[test]
    fn an_older_lease_of_a_lane_touches_nothing() {
        let (mut lanes, now) = (OwnedLanes::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        let (old, new) = (taken(0, 1), taken(0, 2));
        lanes.insert(new, now);
        lanes.extend(old.lease, later);
        assert!(lanes.under(old.lease).is_none() && lanes.remove(old.lease).is_none());
        assert_eq!((lanes.len(), lanes.first_deadline()), (1, Some(now)));
        lanes.extend(new.lease, later);
        assert_eq!(lanes.first_deadline(), Some(later));
        assert!(lanes.remove(new.lease).is_some());
        assert_eq!((lanes.is_empty(), lanes.first_deadline()), (true, None));
    }

    #[test]
    fn lanes_take_turns_from_the_one_that_was_last() {
        let (mut lanes, now) = (OwnedLanes::default(), Instant::now());
        [0, 2, 5].into_iter().for_each(|lane| lanes.insert(taken(lane, 1), now));
        let after = |lane| lanes.after(lane).map(|(lane, _)| *lane).collect::<Vec<_>>();
        assert_eq!((after(2), after(Lane::MAX)), (vec![5, 0, 2], vec![0, 2, 5]));
    }
}
