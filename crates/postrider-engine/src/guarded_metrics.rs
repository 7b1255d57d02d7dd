//! Metrics of the user's that may panic, and must not end a task of the engine.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    time::Duration,
};

use postrider_core::Metrics;
use tokio::time::Instant;
use tracing::error;

use crate::{catch::message, lock};

/// How often it is told that they panic.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Passes everything on. What panics is told now and then, and is not measured.
pub(crate) struct GuardedMetrics {
    metrics: Arc<dyn Metrics>,
    warned_at: Mutex<Option<Instant>>,
}

impl GuardedMetrics {
    pub(crate) fn new(metrics: Arc<dyn Metrics>) -> Self {
        Self { metrics, warned_at: Mutex::new(None) }
    }

    fn tell(&self, what: impl FnOnce(&dyn Metrics)) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| what(&*self.metrics))) else { return };
        let mut warned_at = lock(&self.warned_at);
        if warned_at.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            *warned_at = Some(Instant::now());
            error!(panic = message(&*panic), "the metrics panicked: what they were told is not measured");
        }
    }
}

/// Each method passes on what it is told.
macro_rules! pass_on {
    ($($method:ident($($argument:ident: $type:ty),*);)*) => {
        impl Metrics for GuardedMetrics {
            $(
                fn $method(&self, $($argument: $type),*) {
                    self.tell(|metrics| metrics.$method($($argument),*));
                }
            )*
        }
    };
}

pass_on! {
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
