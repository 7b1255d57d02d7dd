//! Makes abandoned claims due again, for stores whose claims mark events.
//!
//! It has its own timer: a full queue stops claims, and must not stop this.

use std::{sync::Arc, time::Duration};

use postrider_core::{sink::error_chain, store::Recovery};
use tracing::warn;

use crate::{lock, shared::Shared, store_timeout::bounded};

/// How long to wait for a lane.
const LANE_WAIT: Duration = Duration::from_secs(1);

pub(crate) async fn run(shared: Arc<Shared>) {
    let Some(Recovery { every, after }) = shared.store.recovery() else { return };
    loop {
        // An engine on standby cannot tell what is abandoned.
        let owns = lock(&shared.buffer).lanes_owned() > 0;
        if owns {
            round(&shared, after).await;
        }
        tokio::time::sleep(if owns { every } else { every.min(LANE_WAIT) }).await;
    }
}

/// Recovers until nothing is left.
async fn round(shared: &Shared, after: Duration) {
    loop {
        match bounded(shared, shared.store.recover(after)).await {
            Ok(0) => return,
            Ok(events) => {
                shared.metrics.recovered(events);
                shared.wake.notify_one();
                // Deliveries go first: a waiting settle gets its turn between batches.
                tokio::task::yield_now().await;
            }
            Err(error) => {
                warn!(error = error_chain(&error), "recovery of abandoned claims failed: retrying");
                return;
            }
        }
    }
}
