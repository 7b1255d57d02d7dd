//! Random choices that a seed decides.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// For one part of a run. Each part has its own, so that what one of them draws does not change what another does.
    pub(crate) fn of_part(seed: u64, part: &str) -> Self {
        let hash = part.bytes().fold(seed ^ 0x517c_c1b7, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(hash)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `end`; zero if that is zero.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end.max(1)).unwrap_or(1)).unwrap_or(0)
    }

    /// At least `from`, at most `to`.
    pub(crate) fn between(&mut self, from: usize, to: usize) -> usize {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// True once in `n` times.
    pub(crate) fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn seconds(&mut self, from: usize, to: usize) -> Duration {
        Duration::from_millis(u64::try_from(self.between(from * 1000, to * 1000)).unwrap_or(0))
    }

    /// One of several; the first if there is no other.
    pub(crate) fn pick<T: Copy, const N: usize>(&mut self, from: [T; N]) -> T {
        const { assert!(N > 0) };
        let [first, ..] = from.as_slice() else { unreachable!("it is not empty") };
        from.get(self.below(N)).copied().unwrap_or(*first)
    }
}

/// A seed that nobody chose. Small enough to type.
pub(crate) fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish() % 1_000_000
}
