//! Batches by exchange.

use std::{collections::BTreeMap, fmt, time::Duration};

use lapin::types::ShortString;
use postrider_core::{
    BatchOrder, BoxFuture, ConfigError, Delivery, Event, Health, Outcome, Sink, SinkTraits, sink::error_chain,
};
use postrider_net::{Deadline, Link, destination::varies};

use crate::{
    RabbitConfig,
    connection::{BLOCKED, Connector},
    message,
    publish::{self, Place, Stopped},
};

/// The events of a batch by their exchange.
type Groups<'a> = BTreeMap<ShortString, Vec<Place<'a>>>;

/// Events as messages of RabbitMQ. See the documentation of this crate for what it promises.
pub struct RabbitSink {
    config: RabbitConfig,
    link: Link<Connector>,
}

impl fmt::Debug for RabbitSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitSink").field("config", &self.config).field("link", &self.link).finish()
    }
}

impl RabbitSink {
    /// Checks the configuration and reads the files of TLS. Nothing is connected before the first event.
    pub fn new(config: RabbitConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let link = Link::new(Connector::new(&config)?, config.connect_timeout);
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

    /// Gives each message its outcome; what is left without one has what this gives.
    async fn publish<'a>(&'a self, groups: Groups<'a>) -> Outcome {
        let deadline = Deadline::within(self.config.send_timeout);
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
                    return self.lost(&error, &deadline).await;
                }
                Err(Stopped::Late) => return Outcome::deferred(Duration::ZERO),
            }
        }
        watch.answered();
        Outcome::missing()
    }

    /// The connection was lost under what was sent. If the broker is there, nobody knows what it took; if it is not, it is down.
    async fn lost(&self, error: &str, deadline: &Deadline) -> Outcome {
        match deadline.before(self.link.get()).await {
            Some(Ok(_)) | None => {
                Outcome::unknown(format!("the connection was lost before the confirm: {error}"))
            }
            Some(Err(down)) => {
                Outcome::unavailable(format!("{down}; the connection before was lost: {error}"))
            }
        }
    }

    async fn ask(&self) -> Result<(), String> {
        let connection = self.link.get().await?;
        if connection.is_blocked() {
            return Err(BLOCKED.to_owned());
        }
        let watch = self.link.watch(&connection);
        // Opening a channel goes to the broker and back.
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
        SinkTraits {
            batch_max: self.config.batch_max,
            order: BatchOrder::Independent,
            send_timeout: Some(self.config.send_timeout),
            ..SinkTraits::SINK
        }
    }

    /// Exchange and routing key, where one of them differs from event to event; of the default exchange the routing key, which is a queue.
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

    /// Opens a channel; twice, if the connection turns out to have ended while nobody used it.
    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(async {
            let asked = match self.ask().await {
                Ok(()) => Ok(()),
                Err(_) => self.ask().await,
            };
            asked.map_or_else(|error| Health::Down { error }, |()| Health::Up)
        })
    }
}
