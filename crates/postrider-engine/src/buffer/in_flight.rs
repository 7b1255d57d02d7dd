//! Owns what is in memory: which events, how many of each route, and how many bytes. Every event enters once
//! and leaves once.

use postrider_core::{Source, store::Seq};

use super::{
    Item,
    tracker::{Tracked, Tracker},
};
use crate::slots::RouteSlot;

/// The events in memory, counted from claim or hand-over until their settle is committed.
#[derive(Debug)]
pub(super) struct InFlight {
    tracker: Tracker,
    hot: usize,
    cold: usize,
    /// How many events each route has in memory.
    by_route: Vec<usize>,
    bytes: usize,
}

impl InFlight {
    /// For this many route slots.
    pub(super) fn new(slots: usize) -> Self {
        Self { tracker: Tracker::default(), hot: 0, cold: 0, by_route: vec![0; slots], bytes: 0 }
    }

    /// Counts an event in.
    pub(super) fn insert(&mut self, item: &Item) {
        // A number that a rollback gave out again may still be tracked for its first event.
        if self.tracker.contains(item.seq) {
            self.remove(item.seq);
        }
        match item.source {
            Source::Hot => self.hot += 1,
            Source::Cold => self.cold += 1,
        }
        self.bytes += item.weight_bytes;
        self.by_route.get_mut(item.slot.index()).into_iter().for_each(|count| *count += 1);
        self.tracker.insert(Tracked::new(item.seq, item.source, item.slot, item.weight_bytes));
    }

    /// Counts an event out.
    pub(super) fn remove(&mut self, seq: Seq) {
        self.remove_one_of_many(seq);
        self.tracker.tidy();
    }

    /// Counts out one of many events. The caller [tidies](Self::tidy) once afterwards.
    pub(super) fn remove_one_of_many(&mut self, seq: Seq) {
        let known = self.tracker.remove(seq);
        known.into_iter().for_each(|known| self.count_out(known));
    }

    /// Counts out an event whose outcome is committed. A running claim may still bring it, so it stays known until
    /// [`remove_settled`](Self::remove_settled).
    pub(super) fn settle(&mut self, seq: Seq) {
        let known = self.tracker.settle(seq);
        known.into_iter().for_each(|known| self.count_out(known));
    }

    /// Forgets what was settled during a claim, which has returned.
    pub(super) fn remove_settled(&mut self) {
        self.tracker.remove_settled();
    }

    pub(super) fn tidy(&mut self) {
        self.tracker.tidy();
    }

    /// Stops counting an event for its route: it waits for the database alone.
    pub(super) fn release_route(&mut self, seq: Seq) {
        let Some(slot) = self.tracker.take_slot(seq) else { return };
        self.by_route.get_mut(slot.index()).into_iter().for_each(|count| *count = count.saturating_sub(1));
    }

    /// Stops counting an event at all. Its number stays known.
    pub(super) fn release_room(&mut self, seq: Seq) {
        let Some(known) = self.tracker.take_weight(seq) else { return };
        self.count_out(known);
    }

    /// Subtracts what is not subtracted yet.
    fn count_out(&mut self, tracked: Tracked) {
        if tracked.weight == 0 {
            return;
        }
        self.bytes = self.bytes.saturating_sub(tracked.weight);
        self.by_route
            .get_mut(tracked.slot.index())
            .into_iter()
            .for_each(|count| *count = count.saturating_sub(1));
        let count = match tracked.source {
            Source::Hot => &mut self.hot,
            Source::Cold => &mut self.cold,
        };
        *count = count.saturating_sub(1);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.by_route.len());
    }

    pub(super) fn contains(&self, seq: Seq) -> bool {
        self.tracker.contains(seq)
    }

    /// Whether an event with this number is in memory and not settled.
    pub(super) fn is_unsettled(&self, seq: Seq) -> bool {
        self.tracker.is_under_way(seq)
    }

    /// The events, in order.
    pub(super) fn seqs(&self) -> Vec<Seq> {
        self.tracker.seqs()
    }

    /// How many events are known, settled ones included.
    pub(super) fn len(&self) -> usize {
        self.tracker.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tracker.is_empty()
    }

    /// The route that an event counts for, if it counts for one.
    pub(super) fn slot(&self, seq: Seq) -> Option<RouteSlot> {
        self.tracker.slot(seq)
    }

    pub(super) fn hot(&self) -> usize {
        self.hot
    }

    pub(super) fn cold(&self) -> usize {
        self.cold
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many events of a route are in memory.
    pub(super) fn of_route(&self, slot: RouteSlot) -> usize {
        self.by_route.get(slot.index()).copied().unwrap_or(0)
    }

    /// How many events of each route are in memory.
    pub(super) fn by_route(&self) -> impl Iterator<Item = (RouteSlot, usize)> {
        self.by_route.iter().enumerate().map(|(index, count)| (RouteSlot::at(index), *count))
    }

    /// How many routes there are, the place for events without one included.
    pub(super) fn routes(&self) -> usize {
        self.by_route.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::test_item;

    const A: RouteSlot = RouteSlot::at(1);

    #[test]
    fn an_event_counts_once_however_it_leaves() {
        let mut in_flight = InFlight::new(2);
        (1..=4).for_each(|seq| in_flight.insert(&test_item("key", seq, 1)));
        let weight = test_item("key", 1, 1).weight_bytes;
        assert_eq!((in_flight.cold(), in_flight.of_route(A), in_flight.bytes()), (4, 4, 4 * weight));
        in_flight.remove(1);
        in_flight.remove(1);
        assert_eq!((in_flight.cold(), in_flight.of_route(A), in_flight.bytes()), (3, 3, 3 * weight));
        // An outcome that waits for a lock takes no room from its route, and is still in memory.
        in_flight.release_route(2);
        in_flight.release_route(2);
        assert_eq!((in_flight.cold(), in_flight.of_route(A), in_flight.slot(2)), (3, 2, None));
        in_flight.release_room(2);
        in_flight.settle(2);
        in_flight.settle(3);
        assert_eq!((in_flight.cold(), in_flight.of_route(A), in_flight.bytes()), (1, 1, weight));
        assert!(in_flight.contains(3) && !in_flight.is_unsettled(3));
        in_flight.remove_settled();
        assert_eq!(in_flight.seqs(), [4]);
    }

    #[test]
    fn a_number_that_is_given_again_counts_for_its_new_event_alone() {
        let mut in_flight = InFlight::new(2);
        in_flight.insert(&test_item("key", 1, 0));
        in_flight.insert(&test_item("key", 1, 1));
        assert_eq!(
            (in_flight.cold(), in_flight.of_route(RouteSlot::at(0)), in_flight.of_route(A)),
            (1, 0, 1)
        );
    }
}
