//! Time: the one clock of a run, and waiting.

use std::{
    future::Future,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::Failure;

/// Microseconds since the run began. Redis and this program share a host, so they share it.
pub(crate) type Micros = u64;

pub(crate) const SECOND: Micros = 1_000_000;

/// How soon to look again, at first and at last.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    began: Instant,
    began_unix: Duration,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let began_unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began: Instant::now(), began_unix }
    }

    pub(crate) fn now(self) -> Micros {
        micros(self.began.elapsed())
    }

    /// A time of day, as servers give it.
    pub(crate) fn of_unix(self, unix: Duration) -> Micros {
        micros(unix.saturating_sub(self.began_unix))
    }
}

pub(crate) fn micros(time: Duration) -> Micros {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Lets time pass: how long a fault lasts, the pace of writers. Never in front of a check.
pub(crate) fn pass(time: Duration) -> impl Future<Output = ()> + Send {
    tokio::time::sleep(time)
}

/// Looks until there is something, and gives it.
pub(crate) async fn until<T, L: Future<Output = Result<Option<T>, Failure>> + Send>(
    what: &str,
    within: Duration,
    mut look: impl FnMut() -> L,
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
