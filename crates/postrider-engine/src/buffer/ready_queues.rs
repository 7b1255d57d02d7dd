//! Owns the events that are ready to be sent, hot and cold, and whose turn it is.

use std::collections::VecDeque;

use postrider_core::Source;

use super::Item;
use crate::{fair_queue::FairQueue, slots::RouteSlot};

/// Ready events by source and route. Hot events have two turns of three; routes take turns within each.
pub(super) struct ReadyQueues {
    hot: FairQueue<Item>,
    cold: FairQueue<Item>,
    /// Counts turns modulo three.
    turn: u8,
}

/// The queue that is next: its source, its route and how many events it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) source: Source,
    pub(super) slot: RouteSlot,
    pub(super) queued: usize,
}

impl ReadyQueues {
    /// For so many route slots.
    pub(super) fn new(slots: usize) -> Self {
        Self { hot: FairQueue::new(slots), cold: FairQueue::new(slots), turn: 0 }
    }

    fn of(&self, source: Source) -> &FairQueue<Item> {
        match source {
            Source::Hot => &self.hot,
            Source::Cold => &self.cold,
        }
    }

    fn of_mut(&mut self, source: Source) -> &mut FairQueue<Item> {
        match source {
            Source::Hot => &mut self.hot,
            Source::Cold => &mut self.cold,
        }
    }

    pub(super) fn push(&mut self, item: Item) {
        self.of_mut(item.source).push(item.slot, item);
    }

    /// Puts an event before all others of its route.
    pub(super) fn push_front(&mut self, item: Item) {
        self.of_mut(item.source).push_front(item.slot, item);
    }

    /// The queue whose turn it is among the routes that `open` lets through.
    pub(super) fn next(&self, open: impl Fn(RouteSlot) -> bool) -> Option<Turn> {
        let order = if self.turn < 2 { [Source::Hot, Source::Cold] } else { [Source::Cold, Source::Hot] };
        order.into_iter().find_map(|source| {
            let (slot, queued) = self.of(source).turn(&open)?;
            Some(Turn { source, slot, queued })
        })
    }

    /// A turn was taken.
    pub(super) fn end_turn(&mut self) {
        self.turn = (self.turn + 1) % 3;
    }

    /// Takes up to so many events of a route.
    pub(super) fn take(&mut self, source: Source, slot: RouteSlot, most: usize) -> VecDeque<Item> {
        self.of_mut(source).take(slot, most)
    }

    /// Takes all events of a route, hot ones first.
    pub(super) fn take_route(&mut self, slot: RouteSlot) -> VecDeque<Item> {
        let mut items = self.hot.take_all(slot);
        items.extend(self.cold.take_all(slot));
        items
    }

    /// Takes out what does not satisfy `keep`, in order.
    pub(super) fn extract(&mut self, keep: impl Fn(&Item) -> bool) -> Vec<Item> {
        let mut items = self.hot.extract(&keep);
        items.extend(self.cold.extract(&keep));
        items
    }

    /// Whether a route that `open` lets through has an event.
    pub(super) fn has(&self, open: impl Fn(RouteSlot) -> bool) -> bool {
        self.hot.has(&open) || self.cold.has(&open)
    }

    /// How many queues have an event, over routes and sources.
    pub(super) fn waiting(&self) -> usize {
        self.hot.waiting() + self.cold.waiting()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Item> {
        self.hot.iter().chain(self.cold.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::test_item;

    const A: RouteSlot = RouteSlot::at(1);

    #[test]
    fn hot_events_have_two_turns_of_three() {
        let mut queues = ReadyQueues::new(2);
        for seq in 0..6 {
            queues.push(test_item("key", seq, 1));
            queues.push(Item { source: Source::Hot, ..test_item("key", 10 + seq, 1) });
        }
        let mut sources = Vec::new();
        while let Some(Turn { source, slot, .. }) = queues.next(|_| true) {
            queues.take(source, slot, 1);
            queues.end_turn();
            sources.push(source);
        }
        let (hot, cold) = (Source::Hot, Source::Cold);
        assert_eq!(sources, [hot, hot, cold, hot, hot, cold, hot, hot, cold, cold, cold, cold]);
    }

    #[test]
    fn a_source_without_open_routes_gives_its_turn_to_the_other() {
        let mut queues = ReadyQueues::new(2);
        queues.push(Item { source: Source::Hot, ..test_item("key", 1, 0) });
        queues.push(test_item("key", 2, 1));
        let turn = Turn { source: Source::Cold, slot: A, queued: 1 };
        assert_eq!(queues.next(|slot| slot == A), Some(turn));
        assert_eq!(queues.next(|_| false), None);
        assert_eq!(queues.take_route(A).len(), 1);
        assert!(!queues.has(|slot| slot == A) && queues.waiting() == 1);
    }
}
