//! The span of one delivery.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use postrider::{Delivery, Outcome, TraceContext};
use serde_json::{Value, json};

use super::export::Queue;

/// Values of OTLP's enums.
const KIND_PRODUCER: u8 = 4;
const STATUS_ERROR: u8 = 2;

/// What all spans of a sink have in common.
#[derive(Debug)]
pub(crate) struct Labels {
    pub(crate) source: String,
    pub(crate) sink: String,
    /// The kind of the sink, such as `kafka`.
    pub(crate) system: &'static str,
}

/// The span of a delivery under way. If it is dropped without an outcome, the delivery timed out.
pub(crate) struct OpenSpan {
    queue: Queue,
    span: Option<Span>,
}

/// The span of a delivery, ended or not.
#[derive(Debug)]
pub(super) struct Span {
    parent: TraceContext,
    context: TraceContext,
    labels: Arc<Labels>,
    event_id: String,
    event_type: String,
    key: Option<String>,
    attempt: u32,
    began: SystemTime,
    ended: SystemTime,
    error: Option<String>,
}

impl OpenSpan {
    pub(super) fn new(
        queue: Queue,
        delivery: &Delivery,
        parent: TraceContext,
        context: TraceContext,
        labels: Arc<Labels>,
    ) -> Self {
        let now = SystemTime::now();
        let span = Span {
            parent,
            context,
            labels,
            event_id: delivery.id().as_str().to_owned(),
            event_type: delivery.event_type().to_owned(),
            key: delivery.key().map(str::to_owned),
            attempt: delivery.attempt,
            began: now,
            ended: now,
            error: Some("no answer in time".to_owned()),
        };
        Self { queue, span: Some(span) }
    }

    /// Ends the span with the sink's outcome.
    pub(crate) fn end(mut self, outcome: &Outcome) {
        if let Some(span) = &mut self.span {
            span.error = match outcome {
                Outcome::Delivered => None,
                outcome => Some(outcome.error().unwrap_or("deferred").to_owned()),
            };
        }
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        if let Some(mut span) = self.span.take() {
            span.ended = SystemTime::now();
            self.queue.push(span);
        }
    }
}

impl Span {
    /// The span in OTLP's JSON.
    pub(super) fn to_json(&self) -> Value {
        let Labels { source, sink, system } = &*self.labels;
        let mut attributes = vec![
            text("messaging.system", system),
            text("messaging.operation.type", "send"),
            text("messaging.message.id", &self.event_id),
            text("postrider.event_type", &self.event_type),
            text("postrider.source", source),
            text("postrider.sink", sink),
            json!({ "key": "postrider.attempt", "value": { "intValue": self.attempt.to_string() } }),
        ];
        attributes.extend(self.key.as_ref().map(|key| text("postrider.key", key)));
        let mut span = json!({
            "traceId": self.context.trace_id(),
            "spanId": self.context.span_id(),
            "parentSpanId": self.parent.span_id(),
            "name": format!("send {}", self.event_type),
            "kind": KIND_PRODUCER,
            "startTimeUnixNano": nanos(self.began),
            "endTimeUnixNano": nanos(self.ended),
            "attributes": attributes,
        });
        if let Value::Object(span) = &mut span {
            if let Some(state) = self.context.tracestate() {
                span.insert("traceState".to_owned(), json!(state));
            }
            if let Some(error) = &self.error {
                span.insert("status".to_owned(), json!({ "code": STATUS_ERROR, "message": error }));
            }
        }
        span
    }
}

/// A text attribute.
pub(super) fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// Nanoseconds as text, because JSON numbers are not exact enough.
fn nanos(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}
