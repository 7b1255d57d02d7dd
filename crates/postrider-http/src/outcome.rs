//! Turns responses into outcomes.

use std::time::Duration;

use postrider_core::Outcome;
use reqwest::StatusCode;

use crate::{
    client::{Answer, Client, Said},
    hold_off::HoldOffs,
    limits,
};

/// The meaning of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
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

impl Verdict {
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
    pub(crate) fn outcome(self, said: &Said, error: String) -> Outcome {
        match (self, said.retry_after) {
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
pub(crate) struct Judged {
    pub(crate) verdict: Verdict,
    /// The meaning for everything in the request.
    pub(crate) outcome: Outcome,
    /// The body, which has results for single events.
    pub(crate) said: Option<Said>,
    /// Whether nothing can be sent at all.
    pub(crate) no_connection: bool,
}

/// Interprets the response to a request with `events` events, and records the pause that it demands.
pub(crate) fn judge(
    client: &Client,
    hold_offs: &mut HoldOffs,
    path: &str,
    (events, answer): (usize, Answer),
) -> Judged {
    let (verdict, mut outcome, said) = match answer {
        Answer::NotSent(error) => {
            let outcome = Outcome::unavailable(error);
            return Judged { verdict: Verdict::Unavailable, outcome, said: None, no_connection: true };
        }
        Answer::Lost(error) => (Verdict::Unknown, Outcome::unknown(error), None),
        Answer::Said(said) => {
            let verdict = Verdict::of(said.status, said.retry_after);
            let error = if verdict == Verdict::Delivered { String::new() } else { client.describe(&said) };
            (verdict, verdict.outcome(&said, error), Some(said))
        }
    };
    let whole = events > 1 && verdict.is_of_any();
    if whole {
        outcome = Outcome::batch_failed(outcome.error().unwrap_or_default());
    }
    let retry_after = said.as_ref().and_then(|said| said.retry_after);
    if verdict == Verdict::TooFast {
        hold_offs.hold(path, pause(retry_after));
    }
    Judged { verdict, outcome, said, no_connection: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_verdict() {
        use Verdict::{Delivered, Refused, Retry, TooFast, Unavailable, Unknown};
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
            let expected = named.iter().find(|(named, _)| *named == number).map(|(_, verdict)| *verdict);
            let expected = expected.unwrap_or(match number {
                200..=299 => Delivered,
                300..=399 => Unavailable,
                _ => Retry,
            });
            let status = StatusCode::from_u16(number).map(|status| Verdict::of(status, None));
            assert!(status.is_ok_and(|found| found == expected), "{number}");
        }
    }
    #[test]
    fn only_429_and_503_speak_for_their_path_when_they_say_when_to_come_again() {
        for (status, after, expected) in [
            (StatusCode::SERVICE_UNAVAILABLE, None, Verdict::Unavailable),
            (StatusCode::SERVICE_UNAVAILABLE, Some(7), Verdict::TooFast),
            (StatusCode::TOO_MANY_REQUESTS, Some(7), Verdict::TooFast),
            (StatusCode::INTERNAL_SERVER_ERROR, None, Verdict::Retry),
            (StatusCode::INTERNAL_SERVER_ERROR, Some(7), Verdict::Later),
            (StatusCode::BAD_GATEWAY, Some(7), Verdict::Later),
            (StatusCode::GATEWAY_TIMEOUT, Some(7), Verdict::Later),
            (StatusCode::REQUEST_TIMEOUT, Some(7), Verdict::Later),
            (StatusCode::CONFLICT, Some(7), Verdict::Later),
            (StatusCode::PAYLOAD_TOO_LARGE, Some(7), Verdict::Later),
            (StatusCode::BAD_REQUEST, Some(7), Verdict::Refused),
            (StatusCode::UNPROCESSABLE_ENTITY, Some(7), Verdict::Refused),
            (StatusCode::UNAUTHORIZED, Some(7), Verdict::Unavailable),
        ] {
            assert_eq!(Verdict::of(status, after.map(Duration::from_secs)), expected, "{status} {after:?}");
        }
    }
}
