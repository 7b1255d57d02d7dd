//! Turns an event into a NATS message.

use std::{borrow::Cow, str::FromStr};

use async_nats::{
    HeaderMap, HeaderName, HeaderValue, header::NATS_MESSAGE_ID, jetstream::message::PublishMessage,
};
use bytes::Bytes;
use postrider_core::{Event, format::Header};

use crate::NatsConfig;

/// The prefix of CloudEvents attributes in headers.
const ATTRIBUTE_PREFIX: &str = "ce-";
const CONTENT_TYPE: &str = "content-type";
/// The prefix of headers that the server obeys.
const COMMAND_PREFIX: &str = "nats-";

/// The subject of an event, or why it has none.
pub(crate) fn subject<'a>(config: &'a NatsConfig, event: &'a Event) -> Result<Cow<'a, str>, String> {
    let subject = config.subject.resolve_with(event, |value| check_part(value).map(|()| value.into()))?;
    check_subject(&subject)
        .map_err(|reason| format!("the subject {subject:?} cannot be used: it must be {reason}"))?;
    Ok(subject)
}

/// The subject and the message of an event, or why it has none.
pub(crate) fn publish(config: &NatsConfig, event: &Event) -> Result<(String, PublishMessage), String> {
    let subject = subject(config, event)?;
    let message = config.format.message(event, ATTRIBUTE_PREFIX);
    let mut headers = HeaderMap::new();
    for header in &message.headers {
        if !header.0.eq_ignore_ascii_case(CONTENT_TYPE) {
            put(&mut headers, header)?;
        }
    }
    put(&mut headers, &(CONTENT_TYPE.into(), message.content_type))?;
    headers.insert(NATS_MESSAGE_ID, value(&message_id(event))?);
    let body = match message.body {
        Cow::Borrowed(_) => Bytes::from_owner(Body(event.clone())),
        Cow::Owned(bytes) => Bytes::from(bytes),
    };
    Ok((subject.into_owned(), PublishMessage::build().headers(headers).payload(body)))
}

/// The ID by which JetStream deduplicates: the event's ID and time. The event's ID alone may come again: from another table that numbers its
/// events, or once an event with that ID was delivered and forgotten. A retry has the same time.
fn message_id(event: &Event) -> String {
    format!("{}@{}", event.id(), event.occurred_at().as_micros())
}

/// The payload of an event, shared instead of copied.
struct Body(Event);

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        self.0.payload().as_bytes()
    }
}

fn put(headers: &mut HeaderMap, (name, text): &Header<'_>) -> Result<(), String> {
    let begins = name.get(..COMMAND_PREFIX.len());
    if begins.is_some_and(|begins| begins.eq_ignore_ascii_case(COMMAND_PREFIX)) {
        return Err(format!(
            "the header {name:?} would command the server: headers that begin with Nats- are not sent"
        ));
    }
    let named = HeaderName::from_str(name);
    let named = named.map_err(|_| {
        format!("the header {name:?} cannot be named in NATS: use ASCII without spaces and colons")
    })?;
    let text = value(text).map_err(|reason| format!("the header {name:?} cannot be sent: {reason}"))?;
    headers.insert(named, text);
    Ok(())
}

fn value(text: &str) -> Result<HeaderValue, String> {
    // Receivers drop spaces at both ends.
    if text != text.trim() {
        return Err("it begins or ends with a space".to_owned());
    }
    HeaderValue::from_str(text).map_err(|_| "it has a line break".to_owned())
}

/// A value of the event may be several tokens of a subject, but no wildcard.
fn check_part(value: &str) -> Result<(), String> {
    let bad = value
        .chars()
        .find(|letter| letter.is_whitespace() || letter.is_control() || matches!(letter, '*' | '>'));
    bad.map_or(Ok(()), |letter| Err(format!("a subject cannot have {letter:?}")))
}

/// Checks a subject; the error says what a subject must be.
pub(crate) fn check_subject(subject: &str) -> Result<(), String> {
    let good = check_part(subject).is_ok() && subject.split('.').all(|part| !part.is_empty());
    if good {
        Ok(())
    } else {
        Err("made of parts with dots between them, without spaces and wildcards".to_owned())
    }
}
