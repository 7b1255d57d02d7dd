//! Tracks which events are in memory, in the order of their numbers.

use std::collections::VecDeque;

use postrider_core::{Source, store::Seq};

use crate::slots::RouteSlot;

/// The slot of an event that no longer counts for a route.
const NO_SLOT: RouteSlot = RouteSlot::at(usize::MAX);

/// What is known of an event in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tracked {
    seq: Seq,
    pub(super) source: Source,
    /// Zero once it is not counted any more.
    pub(super) weight: usize,
    pub(super) slot: RouteSlot,
    /// Settled during a claim that may bring it back. It stays until that claim has returned.
    settled: bool,
    /// False for an entry that stays only because of those around it.
    present: bool,
}

impl Tracked {
    pub(super) fn new(seq: Seq, source: Source, slot: RouteSlot, weight: usize) -> Self {
        Self { seq, source, weight, slot, settled: false, present: true }
    }
}

/// The events in memory, in the order of `seq`. Most come and go in order, so a queue serves better than a
/// tree.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    entries: VecDeque<Tracked>,
    present: usize,
    settled: usize,
}

impl Tracker {
    pub(super) fn len(&self) -> usize {
        self.present
    }

    pub(super) fn is_empty(&self) -> bool {
        self.present == 0
    }

    pub(super) fn contains(&self, seq: Seq) -> bool {
        self.place(seq).is_ok_and(|place| self.entries.get(place).is_some_and(|entry| entry.present))
    }

    /// Whether an event has this number and is not settled.
    pub(super) fn is_under_way(&self, seq: Seq) -> bool {
        let entry = self.place(seq).ok().and_then(|place| self.entries.get(place));
        entry.is_some_and(|entry| entry.present && !entry.settled)
    }

    /// The events, in order.
    pub(super) fn seqs(&self) -> Vec<Seq> {
        let mut seqs = Vec::with_capacity(self.present);
        seqs.extend(self.entries.iter().filter(|entry| entry.present).map(|entry| entry.seq));
        seqs
    }

    #[inline]
    fn place(&self, seq: Seq) -> Result<usize, usize> {
        if self.entries.back().is_none_or(|last| last.seq < seq) {
            return Err(self.entries.len());
        }
        self.place_among(seq)
    }

    fn place_among(&self, seq: Seq) -> Result<usize, usize> {
        // Where no number is missing, the index follows from it.
        let first = self.entries.front().map_or(seq, |first| first.seq);
        if let Some(place) = seq.checked_sub(first).and_then(|place| usize::try_from(place).ok())
            && self.entries.get(place).is_some_and(|entry| entry.seq == seq)
        {
            return Ok(place);
        }
        self.entries.binary_search_by_key(&seq, |entry| entry.seq)
    }

    pub(super) fn insert(&mut self, entry: Tracked) {
        match self.place(entry.seq) {
            Ok(place) => {
                if let Some(there) = self.entries.get_mut(place) {
                    self.present += usize::from(!there.present);
                    self.settled -= usize::from(there.present && there.settled);
                    *there = entry;
                }
            }
            Err(place) => {
                self.present += 1;
                // Nearly always after all others.
                if place == self.entries.len() {
                    self.entries.push_back(entry);
                } else {
                    self.entries.insert(place, entry);
                }
            }
        }
    }

    /// The route that an event counts for, if it counts for one.
    pub(super) fn slot(&self, seq: Seq) -> Option<RouteSlot> {
        let entry = self.place(seq).ok().and_then(|place| self.entries.get(place))?;
        Some(entry.slot).filter(|slot| entry.present && *slot != NO_SLOT)
    }

    fn get_mut(&mut self, seq: Seq) -> Option<&mut Tracked> {
        let place = self.place(seq).ok()?;
        self.entries.get_mut(place).filter(|entry| entry.present)
    }

