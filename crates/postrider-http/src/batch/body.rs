//! Builds the body of a request from unchanged payloads.

use postrider_core::{
    Delivery, Event,
    format::{BATCH_CONTENT_TYPE, json_text},
};
use reqwest::header::HeaderValue;

use crate::BatchBody;

impl BatchBody {
    pub(super) fn content_type(&self) -> HeaderValue {
        match self {
            Self::Payloads => HeaderValue::from_static("application/json"),
            Self::CloudEvents(_) => HeaderValue::from_static(BATCH_CONTENT_TYPE),
        }
    }

    /// Whether the event can be part of a body; the error says why not.
    pub(super) fn takes(&self, event: &Event) -> Result<(), String> {
        match self {
            Self::Payloads if json_text(event).is_none() => Err(
                "the payload is not JSON, and the receiver wants an array of JSON: send it elsewhere, or as CloudEvents"
                    .to_owned(),
            ),
            Self::Payloads | Self::CloudEvents(_) => Ok(()),
        }
    }

    /// The body of these events of the batch, which were checked.
    pub(super) fn build(&self, batch: &[Delivery], places: &[usize]) -> Vec<u8> {
        let events = || places.iter().filter_map(|place| batch.get(*place)).map(|delivery| &delivery.event);
        let payload_bytes: usize = events().map(|event| event.payload().len() + 1).sum();
        let mut body = Vec::with_capacity(payload_bytes + 1);
        body.push(b'[');
        for (number, event) in events().enumerate() {
            if number > 0 {
                body.push(b',');
            }
            match self {
                Self::Payloads => body.extend_from_slice(event.payload().as_bytes()),
                Self::CloudEvents(format) => body.extend_from_slice(format.structured(event).as_bytes()),
            }
        }
        body.push(b']');
        body
    }
}
