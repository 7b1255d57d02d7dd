//! When processes join and leave in a trial that is about that.

use std::time::Duration;

use postrider_core::rng::Rng;

/// The one change in who is running. The first instance crashes or stops, and starts again; or the others join it late.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lifecycle {
    pub(super) change: Change,
    /// From the beginning of the run.
    pub(super) at: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The first instance crashes.
    Crash,
    /// The first instance shuts down.
    Stop,
    /// All instances but the first start late.
    Join,
}

impl Lifecycle {
    pub(super) fn draw(change: Change, rng: &mut Rng) -> Self {
        Self { change, at: Duration::from_millis(500 + rng.below(1000)) }
    }

    /// When an instance starts.
    pub(super) fn start(&self, instance: usize) -> Duration {
        if self.change == Change::Join && instance > 0 { self.at } else { Duration::ZERO }
    }

    /// How and when the first life of an instance ends, if it does.
    pub(super) fn end(&self, instance: usize) -> Option<Self> {
        (self.change != Change::Join && instance == 0).then_some(*self)
    }
}
