//! A small seedable source of random numbers for jitter, nonces and ids.
//!
//! Not for secrets. It exists so that a run of the simulator is decided by its seed alone.

/// SplitMix64: eight bytes of state, passes BigCrush, and the same numbers on every platform.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The sequence that belongs to `seed`.
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// A sequence that begins at a seed from the operating system.
    pub fn from_entropy() -> Self {
        Self(entropy())
    }

    /// The next number, uniform over all of `u64`.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0.0..1.0`.
    pub fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number below `bound`, or 0 where `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64 }
    }

    /// True with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.next_f64() < probability
    }

    /// A sequence of its own, so that one consumer's draws do not shift another's.
    pub fn fork(&mut self) -> Self {
        Self(self.next_u64())
    }
}

/// Sixty-four random bits from the operating system.
///
/// Where the system has none to give (it does not happen on the platforms that Rust supports well), the clock and
/// the address space's own randomness stand in: these numbers spread load, they guard nothing.
pub(crate) fn entropy() -> u64 {
    getrandom::u64().unwrap_or_else(|_| {
        let clock = crate::Timestamp::now().as_micros() as u64;
        let place = std::ptr::from_ref(&clock) as usize as u64;
        clock ^ place.rotate_left(32) ^ u64::from(std::process::id())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (mut a, mut b) = (Rng::seeded(7), Rng::seeded(7));
        assert!((0..1000).all(|_| a.next_u64() == b.next_u64()));
        assert_ne!(Rng::seeded(7).next_u64(), Rng::seeded(8).next_u64());
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut rng = Rng::seeded(1);
        assert!((0..10_000).all(|_| rng.below(10) < 10 && (0.0..1.0).contains(&rng.next_f64())));
        assert_eq!(rng.below(0), 0);
    }
}
