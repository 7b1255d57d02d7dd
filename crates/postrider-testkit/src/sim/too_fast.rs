//! Receivers that take so much in a second and no more.

use std::{collections::BTreeMap, time::Duration};

use postrider_core::rng::Rng;
use tokio::time::Instant;

use super::destinations::Destination;

/// How much a receiver takes, and when.
#[derive(Debug, Clone)]
pub(super) struct Limit {
    /// From the beginning of the run.
    pub(super) from: Duration,
    pub(super) to: Duration,
    /// Requests a second.
    pub(super) rate: f64,
    /// Most requests at once.
    burst: f64,
    /// How long it asks for; none for as long as it takes until there is room.
    asks_for: Option<Duration>,
    /// The only destination that is limited; none for the receiver as a whole.
    pub(super) destination: Option<Destination>,
}

impl Limit {
    pub(super) fn draw(rng: &mut Rng, destinations: u64, lasts_ms: u64) -> Self {
        let from = Duration::from_millis(rng.below(500));
        let rate = (2 + rng.below(40)) as f64;
        Self {
            from,
            to: from + Duration::from_millis(lasts_ms),
            rate,
            burst: (1 + rng.below(rate as u64)) as f64,
            asks_for: rng.chance(0.5).then(|| Duration::from_millis(100 + rng.below(1900))),
            destination: (destinations > 1 && rng.chance(0.5)).then(|| rng.below(destinations)),
        }
    }

    pub(super) fn holds_at(&self, since_began: Duration, destination: Destination) -> bool {
        (self.from..self.to).contains(&since_began) && self.destination.is_none_or(|only| only == destination)
    }
}

/// The tokens that are left, for each destination that is limited by itself.
#[derive(Debug, Default)]
pub(super) struct Buckets(BTreeMap<Option<Destination>, (f64, Instant)>);

impl Buckets {
    /// Takes a token. If there is none, how long to wait for one.
    pub(super) fn take(&mut self, limit: &Limit, now: Instant) -> Result<(), Duration> {
        let (tokens, at) = self.0.entry(limit.destination).or_insert((limit.burst, now));
        *tokens = (*tokens + limit.rate * (now - *at).as_secs_f64()).min(limit.burst);
        *at = now;
        if *tokens >= 1.0 {
            *tokens -= 1.0;
            return Ok(());
        }
        let until = Duration::from_secs_f64((1.0 - *tokens) / limit.rate);
        Err(limit.asks_for.unwrap_or(until.max(Duration::from_millis(1))))
    }
}
