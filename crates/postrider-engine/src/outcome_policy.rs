//! What the end of a delivery means for the event.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    time::Duration,
};

use postrider_core::{
    Backoff, Health, Outcome, RetryPolicy, Source,
    event::limits::{KEY_CHARS_MAX, clean_error},
    store::{Change, HoldReason, Settlement},
};
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::{
    DeadHeads,
    assignment::ActiveAssignment,
    buffer::Item,
    catch::catch,
    deliver::{DeliveryEnd, unroutable},
    engine::Shared,
    failing_events::FailureKind,
    failure_warnings::attempt_failed,
    lock,
    mutations::{self, Mutation},
    receiver::{Assessment, Attempt},
    routes::ReceiverId,
};

/// How long a health check may take.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// Turns the end of a delivery into what the table is to say.
pub(crate) async fn conclude(assignment: &mut ActiveAssignment<'_>, item: Item, end: DeliveryEnd) {
    let end = match end {
        // It was alone in its batch, so it is the reason.
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
            // It stays in the table as it is, unless it was asked to come later than others.
            Assessment::ReceiverDown { pause, .. } if !assignment.counted && asked_for(&outcome) <= pause => {
                return assignment.keep(item);
            }
            ruling @ Assessment::ReceiverDown { .. } => {
                // The attempt that was written before it was made has to be taken back.
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
            // No event can have such a key, so nothing follows it; and a key as long as that cannot be held.
            let block = block && item.key.as_ref().is_none_or(|key| key.chars().count() <= KEY_CHARS_MAX);
            Change::Dead { attempts: item.attempts, error: format!("undecodable: {error}"), block }
        }
    };
    assignment.settle(item, change);
}

/// An event was being delivered each time that a process ended, as often as it may be tried: it is not tried again.
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
    let of_route = shared.routes.settings(item.route()).and_then(|route| route.dead_heads);
    of_route.unwrap_or(shared.settings.dead_heads) == DeadHeads::Block && item.key.is_some()
}

/// How often an event may be tried.
pub(crate) fn max_attempts(shared: &Shared, item: &Item) -> u32 {
    let of_route = shared.routes.settings(item.route()).and_then(|route| route.max_attempts);
    of_route.unwrap_or(shared.settings.max_attempts)
}

/// How long an event may fail without anybody knowing why; none for any time.
fn unavailable_for(shared: &Shared, item: &Item) -> Option<Duration> {
    let of_route = shared.routes.settings(item.route()).and_then(|route| route.unavailable_for);
    let limit = of_route.unwrap_or(shared.settings.unavailable_for);
    Some(limit).filter(|limit| !limit.is_zero() && !mutations::active(Mutation::UnavailableForIgnored))
}

/// The longest pause after a failure that is not counted: the event may be in order, and what it waits for over by then. A policy may know no limit.
const NOT_COUNTED_MAX: Duration = Duration::from_secs(60);

/// It grows as if there had been no more attempts than this.
const NOT_COUNTED_TIMES_MAX: u32 = 32;

/// How long an event waits that has used up its attempts where all do.
const SPARED_FOR: Duration = Duration::from_secs(30);

/// How long an event that has used up its attempts waits for a sign that its destination still works.
const SIGN_OF_LIFE_WITHIN: Duration = Duration::from_secs(1);

/// An event that has used up its attempts waits instead of dying, where all do: its destination is broken, whatever its health check says. It also
/// waits where nothing shows that the destination works after it has failed: this may be how an outage begins.
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

/// Whether the destination works after the event has failed: others are delivered, or its health check passes.
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
        // What another worker delivers is no progress that anybody tells of.
        let _ = tokio::time::timeout_at(until.min(now + shared.settings.poll_min), progress).await;
    }
}

/// Whether its destination seems to be down each time that it is sent this event, takes others in between, and that for too long.
fn is_refused_alone(shared: &Shared, item: &Item) -> bool {
    let (lasts, times) = lock(&shared.failing_events).of(item.id(), Instant::now()).alone;
    unavailable_for(shared, item).is_some_and(|limit| lasts >= limit) && times >= max_attempts(shared, item)
}

/// It has failed for as long as it may without anybody knowing why.
fn failed_too_long(shared: &Shared, item: &Item, outcome: &Outcome) -> Change {
    let limit = unavailable_for(shared, item).unwrap_or_default();
    let error = outcome.error().unwrap_or_default();
    let error = format!("it has failed for {limit:?}, and nobody knows whether its receiver was up: {error}");
    Change::Dead { attempts: item.attempts, error, block: blocks(shared, item) }
}

