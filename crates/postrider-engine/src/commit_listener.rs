//! Listens for commits of other processes and wakes the poller.
//!
//! **State:** none; many commits at once are one wake-up. **When it fails:** polling delivers.

use std::sync::Arc;

use postrider_core::sink::error_chain;
use tracing::debug;

use crate::shared::Shared;

/// Wakes the poller whenever another process reports a commit.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        match shared.store.notified().await {
            Ok(()) => shared.committed.notify_one(),
            Err(error) => {
                debug!(
                    error = error_chain(&error),
                    "listening for commits of other processes failed: polling goes on"
                );
                tokio::time::sleep(shared.settings.poll_max).await;
            }
        }
    }
}
