//! The bare RabbitMQ client.

use std::sync::Arc;

use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};
use postrider::{BoxFuture, Event};
use postrider_relay::Failure;
use serde_json::{Value, json};

use super::{KEPT, Receiver, by_batches, failed, headers};

/// The delivery mode of messages that survive a restart of the broker.
const PERSISTENT: u8 = 2;

pub(super) struct Place {
    url: String,
    queue: String,
    connection: Connection,
}

impl Place {
    pub(super) async fn create(url: &str, queue: String) -> Result<Self, Failure> {
        let connection = Connection::connect(url, ConnectionProperties::default()).await;
        let place = Self {
            url: url.to_owned(),
            queue,
            connection: connection.map_err(|error| failed("connect to RabbitMQ")(&error))?,
        };
        let mut arguments = FieldTable::default();
        arguments.insert("x-max-length".into(), AMQPValue::LongLongInt(KEPT));
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let declared =
            place.channel().await?.queue_declare(place.queue.as_str().into(), durable, arguments).await;
        declared.map_err(|error| failed("declare a queue")(&error))?;
        Ok(place)
    }

    /// A channel in confirm mode.
    async fn channel(&self) -> Result<Channel, Failure> {
        let cannot = |error| failed("open a channel")(&error);
        let channel = self.connection.create_channel().await.map_err(cannot)?;
        channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(cannot)?;
        Ok(channel)
    }
}

impl Receiver for Place {
    fn section(&self) -> Value {
        json!({ "rabbitmq": { "url": self.url, "routing_key": self.queue } })
    }

    fn produce(&self, events: Arc<Vec<Event>>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            let (queue, channel) = (self.queue.clone(), self.channel().await?);
            let send = move |events: Arc<Vec<Event>>, range: std::ops::Range<usize>| {
                let (queue, channel) = (queue.clone(), channel.clone());
                let sent: BoxFuture<'static, _> = Box::pin(async move {
                    let mandatory = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
                    let mut confirms = Vec::new();
                    for event in events.get(range).into_iter().flatten() {
                        let mut table = FieldTable::default();
                        for (name, value) in headers(event) {
                            table.insert(name.into(), AMQPValue::LongString(value.into()));
                        }
                        let properties = BasicProperties::default()
                            .with_message_id(event.id().as_str().into())
                            .with_content_type(event.content_type().into())
                            .with_delivery_mode(PERSISTENT)
                            .with_headers(table);
                        let payload = event.payload().as_bytes();
                        let sent = channel
                            .basic_publish("".into(), queue.as_str().into(), mandatory, payload, properties)
                            .await;
                        confirms.push(sent.map_err(|error| failed("publish")(&error))?);
                    }
                    for confirm in confirms {
                        if !confirm.await.map_err(|error| failed("publish")(&error))?.is_ack() {
                            return Err(Failure::bad(
                                "RabbitMQ has not taken a message of the bare client's",
                            ));
                        }
                    }
                    Ok(())
                });
                sent
            };
            by_batches(&events, send).await
        })
    }

    fn clear(&self) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            let channel = self.channel().await?;
            let gone = channel.queue_delete(self.queue.as_str().into(), QueueDeleteOptions::default()).await;
            gone.map(|_| ()).map_err(|error| failed("delete a queue")(&error))
        })
    }
}
