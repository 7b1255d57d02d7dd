//! The event: immutable, cheap to clone, checked when it is built.

mod builder;
mod error;
pub mod limits;
mod payload;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

pub use builder::{EventBuilder, IntoEvent};
pub use error::EventError;
pub use payload::{JSON, Payload};
use serde::{Serialize, de::DeserializeOwned};

use crate::{EventId, EventType, Timestamp, TraceContext};

/// When an event may be delivered for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// As soon as it is committed.
    AtOnce,
    /// Not before this point in time.
    At(Timestamp),
    /// This long after it was written, on the database's clock.
    After(Duration),
}

/// What business code wants the world to know.
///
/// An event is built with [`Event::json`], [`Event::json_text`] or [`Event::bytes`], which give an [`EventBuilder`].
/// It cannot be changed afterwards, and cloning it copies a pointer.
///
/// ```
/// use postrider_core::Event;
///
/// let event = Event::json_text("OrderPlaced", r#"{"total":12}"#).aggregate("Order", 42).build()?;
/// assert_eq!(event.aggregate_type(), "Order");
/// assert_eq!(event.key(), Some("Order:42"));
/// # Ok::<(), postrider_core::EventError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Event(Arc<Fields>);

impl fmt::Debug for Event {
    /// What tells it apart, the names of its headers and the size of its payload. What headers and payloads say is business
    /// data, and at times a secret: it stays out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// The fields of an event, as a store reads them from a row. [`Event::from_stored`] checks them.
#[derive(Clone, PartialEq, Eq)]
pub struct Fields {
    /// Unique in the outbox.
    pub id: EventId,
    /// What happened.
    pub event_type: String,
    /// What kind of thing it happened to.
    pub aggregate_type: String,
    /// Which one it happened to.
    pub aggregate_id: Option<String>,
    /// The ordering key as it was given.
    pub ordering_key: Option<String>,
    /// Carried through, never interpreted.
    pub tenant_id: Option<String>,
    /// String to string.
    pub headers: BTreeMap<String, String>,
    /// The media type of the payload.
    pub content_type: String,
    /// Text or bytes.
    pub payload: Payload,
    /// When it happened.
    pub occurred_at: Timestamp,
    /// When it may be delivered.
    pub due: Due,
    /// The key that orders it: `ordering_key`, else the aggregate. Filled by [`Event::from_stored`].
    pub key: Option<Arc<str>>,
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("id", &self.id)
            .field("event_type", &self.event_type)
            .field("aggregate_type", &self.aggregate_type)
            .field("aggregate_id", &self.aggregate_id)
            .field("key", &self.key)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}

impl Event {
    /// An event whose payload is `payload` as JSON, serialised here and never again.
    ///
    /// ```
    /// use postrider_core::Event;
    /// #[derive(serde::Serialize)]
    /// struct Order { id: u32 }
    ///
    /// let event = Event::json("OrderPlaced", &Order { id: 7 })?.build()?;
    /// assert_eq!(event.payload().as_text(), Some(r#"{"id":7}"#));
    /// # Ok::<(), postrider_core::EventError>(())
    /// ```
    pub fn json<T: Serialize + ?Sized>(
        event_type: impl EventType,
        payload: &T,
    ) -> Result<EventBuilder, EventError> {
        let text = serde_json::to_string(payload)
            .map_err(|source| EventError::Serialise { event_type: event_type.name().to_owned(), source })?;
        Ok(Self::json_text(event_type, text))
    }

    /// An event whose payload is JSON text that exists already.
    pub fn json_text(event_type: impl EventType, json: impl Into<String>) -> EventBuilder {
        EventBuilder::new(event_type.name(), Payload::Text(json.into().into()), JSON)
    }

    /// An event whose payload is bytes of the given content type.
    pub fn bytes(event_type: impl EventType, content_type: &str, bytes: impl Into<Vec<u8>>) -> EventBuilder {
        EventBuilder::new(event_type.name(), Payload::Bytes(bytes.into().into()), content_type)
    }

    /// An event from the fields of a stored row, with the same checks as a new one: a table can be written to
    /// by anybody.
    pub fn from_stored(mut fields: Fields) -> Result<Self, EventError> {
        builder::check(&fields)?;
        fields.key = match (&fields.ordering_key, &fields.aggregate_id) {
            (Some(key), _) => Some(key.as_str().into()),
            (None, Some(id)) => Some(format!("{}:{id}", fields.aggregate_type).into()),
            (None, None) => None,
        };
        if let Some(key) = &fields.key {
            limits::check_optional("key", key, limits::KEY_CHARS_MAX)?;
        }
        Ok(Self(Arc::new(fields)))
    }

    /// Unique in its outbox; the consumer tells duplicates by it.
    pub fn id(&self) -> &EventId {
        &self.0.id
    }

    /// What happened.
    pub fn event_type(&self) -> &str {
        &self.0.event_type
    }

    /// What kind of thing it happened to; [`GLOBAL_AGGREGATE`](crate::GLOBAL_AGGREGATE) if none was given.
    pub fn aggregate_type(&self) -> &str {
        &self.0.aggregate_type
    }

    /// Which one it happened to.
    pub fn aggregate_id(&self) -> Option<&str> {
        self.0.aggregate_id.as_deref()
    }

    /// The key that orders this event: the one it was given, else its aggregate (`type:id`), else none.
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    /// The key, shared rather than copied.
    pub fn shared_key(&self) -> Option<&Arc<str>> {
        self.0.key.as_ref()
    }

    /// The ordering key that was given, without the aggregate that stands in for it.
    pub fn ordering_key(&self) -> Option<&str> {
        self.0.ordering_key.as_deref()
    }

    /// The tenant; carried through, never interpreted.
    pub fn tenant_id(&self) -> Option<&str> {
        self.0.tenant_id.as_deref()
    }

    /// The headers, in the order of their names.
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.0.headers
    }

    /// The media type of the payload.
    pub fn content_type(&self) -> &str {
        &self.0.content_type
    }

    /// The payload.
    pub fn payload(&self) -> &Payload {
        &self.0.payload
    }

    /// The payload, read as JSON.
    pub fn read_json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(self.0.payload.as_bytes())
    }

    /// When it happened.
    pub fn occurred_at(&self) -> Timestamp {
        self.0.occurred_at
    }

    /// When it may be delivered for the first time.
    pub fn due(&self) -> Due {
        self.0.due
    }

    /// The trace that this event was written in, from its headers.
    pub fn trace_context(&self) -> Option<TraceContext> {
        TraceContext::from_headers(&self.0.headers)
    }

    /// What this event weighs in a queue: payload, headers and a flat amount for the rest, in bytes.
    pub fn weight_bytes(&self) -> usize {
        self.0.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
            + self.0.payload.len()
            + limits::EVENT_FLAT_BYTES
    }

    /// A builder that begins with all the fields of this event: for write hooks, which change events.
    pub fn to_builder(&self) -> EventBuilder {
        EventBuilder::from_fields((*self.0).clone())
    }
}
