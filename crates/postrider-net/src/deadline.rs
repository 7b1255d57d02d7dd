//! When a send must answer: a little before the engine stops waiting for it.
//!
//! The engine drops a send at its `send_timeout`, and what the sink knew of its events is lost with it. So a sink ends a send by itself
//! and says what was delivered, what was sent without an answer and what was not sent.

use std::{future::Future, time::Duration};

use tokio::time::Instant;

/// Longest time that is left for putting the outcomes together.
pub const MARGIN_MAX: Duration = Duration::from_secs(1);
/// What part of the time-out is left, where that is less.
const MARGIN_PART: u32 = 10;

/// How long a send takes at most that has so long, less a margin.
pub fn limit(send_timeout: Duration) -> Duration {
    send_timeout.saturating_sub(MARGIN_MAX.min(send_timeout / MARGIN_PART))
}

/// The end of one send.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    /// Of a send that begins now and has so long, less a margin.
    pub fn within(send_timeout: Duration) -> Self {
        let limit = limit(send_timeout);
        Self { at: Instant::now() + limit, limit }
    }

    /// What a future gives; nothing if it does not end in time. What is ready counts, also after the end.
    pub async fn before<F: Future>(&self, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = tokio::time::sleep_until(self.at) => None,
        }
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.at
    }

    /// How long it takes until it is over.
    pub fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// What is said of an event that was sent and not answered.
    pub fn no_answer(&self) -> String {
        format!("no answer within {:?}", self.limit)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_lies_a_tenth_but_at_most_a_second_inside_of_the_time_out() {
        for (timeout_ms, left_ms) in [(120_000, 119_000), (10_000, 9_000), (2_000, 1_800), (10, 9)] {
            let deadline = Deadline::within(Duration::from_millis(timeout_ms));
            assert_eq!(deadline.left(), Duration::from_millis(left_ms));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_end_is_given_up_and_what_is_ready_counts_even_later() {
        let deadline = Deadline::within(Duration::from_secs(10));
        assert!(!deadline.is_over());
        assert_eq!(deadline.before(pending::<()>()).await, None);
        assert!(deadline.is_over() && deadline.left().is_zero());
        assert_eq!(deadline.before(ready(7)).await, Some(7));
        assert_eq!(deadline.no_answer(), "no answer within 9s");
    }
}
