//! Batches through one producer.

use std::{borrow::Cow, collections::BTreeSet, fmt, time::Duration};

use postrider_core::{
    BatchOrder, BoxFuture, ConfigError, Delivery, Event, Health, Outcome, Sink, SinkTraits,
};
use postrider_net::{Deadline, Link, Linked, destination::varies};

use crate::{
    KafkaConfig,
    batch::Batch,
    config::wrong,
    message,
    producer::{Connector, Producer},
    sending::{Ended, Sending},
};

/// Most events of one key in a send: they go one after the other, and a send that takes long is long in doubt when its process ends.
const KEY_MAX: usize = 50;
/// How long a broker may take to say that it is there.
const HEALTH_MAX: Duration = Duration::from_secs(4);

/// Events as records of Kafka. See the documentation of this crate for what it promises.
pub struct KafkaSink {
    config: KafkaConfig,
    link: Link<Connector>,
}

impl fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSink").field("config", &self.config).field("link", &self.link).finish()
    }
}

impl KafkaSink {
    /// Checks the configuration. Nothing is connected before the first event.
    pub fn new(config: KafkaConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let client = config.client();
        // What librdkafka says of a property names it and its value, which may be a secret.
        client.create_native_config().map_err(|error| {
            let named = config.properties.keys().find(|name| error.to_string().contains(name.as_str()));
            let named = named.map_or("properties".to_owned(), |name| format!("with {name} as it is set"));
            wrong("properties", named, "properties of librdkafka, and of the features that it was built with")
        })?;
        let connector = Connector::new(client, config.brokers.clone(), config.connect_timeout);
        let link = Link::new(connector, config.connect_timeout * 2);
        Ok(Self { config, link })
    }

    async fn send_batch(&self, deliveries: &[Delivery]) -> Vec<Outcome> {
        let deadline = Deadline::within(self.config.send_timeout);
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
                // A producer that has stopped meanwhile is not used again: the link finds that out.
                watch.answered();
                batch.end(&Outcome::missing(), &Outcome::missing())
            }
            Some(Ended::GivenUp) => batch.end(&Outcome::missing(), &Outcome::missing()),
            Some(Ended::Lost(why)) => {
                drop(watch);
                let lost = self.lost(&why, &deadline).await;
                let down = matches!(lost, Outcome::Unavailable { .. });
                batch.end(&lost, if down { &lost } else { &not_sent })
            }
            None => batch.end(&Outcome::unknown(deadline.no_answer()), &not_sent),
        }
    }

    /// The brokers were lost under what was sent. If one is there, nobody knows what was taken; if none is, they are down.
    async fn lost(&self, why: &str, deadline: &Deadline) -> Outcome {
        match deadline.before(self.link.get()).await {
            Some(Ok(_)) | None => Outcome::unknown(format!("the brokers were lost before the answer: {why}")),
            Some(Err(down)) => Outcome::unavailable(format!("{down}; before: {why}")),
        }
    }

    /// Asks a broker how these topics are; or only whether it is there, if none is named.
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
        SinkTraits {
            batch_max: self.config.batch_max,
            order: BatchOrder::Prefix,
            key_max: KEY_MAX,
            send_timeout: Some(self.config.send_timeout),
            ..SinkTraits::SINK
        }
    }

    /// The topic, where it differs from event to event.
    fn destination(&self, event: &Event) -> Option<String> {
        let topic = &self.config.topic;
        varies(topic).then(|| topic.resolve(event).ok())?.map(Cow::into_owned)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(self.send_batch(batch))
    }

    /// Asks a broker for the metadata of the topics. One that does not exist is not well, unless the broker makes it; which topics there
    /// are of those that an event names is not known before it comes.
    fn health(&self) -> BoxFuture<'_, Health> {
        let topics: BTreeSet<String> = self.config.topic.fixed().map(str::to_owned).collect();
        Box::pin(self.health_of(topics.into_iter().collect()))
    }

    /// Asks a broker for the metadata of the one topic that the event goes to: whether others are there is no matter of this one.
    fn health_for<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Health> {
        // An event without a topic is rejected, wherever the brokers are.
        let topic = self.config.topic.resolve(event).ok();
        Box::pin(self.health_of(topic.map(Cow::into_owned).into_iter().collect()))
    }
}
