//! Builds the sinks of message brokers from their configuration.

use postrider::{ConfigError, format::Destination};
use postrider_kafka::{KafkaConfig, KafkaSink};
use postrider_nats::{NatsConfig, NatsSink};
use postrider_net::Limits;
use postrider_rabbitmq::{RabbitConfig, RabbitSink};
use postrider_redis::{RedisConfig, RedisSink};

use super::{destination, format};
use crate::config::{Kafka, Nats, Rabbitmq, Redis, Route, Sink};

pub(super) fn kafka(sink: &Sink, config: &Kafka, routes: &[&Route]) -> Result<KafkaSink, ConfigError> {
    let mut kafka = KafkaConfig::new(&config.brokers, &config.topic)?;
    kafka.topic = destination(&config.topic, &config.topics, routes)?;
    kafka.format = format(sink);
    let properties = config.properties.iter();
    kafka.properties = properties.map(|(name, value)| (name.clone(), value.expose().into())).collect();
    set_limits(&mut kafka.limits, sink);
    KafkaSink::new(kafka)
}

pub(super) fn redis(sink: &Sink, config: &Redis, routes: &[&Route]) -> Result<RedisSink, ConfigError> {
    let mut redis = RedisConfig::new(config.url.expose(), &config.stream)?;
    redis.stream = destination(&config.stream, &config.streams, routes)?;
    redis.format = format(sink);
    redis.tls = config.tls.clone();
    redis.stream_len_max = config.max_len;
    set_limits(&mut redis.limits, sink);
    RedisSink::new(redis)
}

pub(super) fn nats(sink: &Sink, config: &Nats, routes: &[&Route]) -> Result<NatsSink, ConfigError> {
    let mut nats = NatsConfig::new(config.url.expose(), &config.subject)?;
    nats.subject = destination(&config.subject, &config.subjects, routes)?;
    nats.format = format(sink);
    nats.tls = config.tls.clone();
    nats.credentials_file = config.credentials_file.clone();
    set_limits(&mut nats.limits, sink);
    NatsSink::new(nats)
}

pub(super) fn rabbitmq(sink: &Sink, config: &Rabbitmq, routes: &[&Route]) -> Result<RabbitSink, ConfigError> {
    let template = config.routing_key.as_deref().unwrap_or("{event_type}");
    let mut rabbit = RabbitConfig::new(config.url.expose(), template)?;
    rabbit.routing_key = destination(template, &config.routing_keys, routes)?;
    rabbit.exchange = config.exchange.as_deref().map(Destination::new).transpose()?;
    rabbit.format = format(sink);
    rabbit.tls = config.tls.clone();
    set_limits(&mut rabbit.limits, sink);
    RabbitSink::new(rabbit)
}

/// Replaces the default limits of a sink by those that the configuration sets.
fn set_limits(limits: &mut Limits, sink: &Sink) {
    limits.batch_max = sink.batch.unwrap_or(limits.batch_max);
    limits.send_timeout = sink.timeout.map_or(limits.send_timeout, |timeout| timeout.0);
}
