//! A gate that tasks wait at.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::sync::watch;

use super::{TIMEOUT, eventually};

pub(crate) struct Gate {
    open: watch::Sender<bool>,
    arrived: AtomicUsize,
    inside: AtomicUsize,
    most: AtomicUsize,
}

impl Gate {
    pub(crate) fn open() -> Self {
        Self {
            open: watch::Sender::new(true),
            arrived: AtomicUsize::new(0),
            inside: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        }
    }

    pub(crate) fn shut() -> Self {
        let gate = Self::open();
        gate.close();
        gate
    }

    pub(crate) fn close(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn let_through(&self) {
        self.open.send_replace(true);
    }

    /// Waits while the gate is shut.
    pub(crate) async fn pass(&self) {
        self.arrived.fetch_add(1, SeqCst);
        let waiting = Waiting::at(self);
        self.open.subscribe().wait_for(|open| *open).await.unwrap();
        drop(waiting);
    }

    /// How many have come to the gate so far.
    pub(crate) fn arrivals(&self) -> usize {
        self.arrived.load(SeqCst)
    }

    /// How many wait at the gate.
    pub(crate) fn waiting(&self) -> usize {
        self.inside.load(SeqCst)
    }

    /// The most that ever waited at once.
    pub(crate) fn most_waiting(&self) -> usize {
        self.most.load(SeqCst)
    }

    pub(crate) async fn until_arrivals(&self, count: usize) {
        eventually(&format!("{count} at the gate within {TIMEOUT:?}"), async || self.arrivals() >= count)
            .await;
    }
}

/// One who waits; counted out also when it is dropped where it stands.
struct Waiting<'a>(&'a Gate);

impl<'a> Waiting<'a> {
    fn at(gate: &'a Gate) -> Self {
        let inside = gate.inside.fetch_add(1, SeqCst) + 1;
        gate.most.fetch_max(inside, SeqCst);
        Self(gate)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, SeqCst);
    }
}
