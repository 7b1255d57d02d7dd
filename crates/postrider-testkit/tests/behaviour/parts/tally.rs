//! Metrics that can be read, and that say when they change.

use std::sync::Arc;

use postrider::{
    Metrics,
    metrics::{Recording, Snapshot},
};

/// A recording that a builder takes and a test reads.
#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<Recording>);

impl Tally {
    pub(crate) fn metrics(&self) -> Arc<dyn Metrics> {
        self.0.clone()
    }

    pub(crate) fn now(&self) -> Snapshot {
        self.0.snapshot()
    }
}
