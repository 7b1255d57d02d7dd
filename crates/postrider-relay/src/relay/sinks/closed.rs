//! The sink of what is switched off: its events wait.

use postrider::{BoxFuture, Delivery, Health, Outcome, Sink, SinkTraits};

/// Takes nothing, and is never well.
pub(super) struct Closed;

const WHY: &str = "switched off in the configuration";

impl Sink for Closed {
    fn traits(&self) -> SinkTraits {
        SinkTraits { concurrent: Some(1), ..SinkTraits::SINK }
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        let outcomes = batch.iter().map(|_| Outcome::unavailable(WHY)).collect();
        Box::pin(std::future::ready(outcomes))
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(std::future::ready(Health::Down { error: WHY.to_owned() }))
    }
}
