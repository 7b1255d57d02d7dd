//! Peeks: finding what nobody told of, for a fraction of what a claim costs.
//!
//! A plain `INSERT`, or another process, wakes nobody. So while the poller rests, the store is asked every few milliseconds for the last
//! number that was drawn for an event, and a claim follows when it moved past what is known here. A number is drawn at the `INSERT` and
//! its event is seen from the `COMMIT` on, which may never come: the claims that follow have growing pauses, as polls have.
//!
//! **State:** when to peek next; what was seen is in the buffer. **When it fails:** polling delivers, as always.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::debug;

use crate::{Settings, buffer::Peeked, engine::Shared, lock};

/// While numbers are drawn, and for so long after the last one, peeks are as frequent as is allowed. Then they are rarer by this
/// factor: an idle outbox shall take next to nothing, and the first event after a silence can wait some milliseconds longer.
const LIVELY_FOR: Duration = Duration::from_secs(5);
const IDLE_FACTOR: u32 = 4;

/// A peek that takes longer is given up: the poller waits for it.
const PEEK_MAX: Duration = Duration::from_secs(1);

/// When to ask a store again that cannot peek, or may not.
const CANNOT_FOR: Duration = Duration::from_secs(60);

/// When to peek.
pub(crate) struct Watch {
    /// As it was set; zero for never.
    setting: Duration,
    /// As it is worth on this store.
    every: Duration,
    next: Instant,
    moved_at: Instant,
}

impl Watch {
    pub(crate) fn new(settings: &Settings, now: Instant) -> Self {
        Self { setting: settings.peek, every: settings.peek, next: now, moved_at: now }
    }

    /// The poller begins to rest: a claim has just told what there is.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.next = self.next.max(now + self.pause(now));
    }

    /// When to peek; none for never.
    pub(crate) fn next(&self) -> Option<Instant> {
        (!self.setting.is_zero()).then_some(self.next)
    }

    /// Peeks, and says whether something may be there that no claim has brought.
    pub(crate) async fn peek(&mut self, shared: &Shared) -> bool {
        let peeked = timeout(PEEK_MAX, shared.store.peek()).await;
        let now = Instant::now();
        match peeked {
            Ok(Ok(Some(peek))) => {
                self.every = self.setting.max(peek.every);
                let peeked = lock(&shared.buffer).peeked(peek.last);
                if peeked != Peeked::Still {
                    self.moved_at = now;
                }
                self.next = now + self.pause(now);
                return peeked == Peeked::News;
            }
            Ok(Ok(None)) => {
                lock(&shared.buffer).cannot_peek();
                self.next = now + CANNOT_FOR;
            }
            Ok(Err(error)) => self.failed(shared, now, &error),
            Err(late) => self.failed(shared, now, &late),
        }
        false
    }

    fn failed(&mut self, shared: &Shared, now: Instant, error: &dyn std::fmt::Display) {
        debug!(%error, "cannot peek: polling goes on");
        lock(&shared.buffer).cannot_peek();
        self.next = now + shared.settings.poll_max;
    }

    fn pause(&self, now: Instant) -> Duration {
        if now - self.moved_at < LIVELY_FOR { self.every } else { self.every * IDLE_FACTOR }
    }
}
