//! What the engines measure, and whether memory stays within its bounds.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use postrider_core::Metrics;

use super::history::{Happening, History};

pub(super) struct Gauges {
    history: Arc<History>,
    hot_max: usize,
    cold_max: usize,
    hot: AtomicUsize,
    breakers: AtomicUsize,
}

impl Gauges {
    pub(super) fn new(history: Arc<History>, hot_max: usize, cold_max: usize) -> Self {
        Self { history, hot_max, cold_max, hot: AtomicUsize::new(0), breakers: AtomicUsize::new(0) }
    }

    /// Events that were handed over in memory.
    pub(super) fn hot(&self) -> usize {
        self.hot.load(Relaxed)
    }

    /// Breakers that opened.
    pub(super) fn breakers(&self) -> usize {
        self.breakers.load(Relaxed)
    }
}

impl Metrics for Gauges {
    fn hot_enqueued(&self) {
        self.hot.fetch_add(1, Relaxed);
    }

    fn breaker(&self, _sinks: &[String], open: bool) {
        self.breakers.fetch_add(usize::from(open), Relaxed);
    }

    fn queue_depths(&self, hot: u64, cold: u64) {
        if hot > self.hot_max as u64 || cold > self.cold_max as u64 {
            self.history.note(Happening::Overfull(hot, cold));
        }
    }
}
