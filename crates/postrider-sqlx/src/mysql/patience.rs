//! Trying a verb again after a deadlock, a lock that was not to be had, or a lost connection.

use std::{future::Future, time::Duration};

use super::error::is_transient;

/// How often a verb is tried in all.
pub(super) const VERB_TRIES: u32 = 4;

/// How long to wait after the first try; doubled after each further one.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs a whole verb, and again if another try may help. A verb is one transaction that can be repeated, so it does not
/// matter whether a connection was lost before its commit or after.
pub(super) async fn patiently<T, F>(tries: u32, verb: impl Fn() -> F) -> sqlx::Result<T>
where
    F: Future<Output = sqlx::Result<T>>,
{
    let mut pause = PAUSE;
    for _ in 1..tries {
        match verb().await {
            Err(error) if is_transient(&error) => {
                tracing::debug!(%error, ?pause, "the database could not do it now; trying again");
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            other => return other,
        }
    }
    verb().await
}
