//! Owns the pace of one route: the size of its batches and the time between them.

use std::time::Duration;

use tokio::time::Instant;

use crate::RouteSettings;

/// The pace of one route.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoutePace {
    /// Most events in one batch.
    pub(super) batch_max: usize,
    least: Duration,
    not_before: Option<Instant>,
    /// Ready events find no room beside other destinations, until then or until a send ends.
    saturated_until: Option<Instant>,
}

impl RoutePace {
    pub(super) fn of(settings: Option<&RouteSettings>) -> Self {
        let batch_max = settings.and_then(|settings| settings.batch_max).unwrap_or(usize::MAX);
        let least = settings.and_then(|settings| settings.pace).unwrap_or_default();
        Self { batch_max, least, not_before: None, saturated_until: None }
    }

    pub(super) fn lets_through(&self, now: Instant) -> bool {
        self.opens_at(now).is_none()
    }

    /// Returns when the next batch may be sent, if not now.
    pub(super) fn opens_at(&self, now: Instant) -> Option<Instant> {
        self.not_before.max(self.saturated_until).filter(|at| *at > now)
    }

    pub(super) fn is_saturated(&self) -> bool {
        self.saturated_until.is_some()
    }

    pub(super) fn set_saturated(&mut self, until: Option<Instant>) {
        self.saturated_until = until;
    }

    /// Records that a batch is about to be sent.
    pub(super) fn sending(&mut self, now: Instant) {
        if !self.least.is_zero() {
            self.not_before = Some(now + self.least);
        }
    }
}
