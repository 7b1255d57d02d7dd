//! TSIDs: 42 bits of milliseconds since 2020 and 22 bits of node and counter, in 13 characters.

use std::sync::{Mutex, PoisonError};

use super::crockford;
use crate::{Timestamp, rng::Rng};

/// Milliseconds from the Unix epoch to 2020-01-01, where TSID time begins.
const TSID_EPOCH_MS: i64 = 1_577_836_800_000;
/// Ten bits tell processes apart.
const NODE_BITS: u32 = 10;
/// Twelve bits count within a millisecond; what does not fit runs into the next one.
const COUNTER_BITS: u32 = 12;

/// Makes TSIDs that strictly rise. The node is drawn at random, so that processes seldom share one.
///
/// ```
/// use postrider_core::{Timestamp, id::TsidGenerator};
/// let mut tsids = TsidGenerator::seeded(7);
/// let now = Timestamp::now();
/// let (a, b) = (tsids.next_at(now), tsids.next_at(now));
/// assert!(a < b && a.len() == 13);
/// ```
#[derive(Debug)]
pub struct TsidGenerator {
    /// Time and counter without the node: what must rise.
    last: u64,
    node: u64,
    rng: Rng,
}

impl TsidGenerator {
    /// A generator whose node belongs to `seed`.
    pub fn seeded(seed: u64) -> Self {
        let mut rng = Rng::seeded(seed);
        Self { last: 0, node: rng.below(1 << NODE_BITS), rng }
    }

    /// The next TSID at the time `now`.
    pub fn next_at(&mut self, now: Timestamp) -> String {
        let millis = u64::try_from(now.as_micros() / 1000 - TSID_EPOCH_MS).unwrap_or(0);
        // A counter that began at zero would collide with that of another process which drew the same node.
        let start = self.rng.below(1 << (COUNTER_BITS - 1));
        self.last =
            if millis > self.last >> COUNTER_BITS { millis << COUNTER_BITS | start } else { self.last + 1 };
        let (time, counter) = (self.last >> COUNTER_BITS, self.last & ((1 << COUNTER_BITS) - 1));
        crockford::<13>(u128::from(time << (NODE_BITS + COUNTER_BITS) | self.node << COUNTER_BITS | counter))
    }
}

pub(super) fn process_wide() -> String {
    static GENERATOR: Mutex<Option<TsidGenerator>> = Mutex::new(None);
    let mut generator = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    generator.get_or_insert_with(|| TsidGenerator::seeded(crate::rng::entropy())).next_at(Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventId;

    #[test]
    fn tsids_have_thirteen_crockford_characters_and_rise_with_time() {
        let ids: Vec<_> = (0..20_000).map(|_| EventId::tsid()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(ids.iter().all(|id| id.as_str().len() == 13
            && id.as_str().bytes().all(|byte| super::super::CROCKFORD.contains(&byte))));
    }

    #[test]
    fn more_ids_than_fit_into_a_millisecond_still_rise() {
        let mut tsids = TsidGenerator::seeded(1);
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        let ids: Vec<_> = (0..10_000).map(|_| tsids.next_at(now)).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
