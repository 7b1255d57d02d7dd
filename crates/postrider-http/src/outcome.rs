//! Turns responses into outcomes.

use std::time::Duration;

use postrider_core::Outcome;
use reqwest::StatusCode;

use crate::{
    client::{Answer, Client, Received},
    hold_off::HoldOffs,
    limits,
};

/// The meaning of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Everything arrived.
    Delivered,
    /// An event will never be accepted.
    Refused,
    /// The receiver, or the way to it, is broken.
    Unavailable,
    /// The receiver works and demands a slower pace.
    TooFast,
    /// Failed, with a time for the retry. One event may be the reason, so this says nothing about others.
    Later,
    /// The events may have arrived.
    Unknown,
    /// Failed; a retry may succeed.
    Retry,
}

impl Meaning {
    /// Only 429 and 503 with `Retry-After` apply to the whole path. Any other failure with it may be about one event: it costs that event no attempt
    /// and does not delay others. Statuses that blame the event, or the way to the receiver, mean the same with and without it.
    pub(crate) fn of(status: StatusCode, retry_after: Option<Duration>) -> Self {
        match status.as_u16() {
            200..=299 => Self::Delivered,
            400 | 422 => Self::Refused,
            // A wrong path, a wrong token or a redirect must not turn a backlog into dead letters.
            300..=399 | 401 | 403 | 404 | 405 | 407 | 410 | 415 | 425 => Self::Unavailable,
            429 => Self::TooFast,
            503 if retry_after.is_some() => Self::TooFast,
            503 => Self::Unavailable,
            _ if retry_after.is_some() => Self::Later,
            413 => Self::Refused,
            408 => Self::Unknown,
            _ => Self::Retry,
        }
    }

    /// Whether any event of a request may be the reason.
    fn is_of_any(self) -> bool {
        matches!(self, Self::Unknown | Self::Retry | Self::Later)
    }

    /// The outcome of an event that was sent alone.
    pub(crate) fn outcome(self, received: &Received, error: String) -> Outcome {
        match (self, received.retry_after) {
            (Self::Delivered, _) => Outcome::Delivered,
            (Self::Refused, _) => Outcome::rejected(error),
            (Self::Unavailable, _) => Outcome::unavailable(error),
            (Self::TooFast, after) => Outcome::deferred(pause(after)),
            (Self::Later, after) => Outcome::later(error, after.unwrap_or_default()),
            (Self::Unknown, _) => Outcome::unknown(error),
            (Self::Retry, _) => Outcome::retry(error),
        }
    }
}

/// How long to leave a receiver alone that demands a slower pace. Zero would be no pause.
fn pause(retry_after: Option<Duration>) -> Duration {
    retry_after.filter(|after| !after.is_zero()).unwrap_or(limits::TOO_FAST_PAUSE)
}

/// What a response means for its path.
pub(crate) struct Interpreted {
    pub(crate) meaning: Meaning,
    /// The meaning for everything in the request.
    pub(crate) outcome: Outcome,
    /// The body, which has results for single events.
    pub(crate) received: Option<Received>,
    /// Whether nothing can be sent at all.
    pub(crate) no_connection: bool,
}

/// Interprets the response to a request with `events` events, and records the pause that it demands.
pub(crate) fn interpret(
    client: &Client,
    hold_offs: &mut HoldOffs,
    path: &str,
    (events, answer): (usize, Answer),
) -> Interpreted {
    let (meaning, mut outcome, received) = match answer {
        Answer::NotSent(error) => {
            let outcome = Outcome::unavailable(error);
            return Interpreted {
                meaning: Meaning::Unavailable,
                outcome,
                received: None,
                no_connection: true,
            };
        }
        Answer::Lost(error) => (Meaning::Unknown, Outcome::unknown(error), None),
        Answer::Received(received) => {
            let meaning = Meaning::of(received.status, received.retry_after);
            let error =
                if meaning == Meaning::Delivered { String::new() } else { client.describe(&received) };
            (meaning, meaning.outcome(&received, error), Some(received))
        }
    };
    let whole = events > 1 && meaning.is_of_any();
    if whole {
        outcome = Outcome::batch_failed(outcome.error().unwrap_or_default());
    }
    let retry_after = received.as_ref().and_then(|received| received.retry_after);
    if meaning == Meaning::TooFast {
        hold_offs.hold(path, pause(retry_after));
    }
    Interpreted { meaning, outcome, received, no_connection: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_conclusion() {
        use Meaning::{Delivered, Refused, Retry, TooFast, Unavailable, Unknown};
        let named = [
            (400, Refused),
            (413, Refused),
            (422, Refused),
            (401, Unavailable),
            (403, Unavailable),
            (404, Unavailable),
            (405, Unavailable),
            (407, Unavailable),
            (410, Unavailable),
            (415, Unavailable),
            (425, Unavailable),
            (429, TooFast),
            (503, Unavailable),
            (408, Unknown),
        ];
        for number in 200..=599_u16 {
            let expected = named.iter().find(|(named, _)| *named == number).map(|(_, meaning)| *meaning);
            let expected = expected.unwrap_or(match number {
                200..=299 => Delivered,
                300..=399 => Unavailable,
                _ => Retry,
            });
            let status = StatusCode::from_u16(number).map(|status| Meaning::of(status, None));
            assert!(status.is_ok_and(|found| found == expected), "{number}");
        }
    }
    #[test]
    fn only_429_and_503_speak_for_their_path_when_they_say_when_to_come_again() {
        for (status, after, expected) in [
            (StatusCode::SERVICE_UNAVAILABLE, None, Meaning::Unavailable),
            (StatusCode::SERVICE_UNAVAILABLE, Some(7), Meaning::TooFast),
            (StatusCode::TOO_MANY_REQUESTS, Some(7), Meaning::TooFast),
            (StatusCode::INTERNAL_SERVER_ERROR, None, Meaning::Retry),
            (StatusCode::INTERNAL_SERVER_ERROR, Some(7), Meaning::Later),
            (StatusCode::BAD_GATEWAY, Some(7), Meaning::Later),
            (StatusCode::GATEWAY_TIMEOUT, Some(7), Meaning::Later),
            (StatusCode::REQUEST_TIMEOUT, Some(7), Meaning::Later),
            (StatusCode::CONFLICT, Some(7), Meaning::Later),
            (StatusCode::PAYLOAD_TOO_LARGE, Some(7), Meaning::Later),
            (StatusCode::BAD_REQUEST, Some(7), Meaning::Refused),
            (StatusCode::UNPROCESSABLE_ENTITY, Some(7), Meaning::Refused),
            (StatusCode::UNAUTHORIZED, Some(7), Meaning::Unavailable),
        ] {
            assert_eq!(Meaning::of(status, after.map(Duration::from_secs)), expected, "{status} {after:?}");
        }
    }
}
