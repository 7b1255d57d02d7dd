//! What follows when the database went back in time: a failover lost its last transactions, or a backup was restored.

use postrider_core::{Error, StoreErrorKind, sink::error_chain};
use tracing::error;

use crate::{
    engine::Shared,
    lock,
    mutations::{self, Mutation},
};

/// Heeds an error that says so: everything in memory is about a future that is lost. Lanes are taken anew, and what is in the table is
/// claimed from the beginning.
pub(crate) fn handle(shared: &Shared, error: &Error) {
    let Error::Store(told) = error else { return };
    if told.kind() != StoreErrorKind::WentBack || mutations::active(Mutation::KeepsPositionsAfterGoingBack) {
        return;
    }
    error!(
        error = error_chain(error),
        instance = %shared.settings.instance,
        "the database went back in time: all that was in memory is forgotten, lanes are taken anew, and what is in the table is delivered"
    );
    lock(&shared.buffer).rewind();
    shared.hints.offer(Vec::new());
    shared.metrics.went_back();
    shared.metrics.unsettled(0);
    shared.lanes.notify_one();
    shared.outcomes.notify_one();
    shared.progress.notify_waiters();
}
