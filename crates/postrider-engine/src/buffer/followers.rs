//! What waits in memory behind a busy key.

use std::collections::{VecDeque, vec_deque};

use super::Item;

/// The followers of a busy key, in order. Nearly always there are none: then they take a word in the table of busy keys, and nothing has to
/// be looked at when the key goes.
#[derive(Debug, Default)]
pub(super) struct Followers(Option<Box<VecDeque<Item>>>);

impl Followers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|items| items.is_empty())
    }

    pub(super) fn push_back(&mut self, item: Item) {
        self.0.get_or_insert_default().push_back(item);
    }

    pub(super) fn pop_front(&mut self) -> Option<Item> {
        self.0.as_mut()?.pop_front()
    }

    /// Takes all of them out.
    pub(super) fn take(&mut self) -> Self {
        Self(self.0.take())
    }
}

impl IntoIterator for Followers {
    type Item = Item;
    type IntoIter = vec_deque::IntoIter<Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.map(|items| *items).unwrap_or_default().into_iter()
    }
}
