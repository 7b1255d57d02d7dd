//! Announce: other processes tell that something was committed. State: none; many that come at once are one wake-up. When it fails: polling delivers, as always.

use std::sync::Arc;

use postrider_core::sink::error_chain;
use tracing::debug;

use crate::engine::Shared;

/// Wakes the poller whenever another process announces something.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        match shared.store.announced().await {
            Ok(()) => shared.committed.notify_one(),
            Err(error) => {
                debug!(error = error_chain(&error), "cannot hear of other processes: polling goes on");
                tokio::time::sleep(shared.settings.poll_max).await;
            }
        }
    }
}
