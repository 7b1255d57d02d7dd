//! Turns JetStream's answers into outcomes.

use std::error::Error as _;

use async_nats::jetstream::{
    ErrorCode,
    context::{PublishError, PublishErrorKind},
};
use postrider_core::{Outcome, sink::error_chain};

/// Whether one event failed, or the connection under it.
pub(crate) enum Failed {
    Event(Outcome),
    Connection(String),
}

/// Errors of the stream, its server or its permissions: an operator can fix them, after which the same event is accepted.
const OUTAGES: [ErrorCode; 7] = [
    ErrorCode::STREAM_STORE_FAILED,
    ErrorCode::STREAM_SEALED,
    ErrorCode::STREAM_NOT_FOUND,
    ErrorCode::INSUFFICIENT_RESOURCES,
    ErrorCode::ACCOUNT_RESOURCES_EXCEEDED,
    ErrorCode::CLUSTER_NOT_AVAILABLE,
    ErrorCode::JETSTREAM_NOT_ENABLED,
];

/// Errors about the size of a message.
const TOO_LARGE: [ErrorCode; 2] =
    [ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM, ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM];

/// Interprets the error of a message that was not stored.
pub(crate) fn of_error(subject: &str, error: &PublishError) -> Failed {
    let text = error_chain(error);
    Failed::Event(match error.kind() {
        PublishErrorKind::StreamNotFound => Outcome::unavailable(format!(
            "no stream takes the subject {subject:?}, or JetStream is off: make a stream for it"
        )),
        PublishErrorKind::MaxPayloadExceeded => Outcome::rejected(format!(
            "the message is larger than the server takes: {text}; raise its max_payload"
        )),
        PublishErrorKind::TimedOut => Outcome::unknown(text),
        PublishErrorKind::BrokenPipe => return Failed::Connection(text),
        _ => match error.source().and_then(|source| source.downcast_ref::<async_nats::jetstream::Error>()) {
            Some(error) if TOO_LARGE.contains(&error.error_code()) => Outcome::rejected(text),
            Some(error) if OUTAGES.contains(&error.error_code()) || error.code() == 503 => {
                Outcome::unavailable(text)
            }
            Some(_) => Outcome::retry(text),
            // The client itself has ended.
            None => return Failed::Connection(text),
        },
    })
}
