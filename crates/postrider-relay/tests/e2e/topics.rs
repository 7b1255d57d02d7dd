//! What brokers have received, read with a client of their own.

use std::{collections::BTreeMap, time::Duration};

use async_nats::jetstream::{self, stream};
use lapin::{
    Connection, ConnectionProperties, ExchangeKind,
    options::{
        BasicGetOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions,
        QueueDeclareOptions, QueueDeleteOptions,
    },
    types::{AMQPValue, FieldTable},
};
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    message::Headers,
};
use redis::Commands;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A message as its consumer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) key: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) payload: String,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A broker that is named by `host:port`, and topics of one partition, so that everything in them has one order.
pub(crate) struct Kafka(pub(crate) String);

impl Kafka {
    pub(crate) async fn create(&self, topic: &str) {
        let admin: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", &self.0).create().unwrap();
        let topic = NewTopic::new(topic, 1, TopicReplication::Fixed(1));
        for made in admin.create_topics([&topic], &AdminOptions::new()).await.unwrap() {
            made.unwrap();
        }
    }

    /// Everything in a topic, in its order.
    pub(crate) async fn read(&self, topic: &str) -> Vec<Message> {
        let (broker, topic) = (self.0.clone(), topic.to_owned());
        tokio::task::spawn_blocking(move || Self::read_all(&broker, &topic)).await.unwrap()
    }

    fn read_all(broker: &str, topic: &str) -> Vec<Message> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", broker)
            .set("group.id", topic)
            .set("fetch.wait.max.ms", "10")
            .create()
            .unwrap();
        let (_, end) = consumer.fetch_watermarks(topic, 0, TIMEOUT).unwrap();
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
        consumer.assign(&from).unwrap();
        let (mut messages, mut read) = (Vec::new(), 0);
        while read < end {
            let record = consumer.poll(TIMEOUT).expect("what is in a topic can be read").unwrap();
            read = record.offset() + 1;
            let headers = record.headers().into_iter().flat_map(|headers| headers.iter());
            messages.push(Message {
                key: record.key().map(text),
                headers: headers
                    .map(|header| (header.key.to_owned(), text(header.value.unwrap_or_default())))
                    .collect(),
                payload: text(record.payload().unwrap_or_default()),
            });
        }
        messages
    }
}

/// A broker at a URL, and durable queues behind its exchange without a name.
pub(crate) struct Rabbit(pub(crate) String);

impl Rabbit {
    async fn connect(&self) -> (Connection, lapin::Channel) {
        let connection = Connection::connect(&self.0, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        (connection, channel)
    }

    pub(crate) async fn create(&self, queue: &str) {
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        let (_connection, channel) = self.connect().await;
        channel.queue_declare(queue.into(), options, FieldTable::default()).await.unwrap();
    }

    /// An exchange that no queue is bound to.
    pub(crate) async fn exchange(&self, name: &str) {
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let (_connection, channel) = self.connect().await;
        let made = channel.exchange_declare(name.into(), ExchangeKind::Topic, options, FieldTable::default());
        made.await.unwrap();
    }

    /// Binds a queue to all that is sent to an exchange.
    pub(crate) async fn bind(&self, queue: &str, exchange: &str) {
        let (_connection, channel) = self.connect().await;
        let options = QueueBindOptions::default();
        let bound =
            channel.queue_bind(queue.into(), exchange.into(), "#".into(), options, FieldTable::default());
        bound.await.unwrap();
    }

    /// Deletes a queue and an exchange.
    pub(crate) async fn delete(&self, queue: &str, exchange: &str) {
        let (_connection, channel) = self.connect().await;
        channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await.unwrap();
        channel.exchange_delete(exchange.into(), ExchangeDeleteOptions::default()).await.unwrap();
    }

    /// Takes everything out of a queue, in its order.
    pub(crate) async fn take(&self, queue: &str) -> Vec<Message> {
        let (_connection, channel) = self.connect().await;
        let mut messages = Vec::new();
        let options = BasicGetOptions { no_ack: true };
        while let Some(message) = channel.basic_get(queue.into(), options).await.unwrap() {
            let table = message.properties.headers().clone().unwrap_or_default();
            let headers: BTreeMap<_, _> = table
                .inner()
                .iter()
                .map(|(name, value)| match value {
                    AMQPValue::LongString(value) => (name.to_string(), text(value.as_bytes())),
                    other => (name.to_string(), format!("{other:?}")),
                })
                .collect();
            let key = headers.get("event-key").cloned();
            messages.push(Message { key, headers, payload: text(&message.data) });
        }
        messages
    }
}

/// A server at a URL, and streams on its disk.
pub(crate) struct Nats(pub(crate) String);

impl Nats {
    async fn connect(&self) -> jetstream::Context {
        // The client takes no name and password out of a URL.
        let (_, rest) = self.0.split_once("://").unwrap();
        let (account, address) = rest.split_once('@').unwrap();
        let (user, password) = account.split_once(':').unwrap();
        let options = async_nats::ConnectOptions::with_user_and_password(user.into(), password.into());
        jetstream::new(options.connect(address).await.unwrap())
    }

    /// A stream, and a subject of the same name in it.
    pub(crate) async fn create(&self, name: &str) {
        let config = stream::Config {
            name: name.to_owned(),
            subjects: vec![name.to_owned()],
            storage: stream::StorageType::File,
            ..Default::default()
        };
        self.connect().await.create_stream(config).await.unwrap();
    }

    /// Everything in a stream, in its order.
    pub(crate) async fn read(&self, name: &str) -> Vec<Message> {
        let mut stream = self.connect().await.get_stream(name).await.unwrap();
        let state = stream.info().await.unwrap().state.clone();
        let mut messages = Vec::new();
        for sequence in state.first_sequence.max(1)..=state.last_sequence {
            let message = stream.get_raw_message(sequence).await.unwrap();
            let headers: BTreeMap<_, _> = message
                .headers
                .iter()
                .map(|(name, values)| (name.to_string(), values.iter().map(|value| value.as_str()).collect()))
                .collect();
            let key = headers.get("event-key").cloned();
            messages.push(Message { key, headers, payload: text(&message.payload) });
        }
        messages
    }
}

/// A server at a URL.
pub(crate) struct Redis(pub(crate) String);

impl Redis {
    fn connect(&self) -> redis::Connection {
        redis::Client::open(self.0.as_str()).unwrap().get_connection().unwrap()
    }

    /// Makes it write its data to the disk when it ends in order.
    pub(crate) fn keep(&self) {
        let set = redis::cmd("CONFIG").arg("SET").arg("save").arg("3600 1").query::<()>(&mut self.connect());
        set.unwrap();
    }

    /// Everything in a stream, in its order.
    pub(crate) fn read(&self, stream: &str) -> Vec<Message> {
        let entries: redis::streams::StreamRangeReply = self.connect().xrange_all(stream).unwrap();
        let fields = |entry: redis::streams::StreamId| {
            let mut headers: BTreeMap<String, String> = entry
                .map
                .iter()
                .map(|(name, value)| (name.clone(), redis::from_redis_value_ref(value).unwrap()))
                .collect();
            let payload = headers.remove("payload").unwrap();
            Message { key: headers.get("event-key").cloned(), headers, payload }
        };
        entries.ids.into_iter().map(fields).collect()
    }
}
