//! What is shown while the demo runs: this start's own numbers, the engine's, and the table's.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use postrider::{
    Outbox,
    metrics::{Recording, Snapshot},
    store::Stats,
};

use super::{clerk::Tally, ledger::Ledger};
use crate::failure::Failure;

/// One look at everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pulse {
    /// Since the start.
    pub(crate) at: Duration,
    /// Events that this start committed, and rolled back.
    pub(crate) committed: u64,
    pub(crate) rolled_back: u64,
    /// What the engine of this start did.
    pub(crate) engine: Snapshot,
    /// What is in the file.
    pub(crate) stats: Stats,
    /// Events that wait behind a dead one.
    pub(crate) held: u64,
    /// How long the lease of another instance holds; none if the lease is ours.
    pub(crate) standby: Option<Duration>,
}

impl Pulse {
    /// Events that will be delivered without anybody's help.
    pub(crate) fn pending(&self) -> u64 {
        self.stats.pending.saturating_sub(self.held)
    }
}

/// Takes the pulse.
pub(crate) struct Finger {
    pub(crate) started: Instant,
    pub(crate) outbox: Outbox,
    pub(crate) ledger: Ledger,
    pub(crate) metrics: Arc<Recording>,
    pub(crate) tally: Arc<Tally>,
}

impl Finger {
    pub(crate) async fn pulse(&self) -> Result<Pulse, Failure> {
        let engine = self.metrics.snapshot();
        // First what is held and then all: what is freed in between counts as pending, never as neither.
        let held = self.ledger.held().await?;
        Ok(Pulse {
            at: self.started.elapsed(),
            committed: self.tally.committed.load(Relaxed),
            rolled_back: self.tally.rolled_back.load(Relaxed),
            stats: self.outbox.stats().await?,
            held,
            standby: match engine.lanes_owned {
                0 => Some(self.ledger.lease_left().await?),
                _ => None,
            },
            engine,
        })
    }
}
