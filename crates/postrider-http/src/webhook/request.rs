//! Turns an event into a request.

use std::{borrow::Cow, time::SystemTime};

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use postrider_core::{
    Event,
    format::{Format, Header},
};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::Signer;
use crate::{
    WebhookConfig,
    client::{Client, Request},
    endpoint::OWN_HEADERS,
    limits,
};

/// The prefix of CloudEvents attributes in headers.
const ATTRIBUTE_PREFIX: &str = "ce-";

/// Characters that the HTTP binding of CloudEvents escapes in an attribute.
const ATTRIBUTE_ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// Full stops separate the parts of what is signed, so an ID cannot contain one.
const ID_ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// The request, or why the event has none.
pub(super) fn of(
    config: &WebhookConfig,
    client: &Client,
    signer: &Signer,
    event: &Event,
    path: &str,
) -> Result<Request, String> {
    let message = config.format.message(event, ATTRIBUTE_PREFIX);
    let is_cloud_event = matches!(config.format, Format::CloudEventsBinary(_));
    let mut headers = HeaderMap::with_capacity(message.headers.len() + 3);
    for header in &message.headers {
        let (name, value) = header_of(header, is_cloud_event)?;
        if OWN_HEADERS.contains(&name.as_str()) || client.fixed_headers.contains_key(&name) {
            return Err(format!("the event has a header {name:?}, which this sink says itself: rename it"));
        }
        if headers.insert(&name, value).is_some() {
            return Err(format!("the event has two headers {name:?}, and HTTP tells no letter's case"));
        }
    }
    let id: Cow<'_, str> = utf8_percent_encode(event.id().as_str(), ID_ESCAPED).into();
    let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    headers.insert("webhook-id", header_value("webhook-id", &id)?);
    headers.insert("webhook-timestamp", HeaderValue::from(now_s));
    if let Some(signature) = signer.sign(&id, now_s, &message.body) {
        headers.insert("webhook-signature", header_value("webhook-signature", &signature)?);
    }
    Ok(Request {
        url: client.base.url(path).map_err(|error| format!("the path {path:?} is none: {error}"))?,
        content_type: header_value("content-type", &message.content_type)?,
        headers,
        body: message.body.into_owned(),
        answer_bytes: limits::ANSWER_BYTES_MAX,
    })
}

/// A header, or why it is invalid.
fn header_of((name, value): &Header<'_>, is_cloud_event: bool) -> Result<(HeaderName, HeaderValue), String> {
    let parsed = HeaderName::from_bytes(name.as_bytes());
    let parsed = parsed.map_err(|_| {
        format!("the event has a header {name:?}, and HTTP knows only letters, digits and - in one")
    })?;
    let value = if is_cloud_event && name.starts_with(ATTRIBUTE_PREFIX) {
        utf8_percent_encode(value, ATTRIBUTE_ESCAPED).into()
    } else {
        Cow::Borrowed(value.as_ref())
    };
    Ok((parsed, header_value(name, &value)?))
}

/// Non-ASCII text is sent as UTF-8. Spaces at the ends would be lost, and a line break would begin another header. Errors do not repeat the
/// value, which is business data and may be secret.
fn header_value(name: &str, value: &str) -> Result<HeaderValue, String> {
    let kept = value.trim_matches([' ', '\t']) == value;
    let parsed = HeaderValue::from_bytes(value.as_bytes()).ok().filter(|_| kept);
    parsed.ok_or_else(|| {
        format!("{name:?} has a value with a line break, a control character or a space at an end, which HTTP cannot carry")
    })
}
