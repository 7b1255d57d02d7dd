//! How the processes wait: real time passes here, and nothing is waited for without a deadline.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use postrider_testkit::conformance::Failure;

/// Longest that a fault may take to show its effect. The machine may be busy, and leases are a matter of seconds.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// How soon to look again, at first and at last.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// Looks until there is something, and gives it.
pub(crate) async fn until<T>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let (started, mut pause) = (Instant::now(), LOOK_AGAIN.0);
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if started.elapsed() > within {
            return Err(format!("it did not come about within {within:?}: {what}").into());
        }
        pass(pause).await;
        pause = (pause * 2).min(LOOK_AGAIN.1);
    }
}

/// Lets time pass: how long a receiver takes, how long an outage lasts, the pace of writers. Never in front of a check.
pub(crate) fn pass(time: Duration) -> impl Future<Output = ()> {
    tokio::time::sleep(time)
}
