//! CloudEvents 1.0: the attributes of an event, and its JSON form. The SDK pins old drivers, and this is all that is needed of it.

use std::borrow::Cow;

use super::{Header, base64, is_json, json_text};
use crate::{Event, GLOBAL_AGGREGATE};

/// The content type of one event in structured form.
pub const STRUCTURED_CONTENT_TYPE: &str = "application/cloudevents+json";
/// The content type of a JSON array of events in structured form.
pub const BATCH_CONTENT_TYPE: &str = "application/cloudevents-batch+json";

/// What CloudEvents wants to know that an event does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudEvents {
    /// The `source` attribute: a URI reference that names where the events come from.
    pub source: String,
}

impl Default for CloudEvents {
    fn default() -> Self {
        Self { source: "postrider".to_owned() }
    }
}

impl CloudEvents {
    /// From this source: a URI reference such as `/shop/orders` or `https://shop.example`.
    pub fn new(source: impl Into<String>) -> Self {
        Self { source: source.into() }
    }

    /// The attributes but for `datacontenttype`, which is the content type of a binary message. The key is the extension
    /// `partitionkey`, the trace context the extension of distributed tracing; the others that have no name in the specification
    /// are extensions in its spelling, which has lower-case letters and digits only.
    pub(super) fn attributes<'a>(&'a self, event: &'a Event) -> impl Iterator<Item = Header<'a>> {
        let aggregate_type = Some(event.aggregate_type()).filter(|name| *name != GLOBAL_AGGREGATE);
        let trace = |name: &str| event.headers().get(name).map(String::as_str);
        let fields = [
            ("specversion", Some("1.0")),
            ("id", Some(event.id().as_str())),
            ("source", Some(self.source.as_str())),
            ("type", Some(event.event_type())),
            ("subject", event.aggregate_id()),
            ("partitionkey", event.key()),
            ("aggregatetype", aggregate_type),
            ("tenantid", event.tenant_id()),
            ("traceparent", trace("traceparent")),
            ("tracestate", trace("tracestate")),
        ];
        let time = ("time".into(), event.occurred_at().to_string().into());
        // An attribute may not be empty.
        let said = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.filter(|text| !text.is_empty())?)));
        said.map(|(name, value)| (Cow::from(name), Cow::from(value))).chain([time])
    }

    /// The JSON form. JSON stays what it is to the letter, other text becomes a string, and other bytes base64.
    pub fn structured(&self, event: &Event) -> String {
        let mut json = String::with_capacity(256 + event.payload().len());
        let content_type = ("datacontenttype".into(), event.content_type().into());
        for (name, value) in self.attributes(event).chain([content_type]) {
            json.push(if json.is_empty() { '{' } else { ',' });
            push_string(&mut json, &name);
            json.push(':');
            push_string(&mut json, &value);
        }
        let payload = event.payload();
        let as_it_is = is_json(event.content_type()).then(|| json_text(event)).flatten();
        let as_text = payload.as_text().filter(|_| !is_json(event.content_type()));
        if let Some(text) = as_it_is {
            json.push_str(",\"data\":");
            json.push_str(text);
        } else if let Some(text) = as_text.filter(|text| !text.is_empty()) {
            json.push_str(",\"data\":");
            push_string(&mut json, text);
        } else if !payload.is_empty() {
            json.push_str(",\"data_base64\":\"");
            json.push_str(&base64::encode(payload.as_bytes()));
            json.push('"');
        }
        json.push('}');
        json
    }
}

/// A text as a JSON string.
fn push_string(json: &mut String, text: &str) {
    json.push_str(&serde_json::Value::from(text).to_string());
}
