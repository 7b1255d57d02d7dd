//! Stops events from dying at a receiver or destination that fails whatever it is sent.
//!
//! After ten keys in a row that were rejected, or twenty-five that used up their attempts, nothing more dies
//! there until something is delivered or an operator releases the brake. A receiver with several destinations
//! also counts the destinations that fail, since each may have a single key. A key that was rejected before
//! another one was delivered has a reason of its own and does not pull the brake, unless it is rejected twice
//! without a delivery in between. Either way no more than ten events die in a row.

use crate::{
    faulty_keys::FaultyKeys,
    mutations::{self, Mutation},
};

/// This many distinct keys rejected without a delivery in between pull the brake.
pub(crate) const REJECTED_KEYS: usize = 10;

/// This many distinct keys that use up their attempts without a delivery in between pull it too.
pub(crate) const EXHAUSTED_KEYS: usize = 25;

/// What becomes of an event that was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AfterRejection {
    /// It dies.
    Die,
    /// Its key was rejected before, and ten keys in a row were rejected. It waits, and pulls the brake if it is
    /// rejected again before a delivery.
    Wait,
    /// The brake holds. The event waits and the breaker opens.
    Brake,
}

#[derive(Debug, Default)]
pub(crate) struct Brake {
    /// Keys rejected since the last delivery. A known key counts once it was rejected twice.
    rejected: Vec<u64>,
    /// Keys rejected since the last delivery, known ones included.
    in_a_row: Vec<u64>,
    /// Keys that used up their attempts since the last delivery.
    exhausted: Vec<u64>,
    faulty_keys: FaultyKeys,
    /// Another process pulled the brake before this one started, and nothing was delivered since.
    inherited: bool,
    /// An operator has released the brake: rejected events die.
    released: bool,
}

impl Brake {
    /// Records that an event of this key was rejected.
    pub(crate) fn rejected(&mut self, key: u64) -> AfterRejection {
        if self.released || mutations::active(Mutation::RejectionsUnbraked) {
            return AfterRejection::Die;
        }
        if self.faulty_keys.failed(key) {
            note(&mut self.rejected, key, REJECTED_KEYS);
        }
        note(&mut self.in_a_row, key, REJECTED_KEYS);
        if self.holds() {
            AfterRejection::Brake
        } else if self.in_a_row.len() >= REJECTED_KEYS {
            AfterRejection::Wait
        } else {
            AfterRejection::Die
        }
    }

    /// Records that an event of this key used up its attempts. Returns whether the brake holds.
    pub(crate) fn exhausted(&mut self, key: u64) -> bool {
        if self.released || mutations::active(Mutation::ExhaustionUnbraked) {
            return false;
        }
        note(&mut self.exhausted, key, EXHAUSTED_KEYS);
        self.holds()
    }

    pub(crate) fn holds(&self) -> bool {
        let full = self.rejected.len() >= REJECTED_KEYS || self.exhausted.len() >= EXHAUSTED_KEYS;
        full || self.inherited && !(self.rejected.is_empty() && self.exhausted.is_empty())
    }

    /// Whether no failure is recorded.
    pub(crate) fn is_idle(&self) -> bool {
        self.rejected.is_empty() && self.exhausted.is_empty()
    }

    /// Records that an event of this key was delivered.
    pub(crate) fn delivered(&mut self, key: u64) {
        self.faulty_keys.delivered(key);
        self.let_go();
    }

    fn let_go(&mut self) {
        self.rejected.clear();
        self.in_a_row.clear();
        self.exhausted.clear();
        self.inherited = false;
    }

    /// Takes over a brake that another process pulled: the first failure is enough now.
    pub(crate) fn inherit(&mut self) {
        self.inherited = true;
    }

    /// Ends what was taken over from another process.
    pub(crate) fn end_inheritance(&mut self) {
        self.inherited = false;
    }

    /// Releases the brake on an operator's word, or arms it again.
    pub(crate) fn release(&mut self, released: bool) {
        if released {
            self.let_go();
        }
        self.released = released;
    }
}

/// Records a key, up to the number that is needed.
fn note(keys: &mut Vec<u64>, key: u64, most: usize) {
    if keys.len() < most && !keys.contains(&key) {
        keys.push(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_keys_pull_it_and_a_delivery_lets_go() {
        let mut brake = Brake::default();
        assert!((0..100).all(|_| brake.rejected(1) == AfterRejection::Die), "one key is that key's affair");
        let died = (0..100).filter(|key| brake.rejected(*key) == AfterRejection::Die).count();
        assert!(died < REJECTED_KEYS && brake.holds(), "{died}");
        brake.delivered(1000);
        assert!(!brake.holds() && brake.rejected(1) == AfterRejection::Die);
        let died = (0..100).filter(|key| brake.rejected(*key) == AfterRejection::Die).count();
        assert!(died < REJECTED_KEYS && !brake.holds(), "{died} die, and nobody waits for known ones");
        assert_eq!(brake.rejected(1), AfterRejection::Wait);
        brake.delivered(1001);
        assert_eq!(brake.rejected(1), AfterRejection::Die);
        let died = (0..100).filter(|key| !brake.exhausted(*key)).count();
        assert!(died < EXHAUSTED_KEYS && brake.holds(), "{died}");
    }

    #[test]
    fn known_keys_that_are_rejected_twice_with_nothing_delivered_in_between_pull_it() {
        let mut brake = Brake::default();
        let keys = || 0..REJECTED_KEYS as u64;
        keys().for_each(|key| _ = brake.rejected(key));
        brake.delivered(99);
        keys().for_each(|key| _ = brake.rejected(key));
        assert!(!brake.holds(), "they were rejected before, and others were taken");
        keys().for_each(|key| _ = brake.rejected(key));
        assert!(brake.holds());
    }

    #[test]
    fn one_that_was_inherited_holds_from_the_first_failure_until_something_is_delivered() {
        let mut brake = Brake::default();
        brake.inherit();
        assert!(!brake.holds(), "nothing has failed yet");
        assert!(brake.rejected(1) == AfterRejection::Brake && brake.holds());
        brake.delivered(2);
        assert!(brake.rejected(1) == AfterRejection::Die);
        brake.inherit();
        brake.end_inheritance();
        assert!(brake.rejected(3) == AfterRejection::Die);
    }

    #[test]
    fn an_operator_releases_it() {
        let mut brake = Brake::default();
        (0..100).for_each(|key| _ = brake.rejected(key));
        brake.release(true);
        assert!((0..100).all(|key| brake.rejected(key) == AfterRejection::Die && !brake.exhausted(key)));
        brake.release(false);
        assert!((0..100).any(|key| brake.rejected(key) == AfterRejection::Brake));
    }
}
