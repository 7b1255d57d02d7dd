//! Decides what the end of a delivery means for its event: done, retried, deferred or dead.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    time::Duration,
};

use postrider_core::{
    Backoff, Health, Outcome, RetryPolicy,
    event::limits::KEY_CHARS_MAX,
    store::{Change, HoldReason},
};
use tokio::time::Instant;
use tracing::{error, warn};

use crate::{
    OnDead,
    assignment::ActiveAssignment,
    buffer::Item,
    catch::catch,
    delivery_end::{DeliveryEnd, unroutable},
    failing_events::FailureKind,
    failure_warnings::attempt_failed,
    lock,
    mutations::{self, Mutation},
    outcome_report::is_back,
    receiver::{Assessment, Attempt},
    shared::Shared,
};

/// Time limit of a health check.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// Turns the end of a delivery into the change that is settled.
pub(crate) async fn conclude(assignment: &mut ActiveAssignment<'_>, item: Item, end: DeliveryEnd) {
    let end = match end {
        // It was alone in its batch, so it is the cause.
        DeliveryEnd::Outcome(Outcome::BatchFailed { error }) => {
            DeliveryEnd::Outcome(Outcome::Unknown { error })
        }
        end => end,
    };
    let block = blocks(assignment.shared, &item);
    let change = match end {
        DeliveryEnd::Outcome(Outcome::Delivered) => Change::Done,
        DeliveryEnd::Outcome(outcome) => match assess(assignment, &item, &outcome).await {
            Assessment::ReceiverDown { .. } | Assessment::DestinationDown { .. }
                if is_refused_alone(assignment.shared, &item) =>
            {
                failed_too_long(assignment.shared, &item, &outcome)
            }
            // The row stays as it is, unless the event was told to come later than others.
            Assessment::ReceiverDown { pause, .. } if !assignment.counted && asked_for(&outcome) <= pause => {
                return assignment.keep(item);
            }
            ruling @ Assessment::ReceiverDown { .. } => {
                // The attempt was counted beforehand and has to be taken back.
                lock(&assignment.shared.buffer).tried(assignment.assignment(), &item);
                change(assignment.shared, &item, outcome, ruling)
            }
            ruling => {
                let change = change(assignment.shared, &item, outcome, ruling);
                if ruling == Assessment::Counts { spare(assignment, &item, change).await } else { change }
            }
        },
        DeliveryEnd::Intercepted(outcome) => {
            attempt_failed(assignment, &item, &outcome, true, (FailureKind::Explained, false));
            fail(assignment.shared, &item, outcome)
        }
        // Nobody will ever handle it, so its key does not wait for it.
        DeliveryEnd::Unroutable => {
            let error = item.content.as_ref().map_or_else(|row| row.reason.clone(), unroutable);
            Change::Dead { attempts: item.attempts, error, block: false }
        }
        DeliveryEnd::NotSent => return assignment.take_back(vec![item]),
        DeliveryEnd::Undecodable => {
            let error = item.content.as_ref().err().map_or_else(String::new, |row| row.reason.clone());
            // No event can have such a key, so none follows it; and a key that long cannot be held.
            let block = block && item.key.as_ref().is_none_or(|key| key.chars().count() <= KEY_CHARS_MAX);
            Change::Dead { attempts: item.attempts, error: format!("undecodable: {error}"), block }
        }
    };
    assignment.settle(item, change);
}

/// Gives up an event that was being delivered each time that a process crashed, as often as it may be tried.
pub(crate) fn give_up(mut assignment: ActiveAssignment<'_>) {
    if let Some(item) = assignment.next() {
        let error = format!("the process ended {} times while this event was being delivered", item.attempts);
        let block = blocks(assignment.shared, &item);
        let change = Change::Dead { attempts: item.attempts, error, block };
        assignment.settle(item, change);
    }
    _ = assignment.end();
}

