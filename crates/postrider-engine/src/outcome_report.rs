//! Turns outcomes into settlements, and reports dead events and receivers that are up again.

use postrider_core::{
    Source,
    event::limits::clean_error,
    store::{Change, Settlement},
};
use tracing::{error, info};

use crate::{buffer::Item, lock, routes::ReceiverId, shared::Shared};

/// Reports that a receiver is up again.
pub(crate) fn is_back(shared: &Shared, receiver: Option<ReceiverId>) {
    info!(sink = shared.routes.describe(receiver), "sink available again");
    shared.breaker_metrics.report(shared, receiver);
    shared.work.notify_one();
    shared.wake.notify_one();
}

/// Returns what is settled for an event.
pub(crate) fn settlement(
    shared: &Shared,
    receiver: Option<ReceiverId>,
    item: Item,
    change: Change,
) -> Settlement {
    let change = clean(change);
    report(shared, receiver, &item, &change);
    let event_id = item.id().clone();
    Settlement { lane: item.lease.lane, seq: item.seq, event_id, key: item.key, held: item.held, change }
}

/// Cuts and cleans error texts before they are kept and stored.
fn clean(mut change: Change) -> Change {
    match &mut change {
        Change::Wait { error: Some(error), .. } | Change::Dead { error, .. } => *error = clean_error(error),
        _ => {}
    }
    change
}

/// Logs a dead event, here where its ID and reason are known.
fn report(shared: &Shared, receiver: Option<ReceiverId>, item: &Item, change: &Change) {
    if let Change::Dead { attempts, error, block } = change {
        lock(&shared.failing_events).forget(item.id());
        let (hot, sink) = (item.source == Source::Hot, shared.routes.describe(receiver));
        let event_type = match &item.content {
            Ok(event) => event.event_type(),
            Err(undecodable) => &undecodable.event_type,
        };
        let key = item.key.as_deref().unwrap_or_default();
        error!(event_id = %item.id(), event_type, key, sink, attempts, reason = %error, blocks_its_key = block, hot, "event is dead");
    }
}
