//! Ends a send a little before the engine would.
//!
//! The engine drops a send at its `send_timeout` and with it what the sink knows of its events. So a sink ends a send by itself and reports
//! which events were delivered, which were sent without an answer and which were not sent.

use std::{future::Future, time::Duration};

use tokio::time::Instant;

/// The longest margin for collecting the outcomes.
pub const MARGIN_MAX: Duration = Duration::from_secs(1);
/// The margin's part of a short timeout.
const MARGIN_PART: u32 = 10;

/// How long a send with this timeout may take, margin excluded.
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
    /// The deadline of a send that begins now.
    pub fn within(send_timeout: Duration) -> Self {
        let limit = limit(send_timeout);
        Self { at: Instant::now() + limit, limit }
    }

    /// The output of a future, or `None` at the deadline. An output that is ready counts even after the deadline.
    pub async fn before<F: Future>(&self, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = tokio::time::sleep_until(self.at) => None,
        }
    }

    /// Whether the deadline has passed.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.at
    }

    /// The time that is left.
    pub fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// The error of an event that was sent without an answer.
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
