//! Deletes delivered events when their retention ends.

use std::sync::Arc;

use postrider_core::sink::error_chain;
use tracing::warn;

use crate::{lock, shared::Shared, store_timeout::bounded_purge};

/// Batches grow up to this many times the configured size while they are full. They grow no further, because
/// business writers wait for each of them.
const GROWTH_MAX: usize = 8;

pub(crate) async fn run(shared: Arc<Shared>) {
    // Even without retention there may be events that were delivered under a longer one. A random start keeps
    // instances that started together from purging together.
    let first = shared.settings.purge_every.mul_f64(lock(&shared.rng).next_f64());
    tokio::time::sleep(first).await;
    loop {
        if lock(&shared.buffer).lanes_owned() > 0 {
            round(&shared).await;
        }
        tokio::time::sleep(shared.settings.purge_every).await;
    }
}

/// Deletes until a batch comes back short.
async fn round(shared: &Shared) {
    let mut batch = shared.settings.purge_batch;
    loop {
        match bounded_purge(shared.store.purge(shared.settings.retention, batch)).await {
            Ok(rows) => {
                shared.metrics.purged(rows);
                if rows < batch as u64 {
                    return;
                }
                batch = (batch * 2).min(shared.settings.purge_batch * GROWTH_MAX);
                // Deliveries go first: a waiting settle gets its turn between batches.
                tokio::task::yield_now().await;
            }
            Err(error) => {
                warn!(error = error_chain(&error), "purge failed: retrying");
                return;
            }
        }
    }
}
