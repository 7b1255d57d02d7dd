//! Waiting for what happens in other tasks.

use std::time::Duration;

/// Comes back once it holds, and fails if it does not within a minute.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), waiting).await.is_ok(), "never: {what}");
}
