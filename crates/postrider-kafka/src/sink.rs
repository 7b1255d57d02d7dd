//! Batches through one producer.

use std::{borrow::Cow, collections::BTreeSet, fmt, time::Duration};

use postrider_core::{
    BatchOrder, BoxFuture, ConfigError, Delivery, Event, Health, Outcome, Sink, SinkTraits,
};
use postrider_net::{Link, Linked};

use crate::{
    KafkaConfig,
    config::wrong,
    message,
    outcome::Fate,
    producer::{Connector, Producer, Reports},
    wave::Batch,
};

/// Most events of one key in a send: they go one after the other, and a send that takes long is long in doubt when its process ends.
const KEY_MAX: usize = 50;
/// How long reports of what was purged may take.
const PURGE_MAX: Duration = Duration::from_secs(5);
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

/// What a wave came to.
enum Went {
    /// Everything in it has its outcome.
    Well,
    /// A request was refused for what is in it: what has no outcome is to be sent alone.
    Refused,
    /// The brokers were lost.
    Lost(Outcome),
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
        let mut batch = Batch::new(deliveries, |delivery| message::outgoing(&self.config, &delivery.event));
        let mut otherwise = Outcome::missing();
        loop {
            let wave = batch.next_wave();
            if wave.is_empty() {
                break;
            }
            match self.send_wave(&mut batch, &wave).await {
                Went::Well => {}
                Went::Refused => {
                    if let Err(lost) = self.send_alone(&mut batch, wave).await {
                        otherwise = lost;
                        break;
                    }
                }
                Went::Lost(outcome) => {
                    otherwise = outcome;
                    break;
                }
            }
        }
        batch.outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| otherwise.clone())).collect()
    }

    /// Each of a wave on its own, so that the one that is refused is known.
    async fn send_alone(&self, batch: &mut Batch<'_>, wave: Vec<usize>) -> Result<(), Outcome> {
        for place in wave {
            let untold = batch.outcomes.get(place).is_some_and(Option::is_none);
            if untold && let Went::Lost(outcome) = self.send_wave(batch, &[place]).await {
                return Err(outcome);
            }
        }
        Ok(())
    }

    /// Hands over a wave, and waits until everything in it was reported.
    async fn send_wave(&self, batch: &mut Batch<'_>, wave: &[usize]) -> Went {
        let producer = match self.link.get().await {
            Ok(producer) => producer,
            Err(down) => return Went::Lost(Outcome::unavailable(down)),
        };
        let watch = self.link.watch(&producer);
        let reports = Reports::new(wave.len());
        for (number, place) in wave.iter().enumerate() {
            let (Some(delivery), Some(Some(record))) =
                (batch.deliveries.get(*place), batch.records.get(*place))
            else {
                reports.tell(number, Fate::Lost);
                continue;
            };
            producer.produce(delivery.event.key(), record, &reports, number);
        }
        let over = tokio::select! {
            biased;
            () = reports.all() => None,
            why = producer.over() => Some(why),
        };
        if over.is_some() {
            producer.purge();
            let _ = tokio::time::timeout(PURGE_MAX, reports.all()).await;
        }
        let (mut lost, mut suspected) = (false, false);
        for (place, fate) in wave.iter().zip(reports.take()) {
            let Some(outcome) = batch.outcomes.get_mut(*place) else { continue };
            match fate {
                Fate::Told(told) => *outcome = Some(told),
                Fate::Suspected(error) if wave.len() == 1 => *outcome = Some(Outcome::rejected(error)),
                Fate::Suspected(_) => suspected = true,
                Fate::Lost => lost = true,
            }
        }
        if lost && !suspected {
            drop(watch);
            return Went::Lost(self.lost(&over.unwrap_or_default()).await);
        }
        // A producer that has stopped meanwhile is not used again: the link finds that out.
        watch.answered();
        if suspected { Went::Refused } else { Went::Well }
    }

    /// The brokers were lost under what was sent. If one is there, nobody knows what was taken; if none is, they are down.
    async fn lost(&self, why: &str) -> Outcome {
        match self.link.get().await {
            Ok(_) => Outcome::unknown(format!("the brokers were lost before the answer: {why}")),
            Err(down) => Outcome::unavailable(format!("{down}; before: {why}")),
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
