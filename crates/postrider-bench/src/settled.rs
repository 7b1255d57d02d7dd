//! Counts settled outcomes and waits for all of them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use indicatif::ProgressBar;
use postrider::Metrics;
use postrider_relay::Failure;
use tokio::sync::Notify;

/// Without progress for this long, the run has stopped.
const STALL: Duration = Duration::from_secs(60);

/// Counts settled outcomes of an outbox and signals the last one.
#[derive(Debug)]
pub(super) struct Settled {
    wanted: u64,
    settled: AtomicU64,
    all: Notify,
}

impl Settled {
    pub(super) fn all_of(wanted: u64) -> Arc<Self> {
        Arc::new(Self { wanted, settled: AtomicU64::new(0), all: Notify::new() })
    }

    /// Returns when all outcomes are settled.
    pub(super) async fn wait(&self, bar: &ProgressBar) -> Result<(), Failure> {
        let (mut known, mut moved) = (0, Instant::now());
        loop {
            // The notification stays until it is taken, so none is missed.
            if tokio::time::timeout(BEAT, self.all.notified()).await.is_ok() {
                return Ok(());
            }
            let now = self.settled.load(Relaxed);
            if now > known {
                (known, moved) = (now, Instant::now());
                bar.set_position(now);
            } else if moved.elapsed() > STALL {
                let wanted = self.wanted;
                return Err(Failure::bad(format!(
                    "{now} of {wanted} events were settled, and then none for {STALL:?}"
                )));
            }
        }
    }
}

/// How often progress is checked.
const BEAT: Duration = Duration::from_millis(100);

impl Metrics for Settled {
    fn settled(&self, events: u64, _took: Duration) {
        if self.settled.fetch_add(events, Relaxed) + events >= self.wanted {
            self.all.notify_one();
        }
    }
}
