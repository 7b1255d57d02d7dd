//! FNV-1a: the same number for the same text in every run, which the standard library's own hash is not.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasherDefault, Hasher},
};

/// A map that gives the same answers in every run, as long as nobody walks over it.
pub(super) type FixedMap<K, V> = HashMap<K, V, BuildHasherDefault<Fnv>>;
/// The set of the same kind.
pub(super) type FixedSet<K> = HashSet<K, BuildHasherDefault<Fnv>>;

pub(super) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }

    fn write_u64(&mut self, number: u64) {
        // One step instead of eight: seqs are dense, and the multiplication spreads them well enough.
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 ^= self.0 >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The lane of a key, or of the id of an event that has none.
pub(super) fn lane_of(text: &str, lanes: u32) -> u32 {
    let mut hash = Fnv::default();
    hash.write(text.as_bytes());
    // The low bits of FNV-1a are its weak ones.
    let folded = hash.finish() ^ (hash.finish() >> 32);
    u32::try_from(folded % u64::from(lanes.max(1))).unwrap_or(0)
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
}
