//! Hashes keys quickly and without a random seed: a simulated run depends on its own seed alone, and a key has
//! the same number in every table.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds [`QuickHasher`] for maps.
pub(crate) type QuickState = BuildHasherDefault<QuickHasher>;

const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// Multiplies and folds eight bytes at a time. The maps that use it are bounded by the queues, so keys that
/// were made to collide cost little.
#[derive(Debug, Default)]
pub(crate) struct QuickHasher(u64);

impl QuickHasher {
    fn mix(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number ^ FACTOR) * u128::from(FACTOR.rotate_left(23) | 1);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for QuickHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        // The last bytes are read together with those before them, if there are any: a copy of unknown length
        // would be a call.
        let last = match bytes.last_chunk() {
            Some(last) => u64::from_le_bytes(*last),
            None => rest.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
        };
        self.mix(last ^ ((bytes.len() as u64) << 56));
    }

    fn write_u8(&mut self, number: u8) {
        self.mix(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.mix(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.mix(number);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Returns the number of a key.
pub(crate) fn of_key(key: &str) -> u64 {
    let mut hash = QuickHasher::default();
    hash.write(key.as_bytes());
    hash.finish()
}

/// Returns the number of an event without a key.
pub(crate) fn of_seq(seq: u64) -> u64 {
    let mut hash = QuickHasher(FACTOR);
    hash.mix(seq);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_that_differ_have_numbers_that_differ() {
        let keys = (0..100_000).map(|n| of_key(&format!("Order:{n}")));
        let all: HashSet<u64> =
            keys.chain(["", "\0", "\0\0", "a", "a\0"].map(of_key)).chain((0..1000).map(of_seq)).collect();
        assert_eq!(all.len(), 101_005);
    }
}
