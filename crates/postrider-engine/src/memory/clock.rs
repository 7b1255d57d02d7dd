//! The store's clock: tokio's time from a fixed beginning.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use postrider_core::Timestamp;
use tokio::time::Instant;

/// 2026-01-01T00:00:00Z. Fixed, so that a paused run prints the same times whenever it is run.
const BEGINNING: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

pub(super) struct Clock {
    started: Instant,
    offset_us: AtomicU64,
}

impl Clock {
    pub(super) fn now(&self) -> Timestamp {
        let offset = Duration::from_micros(self.offset_us.load(Relaxed));
        BEGINNING.plus(self.started.elapsed()).plus(offset)
    }

    pub(super) fn set_offset(&self, offset: Duration) {
        self.offset_us.store(u64::try_from(offset.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self { started: Instant::now(), offset_us: AtomicU64::new(0) }
    }
}
