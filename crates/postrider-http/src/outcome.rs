//! What an answer means: the table of statuses.

use postrider_core::Outcome;
use reqwest::StatusCode;

use crate::client::{Answer, Client, Said};

/// What a status says of what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It arrived.
    Delivered,
    /// There is something in it that will never be taken.
    Refused,
    /// The receiver, or the way to it, is not in order.
    Unavailable,
    /// It may have arrived.
    Unknown,
    /// It failed, and may work another time.
    Retry,
}

impl Verdict {
    pub(crate) fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            200..=299 => Self::Delivered,
            400 | 413 | 422 => Self::Refused,
            // A wrong path, a wrong token or a redirect must not kill a backlog.
            300..=399 | 401 | 403 | 404 | 405 | 407 | 410 | 415 | 425 | 429 | 503 => Self::Unavailable,
            408 => Self::Unknown,
            _ => Self::Retry,
        }
    }

    /// The outcome of an event that stands alone.
    pub(crate) fn outcome(self, said: &Said, error: String) -> Outcome {
        match (self, said.retry_after) {
            (Self::Delivered, _) => Outcome::Delivered,
            (Self::Refused, _) => Outcome::rejected(error),
            (Self::Unavailable, _) => Outcome::unavailable(error),
            (Self::Unknown, _) => Outcome::unknown(error),
            (Self::Retry, Some(after)) => Outcome::retry_after(error, after),
            (Self::Retry, None) => Outcome::retry(error),
        }
    }
}

/// What an answer means for a path, and what is noted of it.
pub(crate) struct Judged {
    pub(crate) verdict: Verdict,
    /// Of everything that was in the request, if it was one event or failed as a whole.
    pub(crate) outcome: Outcome,
    /// The body, for results of single items.
    pub(crate) said: Option<Said>,
    /// Whether nothing at all can be sent.
    pub(crate) no_connection: bool,
}

/// Judges an answer, and notes what it asks for: a pause, or that the receiver is there.
pub(crate) fn judge(client: &Client, path: &str, answer: Answer) -> Judged {
    let (verdict, outcome, said) = match answer {
        Answer::NotSent(error) => {
            let outcome = Outcome::unavailable(error);
            return Judged { verdict: Verdict::Unavailable, outcome, said: None, no_connection: true };
        }
        Answer::Lost(error) => (Verdict::Unknown, Outcome::unknown(error), None),
        Answer::Said(said) => {
            let verdict = Verdict::of(said.status);
            match (verdict, said.retry_after) {
                (Verdict::Delivered, _) => client.hold_offs.delivered(),
                (Verdict::Unavailable, Some(after)) => client.hold_offs.hold(path, after),
                _ => {}
            }
            let error = if verdict == Verdict::Delivered { String::new() } else { client.describe(&said) };
            (verdict, verdict.outcome(&said, error), Some(said))
        }
    };
    Judged { verdict, outcome, said, no_connection: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_verdict() {
        use Verdict::{Delivered, Refused, Retry, Unavailable, Unknown};
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
            (429, Unavailable),
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
            let status = StatusCode::from_u16(number).map(Verdict::of);
            assert!(status.is_ok_and(|found| found == expected), "{number}");
        }
    }
}
