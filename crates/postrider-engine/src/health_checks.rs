//! Shares health checks between events that fail at the same time.

use std::sync::Arc;

use tokio::{sync::Mutex, time::Instant};

/// The last health check of one destination, and the running one.
#[derive(Debug, Clone, Default)]
pub(crate) struct HealthChecks(Arc<Mutex<Option<HealthCheck>>>);

#[derive(Debug, Clone, Copy)]
struct HealthCheck {
    began: Instant,
    is_well: bool,
}

impl HealthChecks {
    /// Returns the result of a check that began at this moment or later. If there is none, `ask` makes one
    /// while all others wait for it.
    pub(crate) async fn since(&self, moment: Instant, ask: impl Future<Output = bool>) -> bool {
        let mut last = self.0.lock().await;
        if let Some(check) = last.filter(|check| check.began >= moment) {
            return check.is_well;
        }
        let began = Instant::now();
        let is_well = ask.await;
        *last = Some(HealthCheck { began, is_well });
        is_well
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        time::Duration,
    };

    use tokio::{sync::Notify, task::yield_now, time::advance};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_that_fail_before_a_check_begins_share_it_and_one_that_fails_later_does_not() {
        let (health_checks, asked, answer) = (HealthChecks::default(), AtomicUsize::new(0), Notify::new());
        let ask = async || {
            asked.fetch_add(1, Relaxed);
            answer.notified().await;
            true
        };
        let failed = async |at: Instant| health_checks.since(at, ask()).await;
        let answered = async |after: Duration| {
            yield_now().await;
            advance(after).await;
            answer.notify_one();
        };
        let now = Instant::now();
        let all = tokio::join!(failed(now), failed(now), failed(now), answered(Duration::ZERO));
        assert_eq!((all.0, all.1, all.2, asked.load(Relaxed)), (true, true, true, 1));
        // The first asks; the others fail meanwhile, and share the next one.
        advance(Duration::from_millis(1)).await;
        let now = Instant::now();
        let later = |ms| now + Duration::from_millis(ms);
        let both = async {
            answered(Duration::from_millis(7)).await;
            answered(Duration::ZERO).await;
        };
        tokio::join!(failed(now), failed(later(3)), failed(later(5)), failed(later(7)), both);
        assert_eq!(asked.load(Relaxed), 3);
    }
}
