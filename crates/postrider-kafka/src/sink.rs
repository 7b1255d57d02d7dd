//! The Kafka sink: sends batches through one producer at a time.

use std::{borrow::Cow, collections::BTreeSet, time::Duration};

use postrider_core::{
    BatchOrder, BoxFuture, ConfigError, Delivery, Event, Health, Outcome, Sink, SinkTraits,
};
use postrider_net::{Deadline, Link, Linked, destination};

use crate::{
    KafkaConfig,
    batch::Batch,
    message,
    producer::{Connector, Producer},
    sending::{Ended, Sending},
};

/// Events of one key in a send. They are sent one after the other, and a long send leaves many events in doubt if its process ends.
const KEY_MAX: usize = 50;
/// Timeout of a health check.
const HEALTH_MAX: Duration = Duration::from_secs(4);

/// Events as Kafka records. The crate's documentation lists its promises.
#[derive(Debug)]
pub struct KafkaSink {
    config: KafkaConfig,
    link: Link<Connector>,
}

impl KafkaSink {
    /// Checks the configuration. The first event connects.
    pub fn new(config: KafkaConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let client = config.client();
        // librdkafka's message contains the name of the property and its value, which may be a secret.
        client.create_native_config().map_err(|error| {
            let named = config.properties.keys().find(|name| error.to_string().contains(name.as_str()));
            let named = named.map_or("properties".to_owned(), |name| format!("with {name} as it is set"));
            ConfigError::out_of_range(
                "properties",
                named,
                "properties of librdkafka, and of the features that it was built with",
            )
        })?;
        let connector = Connector::new(client, config.brokers.clone(), config.limits.connect_timeout);
        let link = Link::new(connector, config.limits.connect_timeout * 2);
        Ok(Self { config, link })
    }

    async fn send_batch(&self, deliveries: &[Delivery]) -> Vec<Outcome> {
        let deadline = Deadline::within(self.config.limits.send_timeout);
        let mut batch = Batch::new(deliveries, |delivery| message::outgoing(&self.config, &delivery.event));
        let first = batch.next();
        if first.is_empty() {
            return batch.end(&Outcome::missing(), &Outcome::missing());
        }
        let producer = match self.link.get_before(&deadline).await {
            Ok(producer) => producer,
            Err(down) => {
                let down = Outcome::unavailable(down);
                return batch.end(&down, &down);
            }
        };
        let watch = self.link.watch(&producer);
        let sending = Sending::new(&producer, &mut batch, &deadline);
        let not_sent = Outcome::deferred(Duration::ZERO);
        match deadline.before(sending.run(first)).await {
            Some(Ended::Reported) => {
                // The link notices by itself if the producer has stopped meanwhile.
                watch.answered();
                batch.end(&Outcome::missing(), &Outcome::missing())
            }
            Some(Ended::GivenUp) => batch.end(&Outcome::missing(), &Outcome::missing()),
            Some(Ended::Lost(why)) => {
                drop(watch);
                let lost = self.link.lost("the answer", &why, &deadline).await;
                let down = matches!(lost, Outcome::Unavailable { .. });
                batch.end(&lost, if down { &lost } else { &not_sent })
            }
            None => batch.end(&Outcome::unknown(deadline.no_answer()), &not_sent),
        }
    }

    /// Asks a broker about these topics, or only whether it answers if there are none.
    async fn ask(&self, topics: Vec<String>) -> Result<(), String> {
        let producer = self.link.get().await?;
        let asked: Linked<Producer> = producer.clone();
        let asking = tokio::task::spawn_blocking(move || asked.ask(&topics, HEALTH_MAX));
        let answer = asking.await.unwrap_or_else(|error| Err(error.to_string()));
        if answer.is_err() {
            self.link.forget(&producer);
        }
        answer?.map_or(Ok(()), Err)
    }

    async fn health_of(&self, topics: Vec<String>) -> Health {
        self.ask(topics).await.map_or_else(|error| Health::Down { error }, |()| Health::Up)
    }
}

impl Sink for KafkaSink {
    fn traits(&self) -> SinkTraits {
        SinkTraits { key_max: KEY_MAX, ..self.config.limits.traits(BatchOrder::Prefix) }
    }

    /// The topic, if topics differ from event to event.
    fn destination(&self, event: &Event) -> Option<String> {
        destination::of_event(&self.config.topic, event)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(self.send_batch(batch))
    }

    /// Asks a broker for the metadata of the fixed topics. A topic that does not exist is an error unless the broker creates it. Topics that depend
    /// on the event are unknown here.
    fn health(&self) -> BoxFuture<'_, Health> {
        let topics: BTreeSet<String> = self.config.topic.fixed().map(str::to_owned).collect();
        Box::pin(self.health_of(topics.into_iter().collect()))
    }

    /// Asks a broker only for the metadata of the event's topic; other topics do not matter for it.
    fn health_for<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Health> {
        // An event without a topic is rejected, however the brokers are.
        let topic = self.config.topic.resolve(event).ok();
        Box::pin(self.health_of(topic.map(Cow::into_owned).into_iter().collect()))
    }
}
