//! Turns an event into a Kafka record.

use std::borrow::Cow;

use postrider_core::{Event, format::Message};
use rdkafka::message::{Header, OwnedHeaders};

use crate::KafkaConfig;

/// The prefix of CloudEvents attributes in headers.
const ATTRIBUTE_PREFIX: &str = "ce_";
const CONTENT_TYPE: &str = "content-type";
/// The longest name of a topic.
const TOPIC_BYTES_MAX: usize = 249;

/// An event as a record.
pub(crate) struct Outgoing<'a> {
    pub(crate) topic: Cow<'a, str>,
    message: Message<'a>,
}

impl Outgoing<'_> {
    pub(crate) fn body(&self) -> &[u8] {
        &self.message.body
    }

    pub(crate) fn headers(&self) -> OwnedHeaders {
        let Message { headers, content_type, .. } = &self.message;
        let owned = OwnedHeaders::new_with_capacity(headers.len() + 1);
        let others = headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case(CONTENT_TYPE));
        let owned = others.fold(owned, |owned, (name, value)| {
            owned.insert(Header { key: name, value: Some(value.as_bytes()) })
        });
        owned.insert(Header { key: CONTENT_TYPE, value: Some(content_type.as_bytes()) })
    }
}

/// The record of an event, or why it has none.
pub(crate) fn outgoing<'a>(config: &'a KafkaConfig, event: &'a Event) -> Result<Outgoing<'a>, String> {
    let topic = config.topic.resolve(event)?;
    check_topic(&topic)
        .map_err(|reason| format!("the topic {topic:?} cannot be used: it must be {reason}"))?;
    Ok(Outgoing { topic, message: config.format.message(event, ATTRIBUTE_PREFIX) })
}

/// Checks the name of a topic; the error says what a name must be.
pub(crate) fn check_topic(topic: &str) -> Result<(), String> {
    let plain = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'.' | b'_' | b'-');
    let good = topic.bytes().all(plain)
        && (1..=TOPIC_BYTES_MAX).contains(&topic.len())
        && !matches!(topic, "." | "..");
    if good {
        Ok(())
    } else {
        Err(format!("made of letters, digits, dots, underscores and hyphens, {TOPIC_BYTES_MAX} at most"))
    }
}
