//! Delivers suspects: events that may have been under way when the last owner of their lane crashed.
//!
//! One of them may be what crashed it. Each goes alone, and its attempt is written before it is sent: if it
//! crashes this process too, the attempt is counted, and after `max_attempts` the event is dead. Other events
//! are not counted. A clean outcome takes the attempt back, because it is settled with the earlier number.

use std::time::Duration;

use postrider_core::{
    sink::error_chain,
    store::{Change, HoldReason, Settlement},
};
use tokio::time::Instant;
use tracing::warn;

use crate::{
    assignment::ActiveAssignment,
    buffer::Item,
    deliver::deliver as send,
    lock,
    outcome_policy::{give_up, max_attempts},
    settle::is_refused,
    shared::Shared,
    store_timeout::bounded,
};

pub(crate) async fn deliver(mut assignment: ActiveAssignment<'_>) {
    let shared = assignment.shared;
    let Some(item) = assignment.first() else { return };
    if item.attempts >= max_attempts(shared, item) {
        return give_up(assignment);
    }
    let (lease, seq, back) = (item.lease, item.seq, uncounted(item));
    // Anyone who ends this worker from now on takes back what was counted, whether or not the count was answered.
    lock(&shared.counted).insert(seq, (lease, back));
    let counted = count(shared, item).await;
    if counted == AttemptCount::CannotBe {
        lock(&shared.counted).remove(&seq);
        return defer(assignment);
    }
    // Counting takes time, and the lease may have run out.
    let until =
        lock(&shared.buffer).may_send_until(lease, Instant::now()).filter(|_| counted == AttemptCount::Yes);
    if let Some(until) = until {
        assignment.counted = true;
        assignment.extend(until);
        _ = send(assignment).await;
        lock(&shared.counted).remove(&seq);
    } else {
        lock(&shared.counted).remove(&seq);
        drop(assignment);
        tokio::time::sleep(shared.settings.poll_min).await;
    }
}

/// Returns the settlement that takes back an attempt that did not end.
fn uncounted(item: &Item) -> Settlement {
    let (attempts, reason) = (item.attempts, HoldReason::Deferred);
    Settlement {
        lane: item.lease.lane,
        seq: item.seq,
        event_id: item.id().clone(),
        key: item.key.clone(),
        held: item.held,
        change: Change::Wait { after: Duration::ZERO, attempts, error: None, reason },
    }
}

/// How long an event waits whose attempt cannot be counted.
const UNCOUNTABLE_WAITS: Duration = Duration::from_secs(1);

/// Defers an event whose row is locked or cannot be changed, so that others have their turn.
fn defer(mut assignment: ActiveAssignment<'_>) {
    if let Some(item) = assignment.next() {
        let (attempts, reason) = (item.attempts, HoldReason::Deferred);
        assignment.settle(item, Change::Wait { after: UNCOUNTABLE_WAITS, attempts, error: None, reason });
    }
    _ = assignment.end();
}

/// Whether an attempt was written. If not, the event must not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptCount {
    Yes,
    NotNow,
    /// The row is locked, or the database refuses to change it.
    CannotBe,
}

async fn count(shared: &Shared, item: &Item) -> AttemptCount {
    let attempt = Settlement {
        lane: item.lease.lane,
        seq: item.seq,
        event_id: item.id().clone(),
        key: None,
        held: false,
        change: Change::Attempt { attempts: item.attempts.saturating_add(1) },
    };
    let (leases, attempts) = ([item.lease], [attempt]);
    let settling = shared.store.settle(&leases, &attempts, shared.settings.retention);
    match bounded(shared, settling).await {
        Ok(settled) if !settled.locked.is_empty() => AttemptCount::CannotBe,
        Ok(settled) if settled.lost.is_empty() => AttemptCount::Yes,
        Ok(_) => {
            lock(&shared.buffer).lose(item.lease);
            shared.lanes.notify_one();
            AttemptCount::NotNow
        }
        Err(error) => {
            warn!(error = error_chain(&error), "counting an attempt beforehand failed: the event waits");
            if is_refused(&error) {
                return AttemptCount::CannotBe;
            }
            lock(&shared.buffer).count_may_come_late(item);
            AttemptCount::NotNow
        }
    }
}
