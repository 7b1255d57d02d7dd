//! Peeks: finds events that nobody reported, at a fraction of a claim's cost.
//!
//! A plain `INSERT`, or another process, wakes nobody. So while the poller rests, the store is asked every few
//! milliseconds for the last number that was drawn for an event. If it moved past what is known here, a claim
//! follows. A number is drawn at the `INSERT` and its event becomes visible at the `COMMIT`, which may never
//! come; so the claims that follow have growing pauses, as polls have. A database that can wait watches the
//! number itself and answers when it moves, because the round trips cost most.
//!
//! **State:** when to peek next, and the running peek; the results are in the buffer. **When it fails:**
//! polling delivers.

use std::{sync::Arc, time::Duration};

use postrider_core::{
    BoxFuture, Result,
    sink::error_chain,
    store::{Peek, PeekWait},
};
use tokio::time::{Instant, error::Elapsed, timeout};
use tracing::debug;

use crate::{Settings, buffer::PeekResult, lock, shared::Shared};

/// Peeks are as frequent as allowed while numbers are drawn, and for this long after the last one. Then they
/// are rarer by this factor: an idle outbox costs next to nothing, and the first event after a silence may wait
/// some milliseconds longer.
const LIVELY_FOR: Duration = Duration::from_secs(5);
const IDLE_FACTOR: u32 = 4;

/// Time limit of a peek, without the time that the database was asked to wait.
const PEEK_MAX: Duration = Duration::from_secs(1);

/// Longest wait inside the database. A waiting statement holds a snapshot, and vacuum keeps what that may see.
const WAIT_MAX: Duration = Duration::from_millis(200);

/// When a store that cannot peek, or may not, is asked again.
const CANNOT_FOR: Duration = Duration::from_secs(60);

/// The answer of a peek, if it came in time.
type Answer = Result<Result<Option<Peek>>, Elapsed>;

/// When to peek, and the running peek.
pub(crate) struct PeekSchedule {
    /// The setting; zero for never.
    setting: Duration,
    /// The interval that suits this store.
    every: Duration,
    /// Whether the database waits by itself.
    waits: bool,
    next: Instant,
    moved_at: Instant,
    /// It goes on while the poller does something else: a connection with an abandoned query is useless.
    under_way: Option<BoxFuture<'static, Answer>>,
}

impl PeekSchedule {
    pub(crate) fn new(settings: &Settings, now: Instant) -> Self {
        let setting = settings.peek;
        Self { setting, every: setting, waits: false, next: now, moved_at: now, under_way: None }
    }

    /// Records that the poller begins to rest: a claim has just shown what there is.
    pub(crate) fn begin(&mut self, now: Instant) {
        if !self.waits {
            self.next = self.next.max(now + self.pause(now));
        }
    }

    /// Whether peeks are enabled.
    pub(crate) fn is_on(&self) -> bool {
        !self.setting.is_zero()
    }

    /// Peeks when it is time. Returns whether there may be an event that no claim has brought. It is safe to
    /// stop waiting: the next call goes on with the same peek.
    pub(crate) async fn peek(&mut self, shared: &Arc<Shared>) -> bool {
        let answer = match &mut self.under_way {
            Some(under_way) => under_way.await,
            None => {
                tokio::time::sleep_until(self.next).await;
                let asked = self.ask(shared);
                self.under_way.insert(asked).await
            }
        };
        self.under_way = None;
        self.answered(shared, answer)
    }

    fn ask(&self, shared: &Arc<Shared>) -> BoxFuture<'static, Answer> {
        let shared = Arc::clone(shared);
        let every = self.pause(Instant::now());
        let known = lock(&shared.buffer).last_known_seq();
        Box::pin(async move {
            let store = &shared.store;
            match known {
                Some(known) => {
                    let wait = PeekWait { known, every, longest: WAIT_MAX };
                    timeout(PEEK_MAX + WAIT_MAX + every, store.peek_from(wait)).await
                }
                None => timeout(PEEK_MAX, store.peek()).await,
            }
        })
    }

    fn answered(&mut self, shared: &Shared, answer: Answer) -> bool {
        let now = Instant::now();
        match answer {
            Ok(Ok(Some(peek))) => {
                (self.every, self.waits) = (self.setting.max(peek.every), peek.waited);
                let peeked = lock(&shared.buffer).peeked(peek.last);
                if peeked != PeekResult::Unchanged {
                    self.moved_at = now;
                }
                self.next = if peek.waited { now } else { now + self.pause(now) };
                return peeked == PeekResult::Unseen;
            }
            Ok(Ok(None)) => {
                lock(&shared.buffer).peek_failed();
                self.next = now + CANNOT_FOR;
            }
            Ok(Err(error)) => self.failed(shared, now, &error),
            Err(late) => self.failed(shared, now, &late),
        }
        false
    }

    fn failed(&mut self, shared: &Shared, now: Instant, error: &(dyn std::error::Error + 'static)) {
        debug!(error = error_chain(error), "peek failed: polling goes on");
        lock(&shared.buffer).peek_failed();
        self.waits = false;
        self.next = now + shared.settings.poll_max;
    }

    fn pause(&self, now: Instant) -> Duration {
        if now - self.moved_at < LIVELY_FOR { self.every } else { self.every * IDLE_FACTOR }
    }
}
