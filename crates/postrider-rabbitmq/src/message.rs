//! Turns an event into a RabbitMQ message.

use std::borrow::Cow;

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, ShortString},
};
use postrider_core::Event;

use crate::RabbitConfig;

/// The prefix of CloudEvents attributes in headers.
const ATTRIBUTE_PREFIX: &str = "cloudEvents_";
/// The delivery mode of messages that durable queues keep on disk.
const PERSISTENT: u8 = 2;
const MICROS_PER_SECOND: i64 = 1_000_000;

/// An event as a message.
pub(crate) struct Outgoing<'a> {
    pub(crate) exchange: ShortString,
    pub(crate) routing_key: ShortString,
    pub(crate) properties: BasicProperties,
    pub(crate) body: Cow<'a, [u8]>,
}

/// The message of an event, or why it has none.
pub(crate) fn outgoing<'a>(config: &'a RabbitConfig, event: &'a Event) -> Result<Outgoing<'a>, String> {
    let exchange =
        config.exchange.as_ref().map_or(Ok(Cow::Borrowed("")), |exchange| exchange.resolve(event))?;
    let routing_key = config.routing_key.resolve(event)?;
    let message = config.format.message(event, ATTRIBUTE_PREFIX);
    let mut headers = FieldTable::default();
    for (name, value) in message.headers {
        headers
            .insert(short("the name of a header", name)?, AMQPValue::LongString(value.into_owned().into()));
    }
    let mut properties = BasicProperties::default()
        .with_message_id(short("the event's id", event.id().as_str())?)
        .with_content_type(short("the content type", message.content_type)?)
        .with_timestamp(
            u64::try_from(event.occurred_at().as_micros() / MICROS_PER_SECOND).unwrap_or_default(),
        )
        .with_delivery_mode(PERSISTENT)
        .with_headers(headers);
    if let Ok(name) = ShortString::try_new(event.event_type()) {
        properties = properties.with_type(name);
    }
    Ok(Outgoing {
        exchange: short("the exchange", exchange)?,
        routing_key: short("the routing key", routing_key)?,
        properties,
        body: message.body,
    })
}

fn short(what: &str, text: impl Into<String>) -> Result<ShortString, String> {
    let text = text.into();
    let bytes = text.len();
    ShortString::try_new(text).map_err(|_| format!("{what} has {bytes} bytes, and AMQP takes 255"))
}