fn blocks(shared: &Shared, item: &Item) -> bool {
    let of_route = shared.routes.settings(item.route()).and_then(|route| route.on_dead);
    of_route.unwrap_or(shared.settings.on_dead) == OnDead::Block && item.key.is_some()
}

/// Returns how often an event may be tried.
pub(crate) fn max_attempts(shared: &Shared, item: &Item) -> u32 {
    let of_route = shared.routes.settings(item.route()).and_then(|route| route.max_attempts);
    of_route.unwrap_or(shared.settings.max_attempts)
}

/// Returns how long an event may fail for unknown reasons; none for no limit.
fn unavailable_for(shared: &Shared, item: &Item) -> Option<Duration> {
    let of_route = shared.routes.settings(item.route()).and_then(|route| route.unavailable_for);
    let limit = of_route.unwrap_or(shared.settings.unavailable_for);
    Some(limit).filter(|limit| !limit.is_zero() && !mutations::active(Mutation::UnavailableForIgnored))
}

/// Longest pause after a failure that does not count: the event may be fine, and a policy may have no limit.
const NOT_COUNTED_MAX: Duration = Duration::from_secs(60);

/// That pause grows as if there had been at most this many attempts.
const NOT_COUNTED_TIMES_MAX: u32 = 32;

/// How long an event waits that has used up its attempts where all do.
const SPARED_FOR: Duration = Duration::from_secs(30);

/// How long an event that has used up its attempts waits for a sign that its destination still works.
const SIGN_OF_LIFE_WITHIN: Duration = Duration::from_secs(1);

/// Defers the death of an event that has used up its attempts where all do: its destination is broken, whatever
/// its health check says. Also where nothing shows that the destination still works after the failure: an
/// outage may begin like this.
async fn spare(assignment: &mut ActiveAssignment<'_>, item: &Item, change: Change) -> Change {
    let Change::Dead { error, .. } = &change else { return change };
    let still_works = still_works(assignment, item).await;
    if still_works
        && lock(&assignment.shared.buffer).allows_death(assignment.assignment(), item, Instant::now())
    {
        return change;
    }
    let (attempts, reason) = (item.attempts, HoldReason::Deferred);
    let after = if still_works { SPARED_FOR } else { SIGN_OF_LIFE_WITHIN };
    Change::Wait { after, attempts, error: Some(error.clone()), reason }
}

/// Returns whether the destination works after the failure: others are delivered, or its health check passes.
async fn still_works(assignment: &mut ActiveAssignment<'_>, item: &Item) -> bool {
    let shared = assignment.shared;
    let Some(since) = lock(&shared.buffer).taken_outside(assignment.assignment()) else { return true };
    if is_well(assignment, item).await {
        return true;
    }
    let attempt = Attempt { since, ..assignment.attempt(item) };
    let until = Instant::now() + SIGN_OF_LIFE_WITHIN;
    loop {
        let progress = shared.progress.notified();
        if lock(&shared.buffer).is_alive_for(assignment.assignment(), &attempt) {
            return true;
        }
        let now = Instant::now();
        if now >= until {
            return false;
        }
        // Deliveries of other workers notify nobody.
        let _ = tokio::time::timeout_at(until.min(now + shared.settings.poll_min), progress).await;
    }
}

/// Whether its destination has long seemed down for this event and taken others in between.
fn is_refused_alone(shared: &Shared, item: &Item) -> bool {
    let (lasts, times) = lock(&shared.failing_events).of(item.id(), Instant::now()).refused_alone;
    unavailable_for(shared, item).is_some_and(|limit| lasts >= limit) && times >= max_attempts(shared, item)
}

/// Declares an event dead that has failed for too long for unknown reasons.
fn failed_too_long(shared: &Shared, item: &Item, outcome: &Outcome) -> Change {
    let limit = unavailable_for(shared, item).unwrap_or_default();
    let error = outcome.error().unwrap_or_default();
    let error =
        format!("it has failed for {limit:?}, and it is unknown whether its receiver was up: {error}");
    Change::Dead { attempts: item.attempts, error, block: blocks(shared, item) }
}

