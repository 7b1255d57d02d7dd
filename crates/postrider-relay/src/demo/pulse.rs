//! The numbers of the live view: those of this start, of the engine, and of the table.

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

/// All numbers at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pulse {
    /// Time since the start.
    pub(crate) at: Duration,
    /// Events that this start committed, and rolled back.
    pub(crate) committed: u64,
    pub(crate) rolled_back: u64,
    /// The engine's counters of this start.
    pub(crate) engine: Snapshot,
    /// The numbers of the table.
    pub(crate) stats: Stats,
    /// Events that wait behind a dead one.
    pub(crate) held: u64,
    /// How long the lease of another instance lasts; `None` if this instance has the lease.
    pub(crate) standby: Option<Duration>,
}

impl Pulse {
    /// Events that will be delivered without help.
    pub(crate) fn pending(&self) -> u64 {
        self.stats.pending.saturating_sub(self.held)
    }
}

/// Collects the numbers.
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
        // First the held events, then all: what is freed in between counts as pending, and nothing is missed.
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
