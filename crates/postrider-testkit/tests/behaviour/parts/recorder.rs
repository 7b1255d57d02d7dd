//! A handler that remembers what it was given, and when.

use std::{
    future::{Ready, ready},
    sync::{Arc, Mutex},
};

use postrider::{Delivery, EventId, Outcome};
use tokio::{sync::Notify, time::Instant};

use super::{Gate, TIMEOUT, numbers};

#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Inner>);

#[derive(Default)]
struct Inner {
    seen: Mutex<Vec<(Instant, Delivery)>>,
    changed: Notify,
}

impl Recorder {
    pub(crate) fn note(&self, delivery: &Delivery) {
        self.0.seen.lock().unwrap().push((Instant::now(), delivery.clone()));
        self.0.changed.notify_waiters();
    }

    /// A handler that delivers everything.
    pub(crate) fn delivers(&self) -> impl Fn(Delivery) -> Ready<Outcome> + Send + Sync + 'static {
        self.answers(|_| Outcome::Delivered)
    }

    /// A handler that answers as it is told.
    pub(crate) fn answers(
        &self,
        answer: impl Fn(&Delivery) -> Outcome + Send + Sync + 'static,
    ) -> impl Fn(Delivery) -> Ready<Outcome> + Send + Sync + 'static {
        let this = self.clone();
        move |delivery| {
            this.note(&delivery);
            ready(answer(&delivery))
        }
    }

    /// A handler that waits at a gate, and then delivers.
    pub(crate) fn waits_at(
        &self,
        gate: &Arc<Gate>,
    ) -> impl Fn(Delivery) -> postrider::BoxFuture<'static, ()> + Send + Sync + 'static {
        let (this, gate) = (self.clone(), gate.clone());
        move |delivery| {
            this.note(&delivery);
            let gate = gate.clone();
            Box::pin(async move { gate.pass().await })
        }
    }

    pub(crate) fn seen(&self) -> Vec<Delivery> {
        self.0.seen.lock().unwrap().iter().map(|(_, delivery)| delivery.clone()).collect()
    }

    /// When each delivery came.
    pub(crate) fn times(&self) -> Vec<Instant> {
        self.0.seen.lock().unwrap().iter().map(|(time, _)| *time).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.seen.lock().unwrap().len()
    }

    pub(crate) fn ids(&self) -> Vec<EventId> {
        self.seen().iter().map(|delivery| delivery.id().clone()).collect()
    }

    pub(crate) fn numbers(&self) -> Vec<usize> {
        numbers(&self.seen())
    }

    /// The numbers of the deliveries of one key.
    pub(crate) fn numbers_of(&self, key: &str) -> Vec<usize> {
        let of_key: Vec<_> = self.seen().into_iter().filter(|delivery| delivery.key() == Some(key)).collect();
        numbers(&of_key)
    }

    /// Waits until so many deliveries have come.
    pub(crate) async fn reaches(&self, count: usize) -> Vec<Delivery> {
        let waiting = async {
            loop {
                let changed = self.0.changed.notified();
                if self.count() >= count {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(TIMEOUT, waiting).await.is_err() {
            panic!("{} deliveries came where {count} were expected: {:?}", self.count(), self.ids());
        }
        self.seen()
    }
}
