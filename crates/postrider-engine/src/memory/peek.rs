//! A peek that waits as a database would: it looks again and again, and answers when the number is another one.

use postrider_core::store::{PeekWait, Seq};
use tokio::time::{Instant, sleep_until};

/// The number as `last` tells it, once it is not the known one, or when the time is over.
pub(super) async fn moved(wait: PeekWait, last: impl Fn() -> Seq) -> Seq {
    let mut now = Instant::now();
    let ends = now + wait.longest;
    loop {
        now += wait.every;
        sleep_until(now).await;
        let last = last();
        if last != wait.known || now >= ends {
            return last;
        }
    }
}
