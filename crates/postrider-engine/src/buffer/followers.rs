//! Owns the events that wait in memory behind a busy key.

use std::collections::VecDeque;

use super::Item;

/// The followers of a busy key, in order. There are nearly none: a key without followers takes one word in the
/// table of busy keys.
#[derive(Debug, Default)]
pub(super) struct Followers(Option<Box<FollowerQueue>>);

#[derive(Debug, Default)]
struct FollowerQueue {
    items: VecDeque<Item>,
    /// How many events of the key are under way beside its head.
    batched: usize,
}

impl Followers {
    /// How many events wait.
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |waiting| waiting.items.len())
    }

    pub(super) fn push_back(&mut self, item: Item) {
        self.0.get_or_insert_default().items.push_back(item);
    }

    pub(super) fn push_front(&mut self, item: Item) {
        self.0.get_or_insert_default().items.push_front(item);
    }

    pub(super) fn pop_front(&mut self) -> Option<Item> {
        self.0.as_mut()?.items.pop_front()
    }

    /// Takes the next event out to be batched with the head, if it may.
    pub(super) fn take_next(&mut self, may: impl Fn(&Item) -> bool) -> Option<Item> {
        let waiting = self.0.as_mut()?;
        let mut item = waiting.items.pop_front_if(|item| may(item))?;
        waiting.batched += 1;
        item.batched_with_head = true;
        Some(item)
    }

    /// Records that an event of the key is no longer under way. Returns whether it was the only one.
    pub(super) fn departs(&mut self) -> bool {
        match &mut self.0 {
            Some(waiting) if waiting.batched > 0 => {
                waiting.batched -= 1;
                false
            }
            _ => true,
        }
    }

    /// Takes out all events that wait.
    pub(super) fn take(&mut self) -> VecDeque<Item> {
        self.0.as_mut().map(|waiting| std::mem::take(&mut waiting.items)).unwrap_or_default()
    }
}
