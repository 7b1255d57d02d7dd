//! Hashes that are the same in every run, which the standard library's own is not.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// A map that gives the same answers in every run, as long as nobody walks over it.
pub(super) type FixedMap<K, V> = HashMap<K, V, BuildHasherDefault<Mixed>>;

/// Eight bytes a step, for maps: both halves of a product are folded into each other, so that all bits of the text reach
/// all bits of the hash.
#[derive(Default)]
pub(super) struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, mut bytes: &[u8]) {
        while let Some((chunk, rest)) = bytes.split_first_chunk() {
            self.write_u64(u64::from_le_bytes(*chunk));
            bytes = rest;
        }
        if !bytes.is_empty() {
            let rest = bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
            self.write_u64(rest | (bytes.len() as u64) << 56);
        }
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number ^ 0x9E37_79B9_7F4A_7C15) * 0xD6E8_FEB8_6659_FD93_u128;
        self.0 = (product ^ (product >> 64)) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// What a text hashes to.
pub(super) fn hash_of(text: &str) -> u64 {
    let mut hash = Mixed::default();
    hash.write(text.as_bytes());
    hash.finish()
}

/// The lane of a key, or of the id of an event that has none.
pub(super) fn lane_of(text: &str, lanes: u32) -> u32 {
    u32::try_from(hash_of(text) % u64::from(lanes.max(1))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_spread_over_all_lanes_and_always_fall_into_the_same() {
        let mut counts = [0u32; 8];
        for n in 0..8000 {
            let key = format!("Order:{n}");
            assert_eq!(lane_of(&key, 8), lane_of(&key, 8));
            counts[lane_of(&key, 8) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    #[test]
    fn texts_that_differ_a_little_have_other_hashes() {
        let texts =
            ["", "a", "b", "a\0", "\0", "abcdefgh", "abcdefgh\0", "abcdefghi", "01K0000000000000000000001Z"];
        let hashes: std::collections::HashSet<u64> = texts.iter().map(|text| hash_of(text)).collect();
        assert_eq!(hashes.len(), texts.len());
    }
}
