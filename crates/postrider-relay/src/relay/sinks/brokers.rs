//! Builds the sinks of message brokers from their configuration.

use postrider::ConfigError;
use postrider_kafka::{KafkaConfig, KafkaSink};
use postrider_nats::{NatsConfig, NatsSink};
use postrider_rabbitmq::{RabbitConfig, RabbitSink};
use postrider_redis::{RedisConfig, RedisSink};

use super::{destination, format, tls};
use crate::config::{Kafka, Nats, Rabbitmq, Redis, Route, Sink};

pub(super) fn kafka(sink: &Sink, config: &Kafka, routes: &[&Route]) -> Result<KafkaSink, ConfigError> {
    let topic = destination(&config.topic, &config.topics, routes)?;
    let mut kafka = KafkaConfig::new(&config.brokers, &config.topic)?.topic(topic).format(format(sink));
    for (name, value) in &config.properties {
        kafka = kafka.property(name, value.expose());
    }
    if let Some(events) = sink.batch {
        kafka = kafka.batch_max(events);
    }
    if let Some(limit) = sink.timeout {
        kafka = kafka.send_timeout(limit.0);
    }
    KafkaSink::new(kafka)
}

pub(super) fn redis(sink: &Sink, config: &Redis, routes: &[&Route]) -> Result<RedisSink, ConfigError> {
    let stream = destination(&config.stream, &config.streams, routes)?;
    let mut redis =
        RedisConfig::new(config.url.expose(), &config.stream)?.stream(stream).format(format(sink));
    redis = redis.tls(tls(&config.tls));
    if let Some(entries) = config.max_len {
        redis = redis.stream_len_max(entries);
    }
    if let Some(events) = sink.batch {
        redis = redis.batch_max(events);
    }
    if let Some(limit) = sink.timeout {
        redis = redis.send_timeout(limit.0);
    }
    RedisSink::new(redis)
}

pub(super) fn nats(sink: &Sink, config: &Nats, routes: &[&Route]) -> Result<NatsSink, ConfigError> {
    let subject = destination(&config.subject, &config.subjects, routes)?;
    let mut nats =
        NatsConfig::new(config.url.expose(), &config.subject)?.subject(subject).format(format(sink));
    nats = nats.tls(tls(&config.tls));
    if let Some(file) = &config.credentials_file {
        nats = nats.credentials_file(file);
    }
    if let Some(events) = sink.batch {
        nats = nats.batch_max(events);
    }
    if let Some(limit) = sink.timeout {
        nats = nats.send_timeout(limit.0);
    }
    NatsSink::new(nats)
}

pub(super) fn rabbitmq(sink: &Sink, config: &Rabbitmq, routes: &[&Route]) -> Result<RabbitSink, ConfigError> {
    let template = config.routing_key.as_deref().unwrap_or("{event_type}");
    let routing_key = destination(template, &config.routing_keys, routes)?;
    let mut rabbit =
        RabbitConfig::new(config.url.expose(), template)?.routing_key(routing_key).format(format(sink));
    rabbit = rabbit.tls(tls(&config.tls));
    if let Some(exchange) = &config.exchange {
        rabbit = rabbit.exchange(exchange)?;
    }
    if let Some(events) = sink.batch {
        rabbit = rabbit.batch_max(events);
    }
    if let Some(limit) = sink.timeout {
        rabbit = rabbit.send_timeout(limit.0);
    }
    RabbitSink::new(rabbit)
}
