//! What the metrics are told of receivers that are down: the truth, in its order, and each change of it once.

use std::sync::Mutex;

use crate::{engine::Shared, lock, routes::ReceiverId, slots::ReceiverSlot};

/// Which receivers the metrics were told to be down. The first is for events without a route; a receiver's is one more than its number.
#[derive(Debug)]
pub(crate) struct BreakerMetrics(Mutex<Vec<bool>>);

impl BreakerMetrics {
    pub(crate) fn new(receivers: usize) -> Self {
        Self(Mutex::new(vec![false; receivers + 1]))
    }

    /// Tells whether the breaker of this receiver is open, if that is not what was told before.
    ///
    /// Workers find out beside each other. Whoever tells looks at what is true now and keeps the others waiting meanwhile, or the last word
    /// could be an old one.
    pub(crate) fn tell(&self, shared: &Shared, receiver: Option<ReceiverId>) {
        let mut told = lock(&self.0);
        let open = !lock(&shared.buffer).is_up(receiver);
        let Some(before) = told.get_mut(ReceiverSlot::of(receiver).index()) else { return };
        if std::mem::replace(before, open) == open {
            return;
        }
        shared.metrics.breaker(shared.routes.names(receiver), open);
    }

    /// The same for all receivers: what is in memory was forgotten, and with it who is down.
    pub(crate) fn report_all(&self, shared: &Shared) {
        let receivers = (0..shared.routes.receivers()).map(Some);
        std::iter::once(None).chain(receivers).for_each(|receiver| self.tell(shared, receiver));
    }
}
