//! How tests wait. In memory time is paused, so that nothing here takes any; on SQLite it is the host's.

use std::time::Duration;

use tokio::time::Instant;

/// No test waits longer than this for anything; in paused time it costs nothing.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Looks until the condition holds; time passes meanwhile.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition().await {
        assert!(Instant::now() < deadline, "it did not come about within {TIMEOUT:?}: {what}");
        pass(ms(2)).await;
    }
}

/// Lets time pass, and with it everything that is due meanwhile. In front of a check that something did *not* happen,
/// which no signal can tell of; never in front of one that it did.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Lets everything that can run without time passing run. For paused time only.
pub(crate) async fn settle_down() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
