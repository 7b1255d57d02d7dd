//! Kafka, its client in its fastest form: a thread of its own for what the broker answers, and one call a record.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use postrider::{BoxFuture, Event};
use postrider_relay::Failure;
use rdkafka::{
    ClientConfig, ClientContext,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    config::FromClientConfigAndContext,
    error::KafkaError,
    message::{DeliveryResult, Header, OwnedHeaders},
    producer::{BaseRecord, ProducerContext, ThreadedProducer},
    types::RDKafkaErrorCode,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{Receiver, failed, headers};

/// Partitions of the topic.
const PARTITIONS: i32 = 6;

/// What a topic keeps of a partition, in bytes.
const KEPT_BYTES: &str = "20000000";

/// How long a producer that is full is left alone.
const FULL: Duration = Duration::from_millis(1);

pub(super) struct Place {
    brokers: String,
    topic: String,
    admin: AdminClient<DefaultClientContext>,
    /// Made once: connecting is no part of producing.
    producer: ThreadedProducer<Told>,
}

impl Place {
    pub(super) async fn create(brokers: &str, topic: String) -> Result<Self, Failure> {
        let cannot = |error| failed("create a topic")(&error);
        let admin: AdminClient<_> =
            ClientConfig::new().set("bootstrap.servers", brokers).create().map_err(cannot)?;
        let wanted =
            NewTopic::new(&topic, PARTITIONS, TopicReplication::Fixed(-1)).set("retention.bytes", KEPT_BYTES);
        let created = admin.create_topics(&[wanted], &AdminOptions::new()).await.map_err(cannot)?;
        for result in created {
            result.map_err(|(topic, code)| Failure::bad(format!("Kafka does not create {topic}: {code}")))?;
        }
        Ok(Self { brokers: brokers.to_owned(), topic, admin, producer: producer(brokers).map_err(cannot)? })
    }
}

/// A producer with what the sink cannot do without, and the sink's default.
fn producer(brokers: &str) -> Result<ThreadedProducer<Told>, KafkaError> {
    let mut config = ClientConfig::new();
    for (name, value) in [
        ("bootstrap.servers", brokers),
        ("acks", "all"),
        ("enable.idempotence", "true"),
        ("partitioner", "murmur2_random"),
        ("linger.ms", "1"),
    ] {
        config.set(name, value);
    }
    ThreadedProducer::from_config_and_context(&config, Told)
}

/// What the broker says of a record goes to those who count.
struct Told;

/// Counts what is acknowledged.
struct Counts {
    left: AtomicUsize,
    refused: AtomicUsize,
    all: Notify,
}

impl ClientContext for Told {}

impl ProducerContext for Told {
    type DeliveryOpaque = Arc<Counts>;

    fn delivery(&self, result: &DeliveryResult<'_>, counts: Arc<Counts>) {
        if result.is_err() {
            counts.refused.fetch_add(1, SeqCst);
        }
        if counts.left.fetch_sub(1, SeqCst) == 1 {
            counts.all.notify_one();
        }
    }
}

impl Receiver for Place {
    fn section(&self) -> Value {
        json!({ "kafka": { "brokers": self.brokers, "topic": self.topic } })
    }

    fn produce(&self, events: Arc<Vec<Event>>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            let counts = Counts { left: events.len().into(), refused: 0.into(), all: Notify::new() };
            let counts = Arc::new(counts);
            for event in events.iter() {
                produce(&self.producer, &self.topic, event, &counts).await?;
            }
            counts.all.notified().await;
            match counts.refused.load(SeqCst) {
                0 => Ok(()),
                refused => {
                    Err(Failure::bad(format!("Kafka has refused {refused} records of the bare client's")))
                }
            }
        })
    }

    fn clear(&self) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            let gone = self.admin.delete_topics(&[self.topic.as_str()], &AdminOptions::new()).await;
            gone.map(|_| ()).map_err(|error| failed("delete a topic")(&error))
        })
    }
}

async fn produce(
    producer: &ThreadedProducer<Told>,
    topic: &str,
    event: &Event,
    counts: &Arc<Counts>,
) -> Result<(), Failure> {
    let said = headers(event);
    let said = said.iter().fold(OwnedHeaders::new_with_capacity(said.len()), |all, (key, value)| {
        all.insert(Header { key, value: Some(value.as_str()) })
    });
    let mut record =
        BaseRecord::with_opaque_to(topic, counts.clone()).payload(event.payload().as_bytes()).headers(said);
    record.key = event.key();
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), again)) => {
                record = again;
                tokio::time::sleep(FULL).await;
            }
            Err((error, _)) => return Err(failed("produce")(&error)),
        }
    }
}
