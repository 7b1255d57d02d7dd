//! Runs several handlers for one route.

use std::sync::Arc;

use postrider_core::{BoxFuture, Delivery, Outcome, Sink, SinkTraits};

use crate::send::send_one;

/// Several handlers in order. The first one that does not deliver decides.
pub(super) struct List(pub(super) Vec<Arc<dyn Sink>>);

impl Sink for List {
    fn traits(&self) -> SinkTraits {
        let in_process = self.0.iter().all(|sink| sink.traits().in_process);
        SinkTraits { in_process, ..SinkTraits::HANDLER }
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(batch.len());
            for delivery in batch {
                outcomes.push(self.send_one(delivery.clone()).await);
            }
            outcomes
        })
    }

    fn send_one(&self, delivery: Delivery) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            for sink in &self.0 {
                match send_one(sink, sink.traits().send_timeout, delivery.clone()).await {
                    Outcome::Delivered => {}
                    outcome => return outcome,
                }
            }
            Outcome::Delivered
        })
    }
}
