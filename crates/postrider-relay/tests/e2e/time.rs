//! Waiting for what is to come: asked again and again, with a deadline.

use std::time::{Duration, Instant};

/// Longer than anything here takes, on a busy machine too.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

const BETWEEN: Duration = Duration::from_millis(20);

/// Asks until the answer is something.
pub(crate) async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "it never came to this: {what}");
        tokio::time::sleep(BETWEEN).await;
    }
}

/// Asks until it is so.
pub(crate) async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    eventually(what, async || is().await.then_some(())).await;
}
