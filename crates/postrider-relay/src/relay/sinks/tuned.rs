//! A sink as the configuration wants it: batch size, sends at a time, rate, time-out. What goes through it is counted by event type.

use std::sync::Arc;

use postrider::{BoxFuture, Delivery, Health, Outcome, Sink, SinkTraits};

use crate::{
    config,
    operations::{ByType, UnderWay},
};

pub(super) struct Tuned {
    sink: Arc<dyn Sink>,
    traits: SinkTraits,
    types: Arc<ByType>,
}

impl Tuned {
    pub(super) fn new(sink: Arc<dyn Sink>, config: &config::Sink, types: Arc<ByType>) -> Self {
        let traits = sink.traits();
        let traits = SinkTraits {
            batch_max: config.batch.unwrap_or(traits.batch_max),
            concurrent: config.concurrent.or(traits.concurrent),
            spacing: config.rate.map_or(traits.spacing, |rate| rate.per / rate.events),
            send_timeout: config.timeout.map(|span| span.0).or(traits.send_timeout),
            ..traits
        };
        Self { sink, traits, types }
    }
}

impl Sink for Tuned {
    fn traits(&self) -> SinkTraits {
        self.traits
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let meters = batch.iter().map(|delivery| self.types.of(delivery.event_type()));
            let under_way = UnderWay::new(meters.collect());
            let outcomes = self.sink.send(batch).await;
            for (outcome, meters) in outcomes.iter().zip(under_way.iter()) {
                if *outcome == Outcome::Delivered {
                    meters.delivered();
                }
            }
            outcomes
        })
    }

    fn send_one(&self, delivery: Delivery) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let meters = self.types.of(delivery.event_type());
            let _under_way = UnderWay::new(vec![meters.clone()]);
            let outcome = self.sink.send_one(delivery).await;
            if outcome == Outcome::Delivered {
                meters.delivered();
            }
            outcome
        })
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        self.sink.health()
    }
}
