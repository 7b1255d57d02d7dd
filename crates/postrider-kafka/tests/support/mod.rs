//! A topic of its own for each test on the real broker, and a sink that reaches it through a line.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod front;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use front::Front;
use postrider_core::Sink;
use postrider_kafka::{KafkaConfig, KafkaSink};
use postrider_testkit::conformance::{
    Failure,
    sink::{
        Line, Received, Receiver, Retyped, SinkFeatures, SinkHarness,
        line::{fresh_name, server_url},
        retyped::REFUSED,
    },
};
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    message::{Headers, OwnedMessage},
};

const TIMEOUT: Duration = Duration::from_secs(20);
/// How long a hasty sink has for a send.
pub(crate) const HASTE: Duration = Duration::from_secs(3);

/// Where the broker listens.
pub(crate) fn broker() -> Result<String, Failure> {
    let url = server_url("POSTRIDER_TEST_KAFKA_URL")?;
    Ok(url.strip_prefix("kafka://").ok_or("a URL of kafka://")?.to_owned())
}

/// A topic of one partition, so that everything in it has one order; gone when it is dropped.
pub(crate) struct Topic {
    pub(crate) name: String,
}

impl Topic {
    pub(crate) async fn new(settings: &[(&str, &str)]) -> Result<Self, Failure> {
        let topic = Self { name: fresh_name() };
        let mut new = NewTopic::new(&topic.name, 1, TopicReplication::Fixed(1));
        for (name, value) in settings {
            new = new.set(name, value);
        }
        for made in admin()?.create_topics([&new], &AdminOptions::new()).await? {
            made.map_err(|(name, code)| format!("{name}: {code}"))?;
        }
        Ok(topic)
    }

    /// Everything in it, in its order.
    pub(crate) async fn records(&self) -> Result<Vec<OwnedMessage>, Failure> {
        let name = self.name.clone();
        tokio::task::spawn_blocking(move || read(&name)).await?
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        let name = self.name.clone();
        tokio::spawn(async move {
            if let Ok(admin) = admin() {
                let _ = admin.delete_topics(&[&name], &AdminOptions::new()).await;
            }
        });
    }
}

fn admin() -> Result<AdminClient<DefaultClientContext>, Failure> {
    Ok(ClientConfig::new().set("bootstrap.servers", broker()?).create()?)
}

fn read(topic: &str) -> Result<Vec<OwnedMessage>, Failure> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", broker()?)
        .set("group.id", topic)
        .set("enable.partition.eof", "false")
        .set("fetch.wait.max.ms", "10")
        .create()?;
    let (_, end) = consumer.fetch_watermarks(topic, 0, TIMEOUT)?;
    let mut records = Vec::new();
    if end == 0 {
        return Ok(records);
    }
    let mut from = TopicPartitionList::new();
    from.add_partition_offset(topic, 0, Offset::Beginning)?;
    consumer.assign(&from)?;
    loop {
        let record = consumer.poll(TIMEOUT).ok_or("what is in a topic can be read")??;
        let last = record.offset() + 1 >= end;
        records.push(record.detach());
        if last {
            return Ok(records);
        }
    }
}

pub(crate) fn headers(record: &OwnedMessage) -> BTreeMap<String, String> {
    let headers = record.headers().into_iter().flat_map(|headers| headers.iter());
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    headers.map(|header| (header.key.to_owned(), text(header.value.unwrap_or_default()))).collect()
}

fn received(record: &OwnedMessage) -> Received {
    let mut headers = headers(record);
    headers.remove("event-key");
    Received {
        id: headers.remove("event-id"),
        event_type: headers.remove("event-type"),
        key: record.key().map(|key| String::from_utf8_lossy(key).into_owned()),
        headers,
        payload: record.payload().unwrap_or_default().to_vec(),
    }
}

pub(crate) struct KafkaHarness {
    pub(crate) sink: Arc<Retyped<KafkaSink>>,
    hasty: Arc<KafkaSink>,
    pub(crate) line: Line,
    pub(crate) topic: Topic,
    _front: Front,
    /// Takes no record.
    _narrow: Topic,
}

impl SinkHarness for KafkaHarness {
    const FEATURES: SinkFeatures = SinkFeatures { ignore: false, ..SinkFeatures::ALL };

    async fn fresh() -> Result<Self, Failure> {
        let (front, line) = Front::with_line(broker()?).await?;
        let topic = Topic::new(&[]).await?;
        let narrow = Topic::new(&[("max.message.bytes", "1")]).await?;
        let mut config = KafkaConfig::new(&line.address().to_string(), &topic.name)?;
        config.topic = config.topic.for_type(REFUSED, &narrow.name)?;
        let hasty = Arc::new(KafkaSink::new(config.clone().send_timeout(HASTE))?);
        let sink = Retyped::new(KafkaSink::new(config)?);
        Ok(Self { sink, hasty, line, topic, _front: front, _narrow: narrow })
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    fn hasty(&self) -> Option<Arc<dyn Sink>> {
        Some(self.hasty.clone())
    }

    async fn received(&self) -> Result<Vec<Received>, Failure> {
        Ok(self.topic.records().await?.iter().map(received).collect())
    }

    async fn set_receiver(&self, receiver: Receiver) -> Result<(), Failure> {
        self.sink.set(&receiver)?;
        self.line.set(&receiver);
        Ok(())
    }

    async fn stalled(&self) -> Result<(), Failure> {
        self.line.stalled().await
    }
}