/// Assesses a failure with what is known of the receiver, and reports it.
async fn assess(assignment: &mut ActiveAssignment<'_>, item: &Item, outcome: &Outcome) -> Assessment {
    // This worker's own deliveries are signs of life, and have to be known first.
    assignment.flush();
    let shared = assignment.shared;
    let mut attempt = assignment.attempt(item);
    let ask = lock(&shared.buffer).has_to_ask(assignment.assignment(), outcome, &attempt);
    attempt.healthy = ask && is_well(assignment, item).await;
    let mut rng = lock(&shared.rng).fork();
    let (ruling, back, alive) = {
        let mut buffer = lock(&shared.buffer);
        let alive = buffer.is_alive_for(assignment.assignment(), &attempt);
        let (ruling, back) = buffer.assess(assignment.assignment(), outcome, &attempt, &mut rng);
        (ruling, back, alive)
    };
    let is_wait = matches!(outcome, Outcome::Deferred { after } if after.is_zero());
    if !is_wait {
        let counted = matches!(ruling, Assessment::Counts)
            || (ruling == Assessment::AsReported && outcome.error().is_some());
        let (taken, is_out) =
            lock(&shared.buffer).seen_at(assignment.assignment(), item.destination, item.key_number);
        let kind = match (ruling, outcome) {
            (Assessment::ReceiverDown { .. } | Assessment::DestinationDown { .. }, _) => {
                FailureKind::Refused(taken)
            }
            (Assessment::Excused(_), Outcome::Unavailable { .. } | Outcome::Later { .. }) if alive => {
                FailureKind::RefusedAlone(taken)
            }
            (Assessment::Excused(_), Outcome::Unavailable { .. }) => FailureKind::Refused(taken),
            // It has answered, with a reason.
            (Assessment::Excused(_), Outcome::Rejected { .. }) => FailureKind::Explained,
            (_, Outcome::Deferred { .. }) => FailureKind::Deferred,
            (Assessment::Excused(_), _) => FailureKind::Unexplained,
            (Assessment::AsReported | Assessment::Counts, _) => FailureKind::Explained,
        };
        attempt_failed(assignment, item, outcome, counted, (kind, is_out));
    }
    if back {
        is_back(shared, assignment.receiver());
    }
    if let Assessment::DestinationDown { pause, newly: true } = ruling {
        let error = outcome.error().unwrap_or_default();
        let (sink, destination) =
            (shared.routes.describe(assignment.receiver()), assignment.destination(item));
        warn!(sink, destination, %error, ?pause, "destination unavailable: its events wait");
    }
    if let Assessment::ReceiverDown { pause, newly } = ruling {
        // Somebody has to wake up when the pause ends, and this worker may be busy then.
        shared.work.notify_one();
        if newly {
            let error = outcome.error().unwrap_or_default();
            let sink = shared.routes.describe(assignment.receiver());
            warn!(sink, %error, ?pause, "sink unavailable: its events wait");
            shared.breaker_metrics.report(shared, assignment.receiver());
            // The next claim skips what went back to the table.
            shared.wake.notify_one();
        }
    }
    ruling
}

/// Returns whether the health check has passed since the event failed.
async fn is_well(assignment: &mut ActiveAssignment<'_>, item: &Item) -> bool {
    if assignment.unwell {
        return false;
    }
    let health_checks =
        lock(&assignment.shared.buffer).health_checks(assignment.assignment(), item.destination);
    let failed_at = *assignment.failed_at.get_or_insert_with(Instant::now);
    let is_well = health_checks.since(failed_at, is_healthy(assignment, item)).await;
    assignment.unwell = !is_well;
    is_well
}