    /// Removes an event. Returns what was known of it.
    pub(super) fn remove(&mut self, seq: Seq) -> Option<Tracked> {
        let entry = self.get_mut(seq)?;
        entry.present = false;
        let known = *entry;
        self.settled -= usize::from(known.settled);
        self.present -= 1;
        Some(known)
    }

    /// Marks an event as settled until [`remove_settled`](Self::remove_settled). Returns what was known of it.
    pub(super) fn settle(&mut self, seq: Seq) -> Option<Tracked> {
        let entry = self.get_mut(seq)?;
        let known = *entry;
        (entry.weight, entry.settled) = (0, true);
        self.settled += usize::from(!known.settled);
        Some(known)
    }

    /// Takes the slot of a counted event, which then counts for no route.
    pub(super) fn take_slot(&mut self, seq: Seq) -> Option<RouteSlot> {
        let tracked = self.get_mut(seq).filter(|tracked| tracked.weight > 0)?;
        Some(std::mem::replace(&mut tracked.slot, NO_SLOT))
    }

    /// Takes the weight of an event, which then counts for nothing. Returns what was known of it.
    pub(super) fn take_weight(&mut self, seq: Seq) -> Option<Tracked> {
        let tracked = self.get_mut(seq)?;
        let known = *tracked;
        tracked.weight = 0;
        Some(known)
    }

    /// Removes what was settled during a claim, which has returned.
    pub(super) fn remove_settled(&mut self) {
        if self.settled == 0 {
            return;
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.settled && entry.present) {
            entry.present = false;
            self.present -= 1;
        }
        self.settled = 0;
        self.tidy();
    }

    /// Gives up the places of removed events.
    pub(super) fn tidy(&mut self) {
        while self.entries.front().is_some_and(|entry| !entry.present) {
            self.entries.pop_front();
        }
        // One that stays long must not keep the others' places for ever.
        if self.entries.len() > 2 * self.present + 64 {
            self.entries.retain(|entry| entry.present);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracked(seq: Seq) -> Tracked {
        Tracked::new(seq, Source::Cold, RouteSlot::at(0), 1)
    }

    #[test]
    fn events_are_found_in_whatever_order_they_come_and_go() {
        let mut tracker = Tracker::default();
        [5, 9, 7, 1, 9].into_iter().for_each(|seq| tracker.insert(tracked(seq)));
        assert_eq!((tracker.seqs(), tracker.len()), (vec![1, 5, 7, 9], 4));
        assert!([7, 7, 2].map(|seq| tracker.remove(seq).is_some()) == [true, false, false]);
        assert!(!tracker.contains(7) && tracker.contains(9));
        tracker.insert(tracked(7));
        tracker.remove(1);
        assert_eq!((tracker.seqs(), tracker.len()), (vec![5, 7, 9], 3));
    }

    #[test]
    fn what_was_settled_during_a_claim_stays_until_that_has_returned() {
        let mut tracker = Tracker::default();
        [1, 2, 3].into_iter().for_each(|seq| tracker.insert(tracked(seq)));
        assert!(tracker.settle(2).is_some_and(|known| known.weight == 1));
        assert!(tracker.settle(2).is_some_and(|known| known.weight == 0), "it counts once");
        assert!(tracker.settle(3).is_some() && tracker.contains(3) && !tracker.is_under_way(3));
        // Its number was given to another event.
        tracker.insert(tracked(3));
        assert!(tracker.is_under_way(3));
        tracker.remove_settled();
        assert_eq!((tracker.seqs(), tracker.len(), tracker.settled), (vec![1, 3], 2, 0));
    }

    #[test]
    fn one_that_stays_does_not_keep_the_places_of_those_that_went() {
        let mut tracker = Tracker::default();
        tracker.insert(tracked(0));
        for seq in 1..100_000 {
            tracker.insert(tracked(seq));
            tracker.remove(seq);
            tracker.tidy();
        }
        assert!(tracker.entries.len() < 100, "{}", tracker.entries.len());
    }
}
