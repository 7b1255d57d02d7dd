//! Trying a verb again when somebody else holds the lock.

use std::{future::Future, time::Duration};

use super::error::is_busy;

/// How often a verb is tried in all. SQLite itself has waited for the busy timeout each time.
pub(super) const VERB_TRIES: u32 = 4;

/// How often a file is opened in all: SQLite does not wait for a lock when it changes to WAL mode, so it is asked again.
pub(super) const OPEN_TRIES: u32 = 8;

/// How long to wait after the first try; doubled after each further one.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs a whole verb, and again if it was refused because of a lock. A verb is one transaction, so a try that failed
/// has left nothing behind.
pub(super) async fn patiently<T, F>(tries: u32, verb: impl Fn() -> F) -> sqlx::Result<T>
where
    F: Future<Output = sqlx::Result<T>>,
{
    let mut pause = PAUSE;
    for _ in 1..tries {
        match verb().await {
            Err(error) if is_busy(&error) => {
                tracing::debug!(%error, ?pause, "the database is locked; trying again");
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            other => return other,
        }
    }
    verb().await
}
