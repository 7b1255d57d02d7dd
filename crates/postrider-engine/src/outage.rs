//! What the metrics are told of receivers that are down: the truth, in its order, and each change of it once.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
};

use tracing::error;

use crate::{catch::message, engine::Shared, lock, routes::ReceiverId};

/// Which receivers the metrics were told to be down. The first is for events without a route; a receiver's is one more than its number.
#[derive(Debug)]
pub(crate) struct Outages(Mutex<Vec<bool>>);

impl Outages {
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
        let Some(before) = told.get_mut(receiver.map_or(0, |id| id + 1)) else { return };
        if std::mem::replace(before, open) == open {
            return;
        }
        // A worker tells of it also while it ends by a panic, and a second panic then would end the process.
        let names = shared.routes.names(receiver);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| shared.metrics.breaker(names, open))) {
            error!(panic = message(&*panic), open, "the metrics panicked when they were told of a breaker");
        }
    }

    /// The same for all receivers: what is in memory was forgotten, and with it who is down.
    pub(crate) fn tell_all(&self, shared: &Shared) {
        let receivers = (0..shared.routes.receivers()).map(Some);
        std::iter::once(None).chain(receivers).for_each(|receiver| self.tell(shared, receiver));
    }
}
