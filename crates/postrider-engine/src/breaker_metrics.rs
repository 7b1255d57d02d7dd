//! Reports receivers that go down or come back to the metrics: each change once, and in order.

use std::sync::Mutex;

use crate::{lock, routes::ReceiverId, shared::Shared, slots::ReceiverSlot};

/// Which receivers were reported as down, by their slots.
#[derive(Debug)]
pub(crate) struct BreakerMetrics(Mutex<Vec<bool>>);

impl BreakerMetrics {
    pub(crate) fn new(receivers: usize) -> Self {
        Self(Mutex::new(vec![false; receivers + 1]))
    }

    /// Reports the breaker of a receiver, if it changed since the last report.
    ///
    /// Workers find out concurrently. Each one holds the lock while it reads the current state, so the last
    /// report is never an old one.
    pub(crate) fn report(&self, shared: &Shared, receiver: Option<ReceiverId>) {
        let mut reported = lock(&self.0);
        let open = !lock(&shared.buffer).is_up(receiver);
        let Some(before) = reported.get_mut(ReceiverSlot::of(receiver).index()) else { return };
        if std::mem::replace(before, open) == open {
            return;
        }
        shared.metrics.breaker(shared.routes.names(receiver), open);
    }

    /// Reports all receivers, after memory was reset.
    pub(crate) fn report_all(&self, shared: &Shared) {
        let receivers = (0..shared.routes.receivers()).map(Some);
        std::iter::once(None).chain(receivers).for_each(|receiver| self.report(shared, receiver));
    }
}
