//! The Redis sink: sends batches through one connection at a time.

use std::time::Duration;

use postrider_core::{
    BatchOrder, BoxFuture, ConfigError, Delivery, Event, Health, Outcome, Sink, SinkTraits, sink::error_chain,
};
use postrider_net::{Deadline, Link, destination, health};
use redis::{Pipeline, RedisResult, Value};

use crate::{RedisConfig, connection::Connector, message, outcome};

/// Approximate bytes of commands in one write. A larger batch is written in parts, because its events are in memory twice: as events and
/// as commands.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// Events as entries of Redis Streams. The crate's documentation lists its promises.
#[derive(Debug)]
pub struct RedisSink {
    config: RedisConfig,
    link: Link<Connector>,
}

impl RedisSink {
    /// Checks the configuration and reads the TLS files. The first event connects.
    pub fn new(config: RedisConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let link = Link::new(Connector::new(&config)?, config.limits.connect_timeout);
        Ok(Self { config, link })
    }

    async fn send_batch(&self, batch: &[Delivery]) -> Vec<Outcome> {
        let deadline = Deadline::within(self.config.limits.send_timeout);
        let mut outcomes = vec![None; batch.len()];
        let mut rest = batch.iter().zip(&mut outcomes);
        loop {
            let (pipeline, mut places) = self.next_chunk(&mut rest);
            if pipeline.is_empty() {
                break;
            }
            if deadline.is_over() {
                places.into_iter().for_each(|place| *place = Some(Outcome::deferred(Duration::ZERO)));
                continue;
            }
            match self.apply(&pipeline, &deadline).await {
                Ok(replies) => {
                    for (place, reply) in places.iter_mut().zip(replies) {
                        **place = Some(outcome::of_reply(reply));
                    }
                }
                Err(outcome @ Outcome::Unavailable { .. }) => {
                    // The remaining parts would fail too, each after an attempt to connect.
                    places.extend(rest.map(|(_, place)| place).filter(|place| place.is_none()));
                    places.into_iter().for_each(|place| *place = Some(outcome.clone()));
                    break;
                }
                Err(outcome) => places.into_iter().for_each(|place| *place = Some(outcome.clone())),
            }
        }
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(Outcome::missing)).collect()
    }

    /// Takes as many commands as one write may hold, with the places for their outcomes. An event without a command gets its outcome here.
    fn next_chunk<'a>(
        &self,
        rest: &mut impl Iterator<Item = (&'a Delivery, &'a mut Option<Outcome>)>,
    ) -> (Pipeline, Vec<&'a mut Option<Outcome>>) {
        let (mut pipeline, mut places, mut bytes) = (Pipeline::new(), Vec::new(), 0);
        pipeline.ignore_errors();
        while bytes < CHUNK_BYTES
            && let Some((delivery, place)) = rest.next()
        {
            match message::command(&self.config, delivery) {
                Ok(command) => {
                    bytes += delivery.weight_bytes();
                    pipeline.add_command(command);
                    places.push(place);
                }
                Err(reason) => *place = Some(Outcome::rejected(reason)),
            }
        }
        (pipeline, places)
    }

    /// Runs the commands. Returns Redis's reply to each, or the outcome of all if there is no reply.
    async fn apply(
        &self,
        pipeline: &Pipeline,
        deadline: &Deadline,
    ) -> Result<Vec<RedisResult<Value>>, Outcome> {
        let connection = self.link.get_before(deadline).await.map_err(Outcome::unavailable)?;
        let watch = self.link.watch(&connection);
        match deadline.before(pipeline.query_async::<Vec<_>>(&mut connection.commands())).await {
            None => Err(Outcome::unknown(deadline.no_answer())),
            Some(Ok(replies)) => {
                if !replies.iter().any(outcome::is_misled) {
                    watch.answered();
                }
                Ok(replies)
            }
            Some(Err(error)) => {
                drop(watch);
                Err(self.link.lost("the answer", &error_chain(&error), deadline).await)
            }
        }
    }

    async fn ping(&self) -> Result<(), String> {
        let connection = self.link.get().await?;
        let watch = self.link.watch(&connection);
        let answer = redis::cmd("PING").exec_async(&mut connection.commands()).await;
        match answer {
            Err(error) if error.is_io_error() => Err(error_chain(&error)),
            answered => {
                watch.answered();
                answered.map_err(|error| error_chain(&error))
            }
        }
    }
}

impl Sink for RedisSink {
    fn traits(&self) -> SinkTraits {
        self.config.limits.traits(BatchOrder::Independent)
    }

    /// The stream, if streams differ from event to event.
    fn destination(&self, event: &Event) -> Option<String> {
        destination::of_event(&self.config.stream, event)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(self.send_batch(batch))
    }

    /// Sends `PING`.
    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(health::ask_twice(|| self.ping()))
    }
}