/// Runs the health check for the destination of this event.
async fn is_healthy(assignment: &ActiveAssignment<'_>, item: &Item) -> bool {
    let Some(sink) = assignment.receiver().and_then(|id| assignment.shared.routes.sink(id)) else {
        return false;
    };
    let Ok(event) = &item.content else { return false };
    let asking = pin!(async { sink.health_for(event).await });
    matches!(tokio::time::timeout(HEALTH_TIMEOUT, catch(asking)).await, Ok(Ok(Health::Up)))
}

/// Returns how long the receiver asks this event to wait.
fn asked_for(outcome: &Outcome) -> Duration {
    match outcome {
        Outcome::Retry { after, .. } => after.unwrap_or_default(),
        Outcome::Deferred { after } | Outcome::Later { after, .. } => *after,
        _ => Duration::ZERO,
    }
}

fn change(shared: &Shared, item: &Item, outcome: Outcome, ruling: Assessment) -> Change {
    let attempts = item.attempts.saturating_add(1);
    let not_counted =
        |after, error| Change::Wait { after, attempts: item.attempts, error, reason: HoldReason::Deferred };
    match (ruling, outcome) {
        (Assessment::ReceiverDown { pause, .. } | Assessment::DestinationDown { pause, .. }, outcome) => {
            not_counted(pause.max(asked_for(&outcome)), outcome.error().map(str::to_owned))
        }
        (Assessment::Excused(in_a_row), outcome) => {
            let error = outcome.error().map(str::to_owned);
            let failure = lock(&shared.failing_events).of(item.id(), Instant::now());
            let unexplained = unavailable_for(shared, item).is_some_and(|limit| failure.unexplained >= limit);
            // An event that is told to wait never dies of it.
            let may_die = !matches!(outcome, Outcome::Deferred { .. });
            if may_die && (unexplained || is_refused_alone(shared, item)) {
                return failed_too_long(shared, item, &outcome);
            }
            // Nothing counts, so a receiver that asks for no pause would get the event without end.
            let times = attempts.max(in_a_row).max(failure.times).min(NOT_COUNTED_TIMES_MAX);
            let pause = delay(shared, item, times, error.as_deref().unwrap_or_default());
            not_counted(asked_for(&outcome).max(pause.min(NOT_COUNTED_MAX)), error)
        }
        (Assessment::Counts, outcome) => fail(shared, item, outcome),
        (Assessment::AsReported, Outcome::Deferred { after }) => not_counted(after, None),
        (Assessment::AsReported, outcome) => {
            let error = outcome.error().unwrap_or_default().to_owned();
            Change::Dead { attempts, error, block: blocks(shared, item) }
        }
    }
}

/// Turns a counted failure into a retry, or into death after the last attempt.
fn fail(shared: &Shared, item: &Item, outcome: Outcome) -> Change {
    let attempts = item.attempts.saturating_add(1);
    let (error, after) = match outcome {
        Outcome::Retry { error, after } => (error, after),
        outcome => (outcome.error().unwrap_or_default().to_owned(), None),
    };
    if attempts >= max_attempts(shared, item) {
        return Change::Dead { attempts, error, block: blocks(shared, item) };
    }
    let after = after.unwrap_or_else(|| delay(shared, item, attempts, &error));
    Change::Wait { after, attempts, error: Some(error), reason: HoldReason::Retry }
}

/// Returns the policy's delay. If the policy panics, the default one decides, so that the event is not lost.
fn delay(shared: &Shared, item: &Item, attempts: u32, error: &str) -> Duration {
    let mut rng = lock(&shared.rng).fork();
    let of_route = shared.routes.settings(item.route()).and_then(|route| route.retry.as_ref());
    let policy = of_route.unwrap_or(&shared.retry);
    catch_unwind(AssertUnwindSafe(|| policy.delay(attempts, error, &mut rng))).unwrap_or_else(|_| {
        error!("retry policy panicked: using the default policy");
        Backoff::default().delay(attempts, error, &mut lock(&shared.rng))
    })
}
