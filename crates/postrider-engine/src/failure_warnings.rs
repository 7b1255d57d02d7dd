//! Reports failed attempts: each one as a metric and a debug line, and once a minute a warning for each
//! destination where events keep failing.

use std::{borrow::Cow, collections::HashMap, time::Duration};

use postrider_core::Outcome;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::{
    assignment::ActiveAssignment, buffer::Item, destination::DestinationId, failing_events::FailureKind,
    lock, routes::ReceiverId,
};

/// An event that has failed for this long is worth a warning.
const WORTH_A_WARNING: Duration = Duration::from_secs(60);

/// How often one destination is warned of at most.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Most destinations that are warned of separately. The others share one warning.
const DESTINATIONS_MAX: usize = 1024;

/// When each destination was last warned of, and how many attempts failed there since.
#[derive(Debug, Default)]
pub(crate) struct FailureWarnings(HashMap<(Option<ReceiverId>, Option<DestinationId>), (Instant, u64)>);

impl FailureWarnings {
    /// Records an attempt of an event that keeps failing. Returns how many there were since the last warning,
    /// if it is time for one.
    fn note(
        &mut self,
        receiver: Option<ReceiverId>,
        destination: Option<DestinationId>,
        now: Instant,
    ) -> Option<u64> {
        let known = self.0.contains_key(&(receiver, destination));
        let place = (receiver, destination.filter(|_| known || self.0.len() < DESTINATIONS_MAX));
        match self.0.get_mut(&place) {
            Some((warned_at, since)) if now.saturating_duration_since(*warned_at) < WARN_EVERY => {
                *since += 1;
                None
            }
            Some((warned_at, since)) => {
                let attempts = std::mem::take(since) + 1;
                *warned_at = now;
                Some(attempts)
            }
            None => {
                self.0.insert(place, (now, 0));
                Some(1)
            }
        }
    }
}

/// Returns the name of an outcome in metrics and logs.
const fn outcome_label(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Delivered => "delivered",
        Outcome::Retry { .. } => "retry",
        Outcome::Rejected { .. } => "rejected",
        Outcome::Deferred { .. } => "deferred",
        Outcome::Later { .. } => "later",
        Outcome::Unavailable { .. } => "unavailable",
        Outcome::BatchFailed { .. } => "batch_failed",
        _ => "unknown",
    }
}

/// Returns the receiver's answer, for operators.
fn answer_text(outcome: &Outcome) -> Cow<'_, str> {
    match outcome {
        Outcome::Deferred { after } => format!("it asks to come again after {after:?}").into(),
        outcome => outcome.error().unwrap_or_default().into(),
    }
}

/// Whether the receiver asks for a long pause.
fn is_long(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Deferred { after } if *after >= WORTH_A_WARNING)
}

/// Counts and logs a failed attempt.
fn note(assignment: &ActiveAssignment<'_>, item: &Item, outcome: &Outcome, counted: bool) {
    let shared = assignment.shared;
    shared.metrics.attempt_failed(
        shared.routes.names(assignment.receiver()),
        outcome_label(outcome),
        counted,
    );
    let (sink, error) = (shared.routes.describe(assignment.receiver()), answer_text(outcome));
    debug!(event_id = %item.id(), sink, outcome = outcome_label(outcome), counted, %error, "attempt failed");
}

/// Reports an event whose batch failed as a whole. That says nothing about the event, which is sent again
/// separately.
pub(crate) fn batch_failed(assignment: &ActiveAssignment<'_>, item: &Item, outcome: &Outcome) {
    note(assignment, item, outcome, false);
}

/// Reports a failed attempt: whether it counts, its kind, and whether the destination fails for others too.
pub(crate) fn attempt_failed(
    assignment: &ActiveAssignment<'_>,
    item: &Item,
    outcome: &Outcome,
    counted: bool,
    (kind, is_out): (FailureKind, bool),
) {
    note(assignment, item, outcome, counted);
    let shared = assignment.shared;
    let (sink, error) = (shared.routes.describe(assignment.receiver()), answer_text(outcome));
    let now = Instant::now();
    let failure = {
        let mut failing = lock(&shared.failing_events);
        failing.note(item.id(), (kind, is_out), now);
        failing.of(item.id(), now)
    };
    let in_process = assignment.receiver().is_none_or(|id| shared.routes.traits(id).in_process);
    let asks_for_long = is_long(outcome) && !in_process;
    if failure.lasts < WORTH_A_WARNING && !asks_for_long {
        return;
    }
    if let Some(attempts) = lock(&shared.failure_warnings).note(assignment.receiver(), item.destination, now)
    {
        let (lasts, destination) = (failure.lasts, assignment.destination(item));
        if asks_for_long {
            warn!(event_id = %item.id(), sink, destination, attempts, %error, "receiver asks for a long pause");
        } else {
            warn!(event_id = %item.id(), sink, destination, attempts, ?lasts, %error, "events keep failing at this destination");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::destination::destination_id;

    #[test]
    fn a_destination_is_warned_of_once_a_minute_with_how_many_attempts_failed() {
        let (mut failure_warnings, now) = (FailureWarnings::default(), Instant::now());
        let (a, b) = (Some(destination_id("a")), Some(destination_id("b")));
        assert_eq!(failure_warnings.note(Some(0), a, now), Some(1));
        assert!((0..5).all(|_| failure_warnings.note(Some(0), a, now).is_none()));
        assert_eq!(failure_warnings.note(Some(0), b, now), Some(1), "another one");
        assert_eq!(failure_warnings.note(Some(0), a, now + WARN_EVERY), Some(6));
    }

    #[test]
    fn a_receiver_that_asks_for_a_long_pause_is_warned_of_at_once_and_with_what_it_asks() {
        let outcome = Outcome::deferred(Duration::from_secs(3600));
        assert!(is_long(&outcome) && !is_long(&Outcome::deferred(Duration::from_secs(1))));
        assert_eq!(answer_text(&outcome), "it asks to come again after 3600s");
        assert_eq!(answer_text(&Outcome::retry("500")), "500");
    }

    #[test]
    fn destinations_without_end_share_a_warning() {
        let (mut failure_warnings, now) = (FailureWarnings::default(), Instant::now());
        let warnings = (0..10_000)
            .filter_map(|n| failure_warnings.note(Some(0), Some(destination_id(&n.to_string())), now))
            .count();
        assert!(warnings <= DESTINATIONS_MAX + 1, "{warnings}");
    }
}
