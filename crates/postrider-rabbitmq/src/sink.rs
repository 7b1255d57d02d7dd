//! The RabbitMQ sink: sends batches exchange by exchange.

use std::{collections::BTreeMap, time::Duration};

use lapin::types::ShortString;
use postrider_core::{
    BatchOrder, BoxFuture, ConfigError, Delivery, Event, Health, Outcome, Sink, SinkTraits, sink::error_chain,
};
use postrider_net::{Deadline, Link, destination::varies, health};

use crate::{
    RabbitConfig,
    connection::{BLOCKED, Connector},
    message,
    publish::{self, Place, Stopped},
};

/// The events of a batch by exchange.
type Groups<'a> = BTreeMap<ShortString, Vec<Place<'a>>>;

/// Events as RabbitMQ messages. The crate's documentation lists its promises.
#[derive(Debug)]
pub struct RabbitSink {
    config: RabbitConfig,
    link: Link<Connector>,
}

impl RabbitSink {
    /// Checks the configuration and reads the TLS files. The first event connects.
    pub fn new(config: RabbitConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let link = Link::new(Connector::new(&config)?, config.limits.connect_timeout);
        Ok(Self { config, link })
    }

    async fn send_batch(&self, batch: &[Delivery]) -> Vec<Outcome> {
        let mut outcomes = vec![None; batch.len()];
        let mut groups = Groups::new();
        for (Delivery { event, .. }, outcome) in batch.iter().zip(&mut outcomes) {
            match message::outgoing(&self.config, event) {
                Ok(message) => {
                    let exchange = message.exchange.clone();
                    let place = Place { event, message: Some(message), outcome };
                    groups.entry(exchange).or_default().push(place);
                }
                Err(reason) => *outcome = Some(Outcome::rejected(reason)),
            }
        }
        let otherwise = if groups.is_empty() { Outcome::missing() } else { self.publish(groups).await };
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| otherwise.clone())).collect()
    }

    /// Publishes all messages. Those that get no outcome of their own have the one that is returned.
    async fn publish<'a>(&'a self, groups: Groups<'a>) -> Outcome {
        let deadline = Deadline::within(self.config.limits.send_timeout);
        let connection = match self.link.get_before(&deadline).await {
            Ok(connection) => connection,
            Err(down) => return Outcome::unavailable(down),
        };
        if connection.is_blocked() {
            return Outcome::unavailable(BLOCKED);
        }
        let watch = self.link.watch(&connection);
        for places in groups.into_values() {
            match publish::publish(&self.config, &connection, &deadline, places).await {
                Ok(()) => {}
                Err(Stopped::Lost(error)) => {
                    drop(watch);
                    return self.link.lost("the confirm", &error, &deadline).await;
                }
                Err(Stopped::Late) => return Outcome::deferred(Duration::ZERO),
            }
        }
        watch.answered();
        Outcome::missing()
    }

    async fn ask(&self) -> Result<(), String> {
        let connection = self.link.get().await?;
        if connection.is_blocked() {
            return Err(BLOCKED.to_owned());
        }
        let watch = self.link.watch(&connection);
        // Opening a channel takes a round trip to the broker.
        let opened = connection.new_channel().await;
        match opened {
            Ok(channel) => {
                watch.answered();
                connection.give_back(channel);
                Ok(())
            }
            Err(error) => Err(error_chain(&error)),
        }
    }
}

impl Sink for RabbitSink {
    fn traits(&self) -> SinkTraits {
        self.config.limits.traits(BatchOrder::Independent)
    }

    /// Exchange and routing key, if they differ from event to event; for the default exchange only the routing key, which is a queue.
    fn destination(&self, event: &Event) -> Option<String> {
        let RabbitConfig { exchange, routing_key, .. } = &self.config;
        if !varies(routing_key) && !exchange.as_ref().is_some_and(varies) {
            return None;
        }
        let key = routing_key.resolve(event).ok()?;
        Some(match exchange {
            Some(exchange) => format!("{}/{key}", exchange.resolve(event).ok()?),
            None => key.into_owned(),
        })
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(self.send_batch(batch))
    }

    /// Opens a channel.
    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(health::ask_twice(|| self.ask()))
    }
}
