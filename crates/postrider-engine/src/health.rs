//! Health checks: events that fail at the same time ask once.

use std::sync::Arc;

use tokio::{sync::Mutex, time::Instant};

/// The last health check of one destination, and the one under way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checks(Arc<Mutex<Option<Check>>>);

#[derive(Debug, Clone, Copy)]
struct Check {
    began: Instant,
    is_well: bool,
}

impl Checks {
    /// What a check says that began at this moment or later. If there was none, `ask` makes one, while all others wait for it.
    pub(crate) async fn since(&self, moment: Instant, ask: impl Future<Output = bool>) -> bool {
        let mut last = self.0.lock().await;
        if let Some(check) = last.filter(|check| check.began >= moment) {
            return check.is_well;
        }
        let began = Instant::now();
        let is_well = ask.await;
        *last = Some(Check { began, is_well });
        is_well
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        time::Duration,
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_that_fail_before_a_check_begins_share_it_and_one_that_fails_later_does_not() {
        let (checks, asked) = (Checks::default(), AtomicUsize::new(0));
        let ask = async || {
            asked.fetch_add(1, Relaxed);
            tokio::time::sleep(Duration::from_millis(10)).await;
            true
        };
        let failed = async |after: u64| {
            tokio::time::sleep(Duration::from_millis(after)).await;
            checks.since(Instant::now(), ask()).await
        };
        assert_eq!(tokio::join!(failed(0), failed(0), failed(0)), (true, true, true));
        assert_eq!(asked.load(Relaxed), 1);
        // The first asks; the others fail meanwhile, and share the next one.
        tokio::join!(failed(0), failed(3), failed(5), failed(7));
        assert_eq!(asked.load(Relaxed), 3);
    }
}
