//! A sink as the configuration wants it: batch size, sends at a time, rate, time-out.

use std::sync::Arc;

use postrider::{BoxFuture, Delivery, Health, Outcome, Sink, SinkTraits};

use crate::config;

pub(super) struct Tuned {
    sink: Arc<dyn Sink>,
    traits: SinkTraits,
}

impl Tuned {
    pub(super) fn new(sink: Arc<dyn Sink>, traits: SinkTraits, config: &config::Sink) -> Self {
        let traits = SinkTraits {
            batch_max: config.batch.unwrap_or(traits.batch_max),
            concurrent: config.concurrent.or(traits.concurrent),
            spacing: config.rate.map_or(traits.spacing, |rate| rate.per / rate.events),
            send_timeout: config.timeout.map(|span| span.0).or(traits.send_timeout),
            ..traits
        };
        Self { sink, traits }
    }
}

impl Sink for Tuned {
    fn traits(&self) -> SinkTraits {
        self.traits
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        self.sink.send(batch)
    }

    fn send_one(&self, delivery: Delivery) -> BoxFuture<'_, Outcome> {
        self.sink.send_one(delivery)
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        self.sink.health()
    }
}
