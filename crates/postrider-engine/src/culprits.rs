//! Keys that are known to fail by themselves: they failed, and then another key was delivered at the same place.
//!
//! Their next failure says nothing about the receiver. Without this memory the same few bad keys would look like an outage again and again,
//! and everybody else would wait for it.

use std::collections::VecDeque;

/// The most keys that are remembered.
const MOST: usize = 1024;

/// The keys of one destination that fail by themselves.
#[derive(Debug, Default)]
pub(crate) struct Culprits {
    /// Keys that failed since the last delivery. It may be an outage.
    accused: VecDeque<u64>,
    known: VecDeque<u64>,
}

impl Culprits {
    /// An event of this key has failed.
    pub(crate) fn failed(&mut self, key: u64) {
        if !self.accused.contains(&key) && !self.knows(key) {
            push(&mut self.accused, key);
        }
    }

    /// An event of this key was delivered. Whoever else failed before has failed by itself.
    pub(crate) fn delivered(&mut self, key: u64) {
        if self.accused.is_empty() && self.known.is_empty() {
            return;
        }
        while let Some(accused) = self.accused.pop_front() {
            push(&mut self.known, accused);
        }
        if let Some(place) = self.known.iter().position(|known| *known == key) {
            self.known.remove(place);
        }
    }

    /// How many other keys failed since something was delivered.
    pub(crate) fn accused_beside(&self, key: u64) -> usize {
        self.accused.iter().filter(|accused| **accused != key).count()
    }

    pub(crate) fn knows(&self, key: u64) -> bool {
        self.known.contains(&key)
    }
}

fn push(keys: &mut VecDeque<u64>, key: u64) {
    if keys.len() >= MOST {
        keys.pop_front();
    }
    keys.push_back(key);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_failed_before_another_was_delivered_is_known_until_it_is_delivered_itself() {
        let mut culprits = Culprits::default();
        culprits.failed(1);
        assert!(!culprits.knows(1), "it may be an outage");
        culprits.delivered(2);
        assert!(culprits.knows(1) && !culprits.knows(2));
        culprits.delivered(1);
        assert!(!culprits.knows(1));
        culprits.failed(3);
        culprits.delivered(3);
        assert!(!culprits.knows(3), "it works again");
    }

    #[test]
    fn the_oldest_are_forgotten_where_too_many_fail() {
        let mut culprits = Culprits::default();
        (0..=MOST as u64).for_each(|key| culprits.failed(key));
        culprits.delivered(u64::MAX);
        assert!(!culprits.knows(0) && culprits.knows(1) && culprits.knows(MOST as u64));
        assert_eq!(culprits.known.len(), MOST);
    }
}
