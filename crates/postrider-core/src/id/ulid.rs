//! Monotonic ULIDs: 48 bits of milliseconds and 80 random bits that only rise within a millisecond.

use std::sync::{Mutex, PoisonError};

use super::crockford;
use crate::{Timestamp, rng::Rng};

/// Bits below the timestamp.
const RANDOM_BITS: u32 = 80;

/// Makes ULIDs that strictly rise, also when the clock stands still or goes back.
///
/// ```
/// use postrider_core::{Timestamp, id::UlidGenerator};
/// let mut ulids = UlidGenerator::seeded(7);
/// let now = Timestamp::now();
/// let (a, b) = (ulids.next_at(now), ulids.next_at(now));
/// assert!(a < b && a.len() == 26);
/// ```
#[derive(Debug)]
pub struct UlidGenerator {
    last: u128,
    rng: Rng,
}

impl UlidGenerator {
    /// A generator whose random bits belong to `seed`.
    pub const fn seeded(seed: u64) -> Self {
        Self { last: 0, rng: Rng::seeded(seed) }
    }

    /// The next ULID at the time `now`.
    pub fn next_at(&mut self, now: Timestamp) -> String {
        let millis = u128::try_from(now.as_micros() / 1000).unwrap_or(0) & ((1 << 48) - 1);
        let random = (u128::from(self.rng.next_u64()) << 16 | u128::from(self.rng.next_u64() >> 48))
            // The top bit is left free, so that ids of one millisecond have room to rise.
            & ((1 << (RANDOM_BITS - 1)) - 1);
        let fresh = millis << RANDOM_BITS | random;
        // In the same millisecond, or when the clock went back, step on from the last one by a random amount:
        // strictly greater, and without a gap that tells how many there were. Ids are no secrets.
        let step = u128::from(self.rng.next_u64() >> 32) + 1;
        self.last = if fresh >> RANDOM_BITS > self.last >> RANDOM_BITS { fresh } else { self.last + step };
        crockford::<26>(self.last)
    }
}

pub(super) fn process_wide() -> String {
    static GENERATOR: Mutex<Option<UlidGenerator>> = Mutex::new(None);
    let mut generator = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    generator.get_or_insert_with(|| UlidGenerator::seeded(crate::rng::entropy())).next_at(Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventId;

    #[test]
    fn a_hundred_thousand_ids_of_one_process_strictly_rise() {
        // S3-6.1a
        let ids: Vec<_> = (0..100_000).map(|_| EventId::ulid()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(ids.iter().all(|id| id.as_str().len() == 26));
    }

    #[test]
    fn ids_rise_when_the_clock_goes_back() {
        let mut ulids = UlidGenerator::seeded(1);
        let first = ulids.next_at(Timestamp::from_micros(2_000_000));
        assert!(first < ulids.next_at(Timestamp::from_micros(1_000_000)));
    }

    #[test]
    fn the_timestamp_can_be_read_from_the_first_ten_characters() {
        let mut ulids = UlidGenerator::seeded(1);
        let id = ulids.next_at(Timestamp::from_micros(1_469_918_176_385_000));
        assert_eq!(&id[..10], "01ARYZ6S41");
    }

    #[test]
    fn threads_never_draw_the_same_id() {
        let threads: Vec<_> = (0..8)
            .map(|_| std::thread::spawn(|| (0..2000).map(|_| EventId::ulid()).collect::<Vec<_>>()))
            .collect();
        let mut ids: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 16_000);
    }
}
