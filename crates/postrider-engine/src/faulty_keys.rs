//! Remembers keys that fail on their own: they failed, and then another key was delivered at the same place.
//!
//! Their next failure says nothing about the receiver. Otherwise the same few bad keys would look like an
//! outage again and again, and everybody would wait. What is known of a key holds for one failure after each
//! delivery: a key that fails twice without a delivery in between is as good a sign of an outage as any other.

use std::collections::HashMap;

use crate::hash::QuickState;

/// This many failing keys in a row without a delivery in between are an outage.
pub(crate) const FAILING_KEYS: usize = 5;

/// Most keys that are remembered.
const MOST: usize = 1024;

/// The faulty keys of one destination.
#[derive(Debug, Default)]
pub(crate) struct FaultyKeys {
    keys: HashMap<u64, FaultyKey, QuickState>,
    /// How many events were delivered while any key was remembered, and how many keys were ever recorded.
    delivered: u64,
    noted: u64,
    /// How many keys accuse the receiver: they failed since the last delivery, and are not known to be faulty.
    accusing: usize,
}

#[derive(Debug, Clone, Copy)]
struct FaultyKey {
    /// Its place among all recorded keys, to forget the oldest first.
    number: u64,
    /// How many events had been delivered when it last failed.
    last: u64,
    /// Whether its last failure accuses the receiver.
    accuses: bool,
    /// How often it failed after others were delivered.
    times: u32,
    /// Most events in the batch of its next one.
    batch_limit: usize,
}

impl FaultyKeys {
    /// Records a failure of this key. Returns whether it accuses the receiver.
    pub(crate) fn failed(&mut self, key: u64) -> bool {
        let now = self.delivered;
        let Some(known) = self.keys.get_mut(&key) else {
            self.note(key);
            return true;
        };
        let repeated = known.last == now;
        if repeated && !known.accuses {
            self.accusing += 1;
        }
        known.times = known.times.saturating_add(u32::from(!repeated));
        (known.last, known.accuses) = (now, repeated);
        repeated
    }

    fn note(&mut self, key: u64) {
        if self.keys.len() >= MOST
            && let Some(oldest) = self.keys.iter().min_by_key(|(_, known)| known.number).map(|(key, _)| *key)
        {
            self.keys.remove(&oldest);
        }
        let (number, last) = (self.noted, self.delivered);
        self.keys.insert(key, FaultyKey { number, last, accuses: true, times: 0, batch_limit: usize::MAX });
        self.noted += 1;
        self.accusing += 1;
    }

    /// Records a delivery of this key. Other keys that failed before are faulty.
    pub(crate) fn delivered(&mut self, key: u64) {
        if !self.keys.is_empty() {
            self.delivered += 1;
            self.accusing = 0;
            self.keys.remove(&key);
        }
    }

    /// Records that an event of this key failed in a batch of this size, in which any may be the cause. Its
    /// next batch is half as large.
    pub(crate) fn halve_batch(&mut self, key: u64, events: usize) {
        self.keys.get_mut(&key).into_iter().for_each(|known| known.batch_limit = (events / 2).max(1));
    }

    /// Returns how often a faulty key has failed since it is known to be faulty.
    pub(crate) fn times(&self, key: u64) -> u32 {
        self.keys.get(&key).filter(|_| self.accusing < FAILING_KEYS).map_or(0, |known| known.times)
    }

    /// Returns the size limit of the next batch with this key; none if it has not failed.
    pub(crate) fn batch_limit(&self, key: u64) -> Option<usize> {
        self.keys.get(&key).map(|known| known.batch_limit)
    }

    /// Returns how many other keys accuse the receiver.
    pub(crate) fn accusing_beside(&self, key: u64) -> usize {
        let own = self.keys.get(&key).is_some_and(|known| known.accuses && known.last == self.delivered);
        self.accusing.saturating_sub(usize::from(own))
    }

    /// Whether a key is faulty. During an outage none is.
    pub(crate) fn is_faulty(&self, key: u64) -> bool {
        let is_known =
            self.keys.get(&key).is_some_and(|known| known.times > 0 || known.last < self.delivered);
        is_known && self.accusing < FAILING_KEYS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_failed_before_another_was_delivered_is_known_until_it_is_delivered_itself() {
        let mut faulty_keys = FaultyKeys::default();
        assert!(faulty_keys.failed(1) && !faulty_keys.is_faulty(1), "it may be an outage");
        faulty_keys.delivered(2);
        assert!(faulty_keys.is_faulty(1) && !faulty_keys.is_faulty(2));
        faulty_keys.delivered(1);
        assert!(!faulty_keys.is_faulty(1));
        faulty_keys.failed(3);
        faulty_keys.delivered(3);
        assert!(!faulty_keys.is_faulty(3), "it works again");
    }

    #[test]
    fn known_keys_that_fail_twice_with_nothing_delivered_in_between_accuse_the_receiver() {
        let mut faulty_keys = FaultyKeys::default();
        let keys = || 0..FAILING_KEYS as u64;
        keys().for_each(|key| _ = faulty_keys.failed(key));
        faulty_keys.delivered(99);
        assert!(keys().all(|key| !faulty_keys.failed(key) && faulty_keys.is_faulty(key)));
        assert_eq!((faulty_keys.accusing_beside(99), faulty_keys.times(0)), (0, 1));
        assert!(keys().all(|key| faulty_keys.failed(key)));
        assert!(keys().all(|key| !faulty_keys.is_faulty(key)), "it is an outage");
        assert_eq!((faulty_keys.accusing_beside(99), faulty_keys.accusing_beside(0)), (5, 4));
        keys().for_each(|key| _ = faulty_keys.failed(key));
        assert_eq!(faulty_keys.accusing_beside(99), 5, "each of them once");
        faulty_keys.delivered(99);
        assert!(keys().all(|key| faulty_keys.is_faulty(key)));
    }

    #[test]
    fn the_oldest_are_forgotten_where_too_many_fail() {
        let mut faulty_keys = FaultyKeys::default();
        (0..=MOST as u64).for_each(|key| _ = faulty_keys.failed(key));
        faulty_keys.delivered(u64::MAX);
        assert!(!faulty_keys.is_faulty(0) && faulty_keys.is_faulty(1) && faulty_keys.is_faulty(MOST as u64));
        assert_eq!(faulty_keys.keys.len(), MOST);
    }
}
