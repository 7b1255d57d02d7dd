//! Batches through one connection.

use std::{borrow::Cow, fmt, time::Duration};

use postrider_core::{
    BatchOrder, BoxFuture, ConfigError, Delivery, Event, Health, Outcome, Sink, SinkTraits, sink::error_chain,
};
use postrider_net::{Deadline, Link, destination::varies};
use redis::{Pipeline, RedisError, RedisResult, Value};

use crate::{RedisConfig, connection::Connector, message, outcome};

/// About how many bytes of commands are written at once. A batch that is larger is written in parts, so that what is held twice,
/// as events and as commands, has a limit.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// Events as entries of Redis Streams. See the documentation of this crate for what it promises.
pub struct RedisSink {
    config: RedisConfig,
    link: Link<Connector>,
}

impl fmt::Debug for RedisSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSink").field("config", &self.config).field("link", &self.link).finish()
    }
}

impl RedisSink {
    /// Checks the configuration and reads the files of TLS. Nothing is connected before the first event.
    pub fn new(config: RedisConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let link = Link::new(Connector::new(&config)?, config.connect_timeout);
        Ok(Self { config, link })
    }

    async fn send_batch(&self, batch: &[Delivery]) -> Vec<Outcome> {
        let deadline = Deadline::within(self.config.send_timeout);
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
                    // The parts behind this one would come to nothing either, and each would wait for a connection of its own.
                    places.extend(rest.map(|(_, place)| place).filter(|place| place.is_none()));
                    places.into_iter().for_each(|place| *place = Some(outcome.clone()));
                    break;
                }
                Err(outcome) => places.into_iter().for_each(|place| *place = Some(outcome.clone())),
            }
        }
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(Outcome::missing)).collect()
    }

    /// As many commands as are written at once, and where their outcomes go. What cannot be said gets its outcome here.
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

    /// What Redis answers to each command; or, if there is no answer, the outcome of all.
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
                Err(self.lost(&error, deadline).await)
            }
        }
    }

    /// The connection was lost under what was sent. If the server is there, nobody knows what it took; if it is not, it is down.
    async fn lost(&self, error: &RedisError, deadline: &Deadline) -> Outcome {
        let error = error_chain(error);
        match deadline.before(self.link.get()).await {
            Some(Ok(_)) | None => {
                Outcome::unknown(format!("the connection was lost before the answer: {error}"))
            }
            Some(Err(down)) => {
                Outcome::unavailable(format!("{down}; the connection before was lost: {error}"))
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
        SinkTraits {
            batch_max: self.config.batch_max,
            order: BatchOrder::Independent,
            send_timeout: Some(self.config.send_timeout),
            ..SinkTraits::SINK
        }
    }

    /// The stream, where it differs from event to event.
    fn destination(&self, event: &Event) -> Option<String> {
        let stream = &self.config.stream;
        varies(stream).then(|| stream.resolve(event).ok())?.map(Cow::into_owned)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(self.send_batch(batch))
    }

    /// Asks with `PING`; twice, if the connection turns out to have ended while nobody used it.
    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(async {
            let asked = match self.ping().await {
                Ok(()) => Ok(()),
                Err(_) => self.ping().await,
            };
            asked.map_or_else(|error| Health::Down { error }, |()| Health::Up)
        })
    }
}
