//! How an event looks outside, for sinks to put into the words of their protocol: a body, a content type and headers
//! ([`Format`]), and the place that it goes to ([`Destination`]).

mod base64;
mod cloud_events;
mod destination;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use cloud_events::{BATCH_CONTENT_TYPE, CloudEvents, STRUCTURED_CONTENT_TYPE};
pub use destination::{Destination, TemplateError};

use crate::Event;

/// The header that carries the event's id.
pub const EVENT_ID: &str = "event-id";
/// The header that carries the event's type.
pub const EVENT_TYPE: &str = "event-type";
/// The header that carries the event's key, where it has one.
pub const EVENT_KEY: &str = "event-key";
/// The header that carries the aggregate's type.
pub const AGGREGATE_TYPE: &str = "aggregate-type";
/// The header that carries the aggregate's id, where there is one.
pub const AGGREGATE_ID: &str = "aggregate-id";
/// The header that carries the tenant's id, where there is one.
pub const TENANT_ID: &str = "tenant-id";
/// The header that carries when it happened, as RFC 3339 in UTC.
pub const OCCURRED_AT: &str = "occurred-at";

/// The headers that carry what Postrider knows of an event. A header of the event's own by one of these names is not sent beside it.
pub const METADATA: [&str; 7] =
    [EVENT_ID, EVENT_TYPE, EVENT_KEY, AGGREGATE_TYPE, AGGREGATE_ID, TENANT_ID, OCCURRED_AT];

/// A header: its name and what it says.
pub type Header<'a> = (Cow<'a, str>, Cow<'a, str>);

/// How an event is put into a message.
///
/// ```
/// use postrider_core::{Event, format::Format};
///
/// let event = Event::json_text("OrderPlaced", r#"{"total":12}"#).aggregate("Order", 42).header("shop", "north").build()?;
/// let message = Format::Raw.message(&event, "ce-");
/// assert_eq!(message.body, &br#"{"total":12}"#[..]);
/// assert_eq!(message.header("event-type"), Some("OrderPlaced"));
/// assert_eq!(message.header("shop"), Some("north"));
/// # Ok::<(), postrider_core::EventError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Format {
    /// The payload as it is; what Postrider knows of the event goes into headers by the names of [`METADATA`].
    #[default]
    Raw,
    /// CloudEvents 1.0, binary: the payload as it is, the attributes in headers.
    CloudEventsBinary(CloudEvents),
    /// CloudEvents 1.0, structured: a JSON object that holds the attributes and the payload.
    CloudEventsStructured(CloudEvents),
}

/// An event as it goes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    /// The media type of the body.
    pub content_type: Cow<'a, str>,
    /// What goes beside the body, the event's own headers last.
    pub headers: Vec<Header<'a>>,
    /// The body.
    pub body: Cow<'a, [u8]>,
}

impl Message<'_> {
    /// What a header says.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_ref())
    }
}

impl Format {
    /// The event as it goes out. Each protocol spells the attributes of a CloudEvent with a prefix of its own: `ce-` for HTTP and
    /// NATS, `ce_` for Kafka, `cloudEvents_` for AMQP.
    pub fn message<'a>(&'a self, event: &'a Event, attribute_prefix: &str) -> Message<'a> {
        let payload = || Cow::Borrowed(event.payload().as_bytes());
        let (content_type, mut headers, body) = match self {
            Self::Raw => (event.content_type().into(), metadata(event), payload()),
            Self::CloudEventsBinary(format) => {
                let attributes = format.attributes(event);
                let named =
                    attributes.map(|(name, value)| (format!("{attribute_prefix}{name}").into(), value));
                (event.content_type().into(), named.collect(), payload())
            }
            Self::CloudEventsStructured(format) => {
                (STRUCTURED_CONTENT_TYPE.into(), Vec::new(), format.structured(event).into_bytes().into())
            }
        };
        let taken = headers.len();
        for (name, value) in event.headers() {
            if !headers.iter().take(taken).any(|(ours, _)| ours.eq_ignore_ascii_case(name)) {
                headers.push((name.into(), value.into()));
            }
        }
        Message { content_type, headers, body }
    }
}

/// What Postrider knows of an event, by the names of [`METADATA`].
pub fn metadata(event: &Event) -> Vec<Header<'_>> {
    let fields = [
        (EVENT_ID, Some(event.id().as_str())),
        (EVENT_TYPE, Some(event.event_type())),
        (EVENT_KEY, event.key()),
        (AGGREGATE_TYPE, Some(event.aggregate_type())),
        (AGGREGATE_ID, event.aggregate_id()),
        (TENANT_ID, event.tenant_id()),
    ];
    let known = fields.into_iter().filter_map(|(name, value)| Some((name.into(), value?.into())));
    known.chain([(OCCURRED_AT.into(), event.occurred_at().to_string().into())]).collect()
}

/// Whether a payload of this content type is JSON.
pub fn is_json(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media_type.ends_with("/json") || media_type.ends_with("+json")
}

/// The payload as JSON text, if that is what it is: one value, whatever its content type says.
pub fn json_text(event: &Event) -> Option<&str> {
    let text = std::str::from_utf8(event.payload().as_bytes()).ok()?;
    serde_json::from_str::<serde::de::IgnoredAny>(text).ok().map(|_| text)
}