/// Asks what is known of the receiver.
async fn assess(assignment: &mut ActiveAssignment<'_>, item: &Item, outcome: &Outcome) -> Assessment {
    // What this worker has delivered is a sign of life, and has to be known first.
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
            // It has answered, and said why.
            (Assessment::Excused(_), Outcome::Rejected { .. }) => FailureKind::Explained,
            (_, Outcome::Deferred { .. }) => FailureKind::PutOff,
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
        let (receiver, destination) =
            (shared.routes.told(assignment.receiver()), assignment.destination(item));
        warn!(receiver, destination, %error, ?pause, "a destination is unavailable: what goes to it waits");
    }
    if let Assessment::ReceiverDown { pause, newly } = ruling {
        // Somebody has to wake up when the pause is over, and this worker may be busy then.
        shared.work.notify_one();
        if newly {
            let error = outcome.error().unwrap_or_default();
            let receiver = shared.routes.told(assignment.receiver());
            warn!(receiver, %error, ?pause, "a receiver is unavailable: what goes to it waits");
            shared.breaker_metrics.tell(shared, assignment.receiver());
            // What was let go is for the next claim to pass over.
            shared.wake.notify_one();
        }
    }
    ruling
}

/// Whether the health check passes for where an event goes, as was seen since it failed.
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

/// A receiver that was thought to be down has answered.
pub(crate) fn is_back(shared: &Shared, receiver: Option<ReceiverId>) {
    info!(receiver = shared.routes.told(receiver), "a receiver is available again");
    shared.breaker_metrics.tell(shared, receiver);
    shared.work.notify_one();
    shared.wake.notify_one();
}

/// Whether the receiver is up, as far as this event needs it.
async fn is_healthy(assignment: &ActiveAssignment<'_>, item: &Item) -> bool {
    let Some(sink) = assignment.receiver().and_then(|id| assignment.shared.routes.sink(id)) else {
        return false;
    };
    let Ok(event) = &item.content else { return false };
    let asking = pin!(async { sink.health_for(event).await });
    matches!(tokio::time::timeout(HEALTH_TIMEOUT, catch(asking)).await, Ok(Ok(Health::Up)))
}

/// How long the receiver asks this event to wait.
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
            // What is told to wait never dies of it.
            let may_die = !matches!(outcome, Outcome::Deferred { .. });
            if may_die && (unexplained || is_refused_alone(shared, item)) {
                return failed_too_long(shared, item, &outcome);
            }
            // Nothing is counted, so a receiver that asks for no pause would be sent the event again without end.
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

/// A failed attempt: wait and try again, or dead if it was the last.
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

/// The policy's delay. A policy that panics is answered for by the default one, so that the event is not lost.
fn delay(shared: &Shared, item: &Item, attempts: u32, error: &str) -> Duration {
    let mut rng = lock(&shared.rng).fork();
    let of_route = shared.routes.settings(item.route()).and_then(|route| route.retry.as_ref());
    let policy = of_route.unwrap_or(&shared.retry);
    catch_unwind(AssertUnwindSafe(|| policy.delay(attempts, error, &mut rng))).unwrap_or_else(|_| {
        error!("the retry policy panicked: the default one decides");
        Backoff::default().delay(attempts, error, &mut lock(&shared.rng))
    })
}

/// What the table is told of an event.
pub(crate) fn settlement(
    shared: &Shared,
    receiver: Option<ReceiverId>,
    item: Item,
    change: Change,
) -> Settlement {
    let change = clean(change);
    report(shared, receiver, &item, &change);
    let event_id = item.id().clone();
    Settlement { lane: item.lease.lane, seq: item.seq, event_id, key: item.key, held: item.held, change }
}

/// Error text is cut and cleaned here, before it is kept in memory and stored.
fn clean(mut change: Change) -> Change {
    match &mut change {
        Change::Wait { error: Some(error), .. } | Change::Dead { error, .. } => *error = clean_error(error),
        _ => {}
    }
    change
}

/// A dead event is told of once, here, where its id and its reason are known.
fn report(shared: &Shared, receiver: Option<ReceiverId>, item: &Item, change: &Change) {
    if let Change::Dead { attempts, error, block } = change {
        lock(&shared.failing_events).forget(item.id());
        let (hot, sink) = (item.source == Source::Hot, shared.routes.told(receiver));
        let event_type = match &item.content {
            Ok(event) => event.event_type(),
            Err(undecodable) => &undecodable.event_type,
        };
        let key = item.key.as_deref().unwrap_or_default();
        error!(event = %item.id(), event_type, key, sink, attempts, reason = %error, blocks_its_key = block, hot, "event is dead");
    }
}
