//! A queue of its own for each test on the real broker, and a sink that reaches it through a line.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lapin::{
    Channel, Connection, ConnectionProperties, ExchangeKind,
    message::BasicGetMessage,
    options::{
        BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
    },
    types::{AMQPValue, FieldTable},
};
use postrider_core::Sink;
use postrider_net::Address;
use postrider_rabbitmq::{RabbitConfig, RabbitSink, config::SCHEMES};
use postrider_testkit::conformance::{
    Failure,
    sink::{
        Line, Received, Receiver, Retyped, SinkFeatures, SinkHarness,
        line::{fresh_name, server_url},
        retyped::REFUSED,
    },
};
use secrecy::ExposeSecret;
use tokio::sync::Mutex;

/// How long a hasty sink has for a send.
pub(crate) const HASTE: Duration = Duration::from_secs(3);
pub(crate) const VARIABLE: &str = "POSTRIDER_TEST_RABBITMQ_URL";

pub(crate) fn address() -> Result<Address, Failure> {
    Ok(Address::parse("url", &server_url(VARIABLE)?, SCHEMES)?)
}

/// The broker's URL with another way to it.
pub(crate) fn url_by(scheme: &str, host: &str, port: u16) -> Result<String, Failure> {
    let address = address()?;
    let user = address.username.as_deref().unwrap_or_default();
    let password = address.password.as_ref().map_or("", |password| password.expose_secret());
    Ok(format!("{scheme}://{user}:{password}@{host}:{port}"))
}

/// The URL of the broker by way of a line.
pub(crate) async fn line() -> Result<(Line, String), Failure> {
    let address = address()?;
    let line = Line::to(format!("{}:{}", address.host, address.port)).await?;
    let url = url_by("amqp", "127.0.0.1", line.address().port())?;
    Ok((line, url))
}

/// An exchange with one queue that is bound to it by the key `events`; gone with its connection.
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) channel: Channel,
    connection: Connection,
    /// What was taken from the queue so far.
    taken: Mutex<Vec<BasicGetMessage>>,
}

impl Queue {
    pub(crate) async fn new(arguments: FieldTable) -> Result<Self, Failure> {
        let name = fresh_name();
        let connection = Connection::connect(&server_url(VARIABLE)?, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        let exchange = ExchangeDeclareOptions { auto_delete: true, ..Default::default() };
        channel
            .exchange_declare(name.as_str().into(), ExchangeKind::Direct, exchange, FieldTable::default())
            .await?;
        let queue = QueueDeclareOptions { exclusive: true, auto_delete: true, ..Default::default() };
        channel.queue_declare(name.as_str().into(), queue, arguments).await?;
        let (queue, exchange) = (name.as_str().into(), name.as_str().into());
        let bound = channel.queue_bind(
            queue,
            exchange,
            "events".into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        bound.await?;
        Ok(Self { name, channel, connection, taken: Mutex::default() })
    }

    /// Everything that came, in its order.
    pub(crate) async fn with_messages<T>(
        &self,
        look: impl FnOnce(&[BasicGetMessage]) -> T,
    ) -> Result<T, Failure> {
        let mut taken = self.taken.lock().await;
        let options = BasicGetOptions { no_ack: true };
        while let Some(message) = self.channel.basic_get(self.name.as_str().into(), options).await? {
            taken.push(message);
        }
        Ok(look(&taken))
    }

    pub(crate) async fn count(&self) -> Result<usize, Failure> {
        self.with_messages(<[_]>::len).await
    }

    pub(crate) async fn delete(&self) -> Result<(), Failure> {
        self.channel.queue_delete(self.name.as_str().into(), QueueDeleteOptions::default()).await?;
        Ok(())
    }
}

pub(crate) fn headers(message: &BasicGetMessage) -> BTreeMap<String, String> {
    let table = message.properties.headers().clone().unwrap_or_default();
    let text = |value: &AMQPValue| match value {
        AMQPValue::LongString(text) => String::from_utf8_lossy(text.as_bytes()).into_owned(),
        other => format!("{other:?}"),
    };
    table.inner().iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}

fn received(message: &BasicGetMessage) -> Received {
    let mut headers = headers(message);
    Received {
        id: headers.remove("event-id"),
        event_type: headers.remove("event-type"),
        key: headers.remove("event-key"),
        headers,
        payload: message.data.clone(),
    }
}

pub(crate) struct RabbitHarness {
    pub(crate) sink: Arc<Retyped<RabbitSink>>,
    hasty: Arc<RabbitSink>,
    pub(crate) line: Line,
    pub(crate) queue: Queue,
}

impl SinkHarness for RabbitHarness {
    const FEATURES: SinkFeatures = SinkFeatures { ignore: false, ..SinkFeatures::ALL };

    async fn fresh() -> Result<Self, Failure> {
        let (line, url) = line().await?;
        let queue = Queue::new(FieldTable::default()).await?;
        let mut config = RabbitConfig::new(&url, "events")?.exchange(&queue.name)?;
        config.routing_key = config.routing_key.for_type(REFUSED, "to-nobody")?;
        let hasty = Arc::new(RabbitSink::new(config.clone().send_timeout(HASTE))?);
        Ok(Self { sink: Retyped::new(RabbitSink::new(config)?), hasty, line, queue })
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    fn hasty(&self) -> Option<Arc<dyn Sink>> {
        Some(self.hasty.clone())
    }

    async fn received(&self) -> Result<Vec<Received>, Failure> {
        self.queue.with_messages(|messages| messages.iter().map(received).collect()).await
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
