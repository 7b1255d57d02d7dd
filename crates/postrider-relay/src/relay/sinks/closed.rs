//! The sink of a disabled route or sink: its events wait in the table.

use postrider::{BoxFuture, Delivery, Health, Outcome, Sink, SinkTraits};

/// Refuses every event as unavailable and is never healthy.
pub(super) struct Closed;

const WHY: &str = "disabled by the configuration";

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
