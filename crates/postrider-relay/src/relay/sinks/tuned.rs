//! Wraps a sink with the limits of its configuration (batch size, concurrency, rate, timeout) and counts deliveries by event type.

use std::sync::Arc;

use postrider::{BoxFuture, Delivery, Event, Health, Outcome, Sink, SinkTraits};

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
        let send_timeout = match (&config.http, &config.webhook) {
            (None, None) => config.timeout.map(|span| span.0),
            // The setting limits a request. A send may make two, and its own limit allows for that.
            _ => None,
        };
        let traits = SinkTraits {
            batch_max: config.batch.unwrap_or(traits.batch_max),
            concurrent: config.concurrent.or(traits.concurrent),
            spacing: config.rate.map_or(traits.spacing, |rate| rate.per / rate.events),
            send_timeout: send_timeout.or(traits.send_timeout),
            ..traits
        };
        Self { sink, traits, types }
    }
}

impl Sink for Tuned {
    fn traits(&self) -> SinkTraits {
        self.traits
    }

    fn destination(&self, event: &Event) -> Option<String> {
        self.sink.destination(event)
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

    fn health_for<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Health> {
        self.sink.health_for(event)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, time::Duration};

    use super::*;
    use crate::{
        config::parse,
        relay::{Instruments, plans},
    };

    /// The traits that the engine sees for a sink.
    fn traits(sink: &str) -> SinkTraits {
        let text = format!(
            "sources: {{ s: {{ url: s.db, routes: [{{ event_type: a, sink: k }}] }} }}\nsinks: {{ k: {{ {sink} }} }}"
        );
        let config = parse(&text, HashMap::new()).unwrap();
        let plans = plans(config, &Instruments::idle().unwrap()).unwrap();
        plans[0].sinks.iter().next().unwrap().1.traits()
    }

    #[tokio::test]
    async fn an_http_sink_has_time_to_say_what_became_of_its_last_request() {
        for kind in ["http: { url: \"http://h\" }", "webhook: { url: \"http://h\", unsigned: true }"] {
            let limit = traits(&format!("timeout: 2s, {kind}")).send_timeout.unwrap();
            assert!(limit >= Duration::from_secs(4), "a send of {kind} is cut after {limit:?}");
        }
        let redis = traits("timeout: 2s, redis: { url: \"redis://h\", stream: s }");
        assert_eq!(redis.send_timeout, Some(Duration::from_secs(2)));
    }

    #[tokio::test]
    async fn sends_at_a_time_are_as_many_as_the_configuration_says() {
        assert_eq!(traits("concurrent: 3, http: { url: \"http://h\" }").concurrent, Some(3));
        let webhook = traits("concurrent: 3, webhook: { url: \"http://h\", unsigned: true }");
        assert_eq!((webhook.concurrent, webhook.batch_max), (Some(3), 1));
    }
}
