//! How long a failed event waits before it is tried again.

use std::time::Duration;

use crate::rng::Rng;

/// Decides how long a failed event waits.
pub trait RetryPolicy: Send + Sync + 'static {
    /// The delay after the attempt with this number failed (the first is 1), for this reason.
    ///
    /// `rng` is the engine's own source of randomness, so that a simulated run repeats.
    fn delay(&self, attempt: u32, error: &str, rng: &mut Rng) -> Duration;
}

impl<F> RetryPolicy for F
where
    F: Fn(u32, &str) -> Duration + Send + Sync + 'static,
{
    fn delay(&self, attempt: u32, error: &str, _rng: &mut Rng) -> Duration {
        self(attempt, error)
    }
}

/// `min(max, base * multiplier^(attempt - 1))`, times a random factor of 0.5 to 1.5.
///
/// ```
/// use postrider_core::{Backoff, RetryPolicy, rng::Rng};
/// use std::time::Duration;
///
/// let spring = Backoff::new(Duration::from_secs(10)).multiplier(3.0).without_cap().without_jitter();
/// let delays: Vec<_> = (1..=4).map(|n| spring.delay(n, "", &mut Rng::seeded(0)).as_secs()).collect();
/// assert_eq!(delays, [10, 30, 90, 270]);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Backoff {
    base: Duration,
    multiplier: f64,
    max: Duration,
    jitter: bool,
}

impl Default for Backoff {
    /// Base 200 ms, doubled each time, at most 60 s, with jitter.
    fn default() -> Self {
        Self::new(Duration::from_millis(200))
    }
}

impl Backoff {
    /// A backoff that begins at `base`, doubles, and ends at 60 s, with jitter.
    pub fn new(base: Duration) -> Self {
        Self { base, multiplier: 2.0, max: Duration::from_secs(60), jitter: true }
    }

    /// The same delay each time, without jitter.
    pub fn fixed(delay: Duration) -> Self {
        Self { base: delay, multiplier: 1.0, max: Duration::MAX, jitter: false }
    }

    /// What each delay is multiplied by to give the next. Below 1, or not a number, is taken as 1.
    #[must_use]
    pub fn multiplier(mut self, multiplier: f64) -> Self {
        self.multiplier = if multiplier >= 1.0 { multiplier } else { 1.0 };
        self
    }

    /// The longest delay, before jitter.
    #[must_use]
    pub fn max(mut self, max: Duration) -> Self {
        self.max = max;
        self
    }

    /// No longest delay.
    #[must_use]
    pub fn without_cap(self) -> Self {
        self.max(Duration::MAX)
    }

    /// No random factor.
    #[must_use]
    pub fn without_jitter(mut self) -> Self {
        self.jitter = false;
        self
    }

    /// What it is made of, for those who show it or change a part of it.
    ///
    /// ```
    /// use postrider_core::Backoff;
    /// let terms = Backoff::default().without_cap().terms();
    /// assert_eq!((terms.base.as_millis(), terms.multiplier, terms.max, terms.jitter), (200, 2.0, None, true));
    /// ```
    pub fn terms(&self) -> BackoffTerms {
        let max = Some(self.max).filter(|max| *max < Duration::MAX);
        BackoffTerms { base: self.base, multiplier: self.multiplier, max, jitter: self.jitter }
    }
}

/// What a [`Backoff`] is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct BackoffTerms {
    /// The first delay.
    pub base: Duration,
    /// What each delay is multiplied by to give the next.
    pub multiplier: f64,
    /// The longest delay, before jitter, if there is one.
    pub max: Option<Duration>,
    /// Whether there is a random factor.
    pub jitter: bool,
}

impl RetryPolicy for Backoff {
    fn delay(&self, attempt: u32, _error: &str, rng: &mut Rng) -> Duration {
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let raw = self.base.as_secs_f64() * self.multiplier.powi(exponent);
        let capped = raw.min(self.max.as_secs_f64());
        let factor = if self.jitter { 0.5 + rng.next_f64() } else { 1.0 };
        Duration::try_from_secs_f64(capped * factor).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert, proptest};

    use super::*;

    proptest! {
        // S3-13.2
        #[test]
        fn every_delay_lies_between_half_and_one_and_a_half_of_the_capped_backoff(
            attempt in 1u32..=1000, seed: u64,
        ) {
            let delay = Backoff::default().delay(attempt, "", &mut Rng::seeded(seed)).as_secs_f64();
            let capped = (0.2 * 2f64.powi(attempt as i32 - 1)).min(60.0);
            prop_assert!(delay >= capped * 0.5 - 1e-6 && delay <= capped * 1.5 + 1e-6);
        }

        #[test]
        fn no_attempt_number_or_base_overflows(attempt: u32, base_s: u64) {
            let policy = Backoff::new(Duration::from_secs(base_s)).multiplier(10.0).without_cap();
            let _ = policy.delay(attempt, "", &mut Rng::seeded(1));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_delays() {
        let delays = |seed| {
            let mut rng = Rng::seeded(seed);
            (1..20).map(|n| Backoff::default().delay(n, "", &mut rng)).collect::<Vec<_>>()
        };
        assert_eq!(delays(3), delays(3));
        assert_ne!(delays(3), delays(4));
    }

    #[test]
    fn a_fixed_backoff_gives_equal_gaps() {
        let policy = Backoff::fixed(Duration::from_secs(3600));
        assert!((1..5).all(|n| policy.delay(n, "", &mut Rng::seeded(9)) == Duration::from_secs(3600)));
    }

    #[test]
    fn a_closure_is_a_policy() {
        // S3-13.1
        let policy = |attempt: u32, error: &str| Duration::from_secs(u64::from(attempt) + error.len() as u64);
        assert_eq!(RetryPolicy::delay(&policy, 2, "abc", &mut Rng::seeded(0)), Duration::from_secs(5));
    }
}
