//! What waits in memory behind a busy key.

use std::collections::VecDeque;

use super::Item;

/// The followers of a busy key, in order. Nearly always there are none, and the key is busy with one event: then they take a word in the
/// table of busy keys, and nothing has to be looked at when the key goes.
#[derive(Debug, Default)]
pub(super) struct Followers(Option<Box<FollowerQueue>>);

#[derive(Debug, Default)]
struct FollowerQueue {
    items: VecDeque<Item>,
    /// How many events of the key are under way beside the first.
    batched: usize,
}

impl Followers {
    /// How many wait.
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

    /// Takes the next one out to go along with those that are under way, if it may.
    pub(super) fn take_along(&mut self, may: impl Fn(&Item) -> bool) -> Option<Item> {
        let waiting = self.0.as_mut()?;
        let mut item = waiting.items.pop_front_if(|item| may(item))?;
        waiting.batched += 1;
        item.batched_with_head = true;
        Some(item)
    }

    /// An event of the key is no longer under way. True if it was the only one.
    pub(super) fn departs(&mut self) -> bool {
        match &mut self.0 {
            Some(waiting) if waiting.batched > 0 => {
                waiting.batched -= 1;
                false
            }
            _ => true,
        }
    }

    /// Takes all that wait out.
    pub(super) fn take(&mut self) -> VecDeque<Item> {
        self.0.as_mut().map(|waiting| std::mem::take(&mut waiting.items)).unwrap_or_default()
    }
}
