//! Guards the engine's tasks against metrics of the user's that panic.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    time::Duration,
};

use postrider_core::Metrics;
use tokio::time::Instant;
use tracing::error;

use crate::{catch::message, lock};

/// How often a panic is logged at most.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Forwards everything. What panics is logged from time to time, and not measured.
pub(crate) struct GuardedMetrics {
    metrics: Arc<dyn Metrics>,
    warned_at: Mutex<Option<Instant>>,
}

impl GuardedMetrics {
    pub(crate) fn new(metrics: Arc<dyn Metrics>) -> Self {
        Self { metrics, warned_at: Mutex::new(None) }
    }

    fn forward(&self, what: impl FnOnce(&dyn Metrics)) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| what(&*self.metrics))) else { return };
        let mut warned_at = lock(&self.warned_at);
        if warned_at.is_none_or(|warned| warned.elapsed() >= WARN_EVERY) {
            *warned_at = Some(Instant::now());
            error!(panic = message(&*panic), "metrics panicked: the measurement is lost");
        }
    }
}

/// Forwards each method.
macro_rules! forward_all {
    ($($method:ident($($argument:ident: $type:ty),*);)*) => {
        impl Metrics for GuardedMetrics {
            $(
                fn $method(&self, $($argument: $type),*) {
                    self.forward(|metrics| metrics.$method($($argument),*));
                }
            )*
        }
    };
}

forward_all! {
    hot_enqueued();
    hot_dropped();
    cold_enqueued(count: u64);
    delivered();
    failed();
    dead();
    died(sinks: &[String], event_type: Option<&str>);
    attempt_failed(sinks: &[String], outcome: &'static str, counted: bool);
    rejecting(sinks: &[String]);
    queue_depths(hot: u64, cold: u64);
    oldest_lag(lag: Duration);
    written(count: u64);
    deferred();
    claimed(events: u64, took: Duration);
    settled(events: u64, took: Duration);
    fenced(events: u64);
    unsettled(events: u64);
    went_back();
    lanes_owned(lanes: u64);
    given_back(events: u64);
    purged(rows: u64);
    recovered(events: u64);
    breaker(sinks: &[String], open: bool);
}
