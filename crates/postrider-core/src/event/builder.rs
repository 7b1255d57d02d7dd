//! Building an event, and the checks that every event passes.

use std::{collections::BTreeMap, time::Duration};

use super::{Due, Event, EventError, Fields, Payload, limits};
use crate::{AggregateType, EventId, EventType, GLOBAL_AGGREGATE, Timestamp, TraceContext};

/// An event that is being put together. Every limit is checked by [`build`](EventBuilder::build).
///
/// ```
/// use postrider_core::Event;
/// use std::time::Duration;
///
/// let event = Event::json_text("InvoiceDue", "{}")
///     .aggregate("Invoice", "2026-17")
///     .tenant("acme")
///     .header("source", "billing")
///     .deliver_after(Duration::from_secs(3600))
///     .build()?;
/// assert_eq!(event.headers()["source"], "billing");
/// # Ok::<(), postrider_core::EventError>(())
/// ```
///
/// A delay is a [`Duration`], so a negative one does not compile:
///
/// ```compile_fail
/// postrider_core::Event::json_text("X", "{}").deliver_after(-1);
/// ```
///
/// and since a payload is what a builder begins with, an event cannot have none, or two:
///
/// ```compile_fail
/// postrider_core::EventBuilder::default().build();
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built or written"]
pub struct EventBuilder {
    fields: Fields,
    both_times: bool,
}

impl EventBuilder {
    pub(super) fn new(event_type: &str, payload: Payload, content_type: &str) -> Self {
        Self::from_fields(Fields {
            id: EventId::ulid(),
            event_type: event_type.to_owned(),
            aggregate_type: GLOBAL_AGGREGATE.to_owned(),
            aggregate_id: None,
            ordering_key: None,
            tenant_id: None,
            headers: BTreeMap::new(),
            content_type: content_type.to_owned(),
            payload,
            occurred_at: Timestamp::now(),
            due: Due::AtOnce,
            key: None,
        })
    }

    pub(super) fn from_fields(fields: Fields) -> Self {
        Self { fields, both_times: false }
    }

    /// An id of your own, unique in the outbox. Without one the event has a new monotonic ULID.
    pub fn id(mut self, id: impl Into<EventId>) -> Self {
        self.fields.id = id.into();
        self
    }

    /// Another event type than the one that the builder began with.
    pub fn event_type(mut self, event_type: impl EventType) -> Self {
        self.fields.event_type = event_type.name().to_owned();
        self
    }

    /// What the event is about. Events of one aggregate are delivered in order, unless a
    /// [`key`](EventBuilder::key) is given.
    pub fn aggregate(self, aggregate_type: impl AggregateType, id: impl ToString) -> Self {
        let mut this = self.aggregate_type(aggregate_type);
        this.fields.aggregate_id = Some(id.to_string());
        this
    }

    /// What kind of thing the event is about, where there is no single one. It gives no order.
    pub fn aggregate_type(mut self, aggregate_type: impl AggregateType) -> Self {
        self.fields.aggregate_type = aggregate_type.name().to_owned();
        self
    }

    /// The ordering key. Events of one key are delivered in order.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.fields.ordering_key = Some(key.into());
        self
    }

    /// The tenant: stored, delivered, never interpreted.
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.fields.tenant_id = Some(tenant.into());
        self
    }

    /// One more header; an earlier one of that name is replaced.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.fields.headers.insert(name.into(), value.into());
        self
    }

    /// Several more headers.
    pub fn headers<N: Into<String>, V: Into<String>>(
        mut self,
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        self.fields.headers.extend(headers.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// Another payload than the one that the builder began with.
    pub fn payload(mut self, payload: Payload, content_type: impl Into<String>) -> Self {
        self.fields.payload = payload;
        self.fields.content_type = content_type.into();
        self
    }

    /// The trace that this event belongs to. Without one, the trace that is current at `write` is taken.
    pub fn trace_context(mut self, context: &TraceContext) -> Self {
        context.write_to(&mut self.fields.headers);
        self
    }

    /// When it happened; now, if nothing is said.
    pub fn occurred_at(mut self, time: impl Into<Timestamp>) -> Self {
        self.fields.occurred_at = time.into();
        self
    }

    /// Deliver it at this time or later. Until then it does not hold its key, and several that come due together have no
    /// order of their own.
    pub fn available_at(mut self, time: impl Into<Timestamp>) -> Self {
        self.both_times |= matches!(self.fields.due, Due::After(_));
        self.fields.due = Due::At(time.into());
        self
    }

    /// Deliver it this long after it was written.
    pub fn deliver_after(mut self, delay: Duration) -> Self {
        self.both_times |= matches!(self.fields.due, Due::At(_));
        self.fields.due = Due::After(delay);
        self
    }

    /// Checks every limit and gives the event.
    pub fn build(self) -> Result<Event, EventError> {
        if self.both_times {
            return Err(EventError::BothTimes);
        }
        Event::from_stored(self.fields)
    }
}

/// What can be written: an [`Event`], or an [`EventBuilder`] that is built on the way.
pub trait IntoEvent {
    /// The event, or why there is none.
    fn into_event(self) -> Result<Event, EventError>;
}

impl IntoEvent for Event {
    fn into_event(self) -> Result<Event, EventError> {
        Ok(self)
    }
}

impl IntoEvent for &Event {
    fn into_event(self) -> Result<Event, EventError> {
        Ok(self.clone())
    }
}

impl IntoEvent for EventBuilder {
    fn into_event(self) -> Result<Event, EventError> {
        self.build()
    }
}

impl IntoEvent for Result<EventBuilder, EventError> {
    fn into_event(self) -> Result<Event, EventError> {
        self?.build()
    }
}

/// Checks every field but the key that is derived from others.
pub(super) fn check(fields: &Fields) -> Result<(), EventError> {
    use limits::{check_optional, check_size, check_text};
    check_text("event_id", fields.id.as_str(), limits::ID_CHARS_MAX)?;
    check_text("event_type", &fields.event_type, limits::EVENT_TYPE_CHARS_MAX)?;
    check_text("aggregate_type", &fields.aggregate_type, limits::AGGREGATE_TYPE_CHARS_MAX)?;
    check_text("content_type", &fields.content_type, limits::CONTENT_TYPE_CHARS_MAX)?;
    if let Some(id) = &fields.aggregate_id {
        check_text("aggregate_id", id, limits::AGGREGATE_ID_CHARS_MAX)?;
    }
    if let Some(key) = &fields.ordering_key {
        check_text("key", key, limits::KEY_CHARS_MAX)?;
    }
    if let Some(tenant) = &fields.tenant_id {
        check_text("tenant_id", tenant, limits::TENANT_ID_CHARS_MAX)?;
    }
    let mut headers_bytes = 0;
    for (name, value) in &fields.headers {
        check_text("header name", name, limits::HEADERS_BYTES_MAX)?;
        check_optional("header value", value, limits::HEADERS_BYTES_MAX)?;
        headers_bytes += name.len() + value.len();
    }
    check_size("headers", headers_bytes, limits::HEADERS_BYTES_MAX, "bytes")?;
    check_size("payload", fields.payload.len(), limits::PAYLOAD_BYTES_MAX, "bytes")?;
    if fields.payload.as_text().is_some_and(|text| text.contains('\0')) {
        return Err(EventError::Nul { field: "payload" });
    }
    Ok(())
}
