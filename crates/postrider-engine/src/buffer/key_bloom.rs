//! Remembers which keys were skipped.

use std::ops::RangeInclusive;

/// A Bloom filter of 64 Mbit with four bits a key. One key in a hundred thousand is a false positive with a
/// million keys, one in twenty-five with ten million.
#[derive(Debug)]
pub(super) struct KeyBloom(Box<[u64]>);

impl KeyBloom {
    const WORDS: usize = 1 << 20;
    const BITS: RangeInclusive<u32> = 1..=4;

    pub(super) fn new() -> Self {
        Self(vec![0; Self::WORDS].into_boxed_slice())
    }

    fn places(hash: u64) -> impl Iterator<Item = (usize, u64)> {
        let step = hash.rotate_left(32) | 1;
        Self::BITS.map(move |n| {
            let bit = hash.wrapping_add(step.wrapping_mul(u64::from(n)));
            ((bit >> 6) as usize % Self::WORDS, 1 << (bit & 63))
        })
    }

    pub(super) fn insert(&mut self, hash: u64) {
        for (word, bit) in Self::places(hash) {
            self.0.get_mut(word).into_iter().for_each(|word| *word |= bit);
        }
    }

    pub(super) fn has(&self, hash: u64) -> bool {
        Self::places(hash).all(|(word, bit)| self.0.get(word).is_some_and(|word| word & bit != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash;

    #[test]
    fn the_filter_tells_a_million_keys_apart() {
        let mut filter = KeyBloom::new();
        (0..1_000_000).for_each(|n| filter.insert(hash::of_seq(n)));
        assert!((0..1_000_000).all(|n| filter.has(hash::of_seq(n))));
        let wrong = (1_000_000..1_100_000).filter(|n| filter.has(hash::of_seq(*n))).count();
        assert!(wrong < 20, "{wrong}");
    }
}
