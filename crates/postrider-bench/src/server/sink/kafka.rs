//! The bare Kafka client in its fastest form: one call per record, and a thread of its own for reports.

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

/// Bytes that a partition keeps.
const KEPT_BYTES: &str = "20000000";

/// Pause when the producer's queue is full.
const FULL: Duration = Duration::from_millis(1);

pub(super) struct Place {
    brokers: String,
    topic: String,
    admin: AdminClient<DefaultClientContext>,
    /// Created once, because connecting is not part of producing.
    producer: ThreadedProducer<Counting>,
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

/// A producer with the settings that the sink's promises need, and its default linger.
fn producer(brokers: &str) -> Result<ThreadedProducer<Counting>, KafkaError> {
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
    ThreadedProducer::from_config_and_context(&config, Counting)
}

/// Passes each report to the counts of its batch.
struct Counting;

/// Counts acknowledgements.
struct Counts {
    left: AtomicUsize,
    refused: AtomicUsize,
    all: Notify,
}

impl ClientContext for Counting {}

impl ProducerContext for Counting {
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
    producer: &ThreadedProducer<Counting>,
    topic: &str,
    event: &Event,
    counts: &Arc<Counts>,
) -> Result<(), Failure> {
    let texts = headers(event);
    let headers = texts.iter().fold(OwnedHeaders::new_with_capacity(texts.len()), |all, (key, value)| {
        all.insert(Header { key, value: Some(value.as_str()) })
    });
    let mut record = BaseRecord::with_opaque_to(topic, counts.clone())
        .payload(event.payload().as_bytes())
        .headers(headers);
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
