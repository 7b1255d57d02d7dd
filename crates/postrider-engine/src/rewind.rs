//! Handles a database that went back in time: a failover lost its last transactions, or a backup was restored.

use postrider_core::{Error, StoreErrorKind, sink::error_chain};
use tracing::error;

use crate::{
    lock,
    mutations::{self, Mutation},
    shared::Shared,
};

/// Forgets everything in memory if the error says so. Lanes are taken anew, and the table is claimed from the
/// start.
pub(crate) fn handle(shared: &Shared, error: &Error) {
    let Error::Store(store) = error else { return };
    if store.kind() != StoreErrorKind::WentBack || mutations::active(Mutation::PositionsSurviveRewind) {
        return;
    }
    error!(
        error = error_chain(error),
        instance = %shared.settings.instance,
        "the database went back in time: memory is cleared, lanes are taken anew, and the table is delivered from the start"
    );
    lock(&shared.buffer).rewind();
    shared.hints.offer(Vec::new());
    shared.metrics.went_back();
    shared.metrics.unsettled(0);
    shared.lanes.notify_one();
    shared.outcomes.notify_one();
    shared.progress.notify_waiters();
}
