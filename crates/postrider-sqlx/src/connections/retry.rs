//! Trying a verb again after a deadlock, a serialisation failure or a lost connection.

use std::{future::Future, time::Duration};

use tokio::time::Instant;

/// How often a verb is tried in all.
const TRIES: u32 = 6;

/// How long to wait after the first try; doubled after each further one.
const PAUSE: Duration = Duration::from_millis(20);

/// The tries of one verb.
#[derive(Debug)]
pub(crate) struct Tries {
    until: Instant,
    left: u32,
    pause: Duration,
}

impl Tries {
    /// As many as fit into this time.
    pub(crate) fn within(limit: Duration) -> Self {
        Self { until: Instant::now() + limit, left: TRIES - 1, pause: PAUSE }
    }

    /// When the last of them ends.
    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    /// Waits before another try; false if there is none.
    pub(crate) async fn again(&mut self, error: &sqlx::Error) -> bool {
        if self.left == 0 || Instant::now() + self.pause >= self.until {
            return false;
        }
        tracing::debug!(%error, pause = ?self.pause, "the database could not do it now; trying again");
        tokio::time::sleep(self.pause).await;
        (self.left, self.pause) = (self.left - 1, self.pause * 2);
        true
    }
}

/// Runs a whole verb, and again if another try may help. A try that failed has left nothing behind, or what it left is not changed by another.
pub(crate) async fn retried<T, F>(
    limit: Duration,
    may_pass: impl Fn(&sqlx::Error) -> bool,
    verb: impl Fn(Instant) -> F,
) -> sqlx::Result<T>
where
    F: Future<Output = sqlx::Result<T>>,
{
    let mut tries = Tries::within(limit);
    loop {
        match verb(tries.until()).await {
            Err(error) if may_pass(&error) && tries.again(&error).await => {}
            done => return done,
        }
    }
}
