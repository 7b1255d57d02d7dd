//! Owns the events that a worker has taken until each was sent, requeued or settled.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::Ordering::Relaxed,
};

use postrider_core::store::{Change, Settlement};
use tokio::time::Instant;

use crate::{
    buffer::{Assignment, Item, PendingSettlements, SettlementOrigin},
    destination::DestinationId,
    lock, outcome_report,
    receiver::Attempt,
    routes::ReceiverId,
    shared::Shared,
};

/// Permission to send. Workers check it last, right before they send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendPermit {
    until: Option<Instant>,
    /// None for an attempt that is already counted: a pause does not stop it any more.
    pauses_begun: Option<u64>,
}

impl SendPermit {
    /// Returns whether the lease still holds and nothing was paused since.
    pub(crate) fn holds(self, shared: &Shared) -> bool {
        let late = self.until.is_some_and(|until| Instant::now() >= until);
        let paused = self.pauses_begun.is_some_and(|begun| begun != shared.pauses_begun.load(Relaxed));
        !late && !paused
    }
}

/// Events that a worker has taken. When it ends, in whatever way, the worker is free and unsent events are
/// requeued.
pub(crate) struct ActiveAssignment<'a> {
    pub(crate) shared: &'a Shared,
    assignment: Assignment,
    settlements: PendingSettlements,
    /// Whether the attempt was written to the table before it was made.
    pub(crate) counted: bool,
    /// Whether the health check failed for an event since the last one was taken. A batch then skips further
    /// checks, because a check that hangs takes its time.
    pub(crate) unwell: bool,
    /// The destinations that took an event since then.
    delivered_to: Vec<Option<DestinationId>>,
    /// When the first event failed since then.
    pub(crate) failed_at: Option<Instant>,
    ended: bool,
}

impl<'a> ActiveAssignment<'a> {
    pub(crate) fn new(shared: &'a Shared, assignment: Assignment) -> Self {
        Self {
            shared,
            settlements: PendingSettlements::with_capacity(assignment.items.len()),
            assignment,
            counted: false,
            unwell: false,
            delivered_to: Vec::new(),
            failed_at: None,
            ended: false,
        }
    }

    pub(crate) fn receiver(&self) -> Option<ReceiverId> {
        self.assignment.receiver
    }

    pub(crate) fn len(&self) -> usize {
        self.assignment.items.len()
    }

    pub(crate) fn first(&self) -> Option<&Item> {
        self.assignment.items.front()
    }

    pub(crate) fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    /// Returns the name of an event's destination; empty if the receiver has only one.
    pub(crate) fn destination(&self, item: &Item) -> String {
        let sink = self.receiver().and_then(|id| self.shared.routes.sink(id));
        let Some((sink, event)) = sink.zip(item.content.as_ref().ok()) else { return String::new() };
        catch_unwind(AssertUnwindSafe(|| sink.destination(event))).ok().flatten().unwrap_or_default()
    }

    /// Describes an attempt for the receiver, which assesses its outcome.
    pub(crate) fn attempt(&self, item: &Item) -> Attempt {
        let (destination, key, since) = (item.destination, item.key_number, self.assignment.since);
        let (sent_at, others_delivered) =
            (self.assignment.taken_at(), self.delivered_to.contains(&destination));
        Attempt {
            destination,
            key,
            since,
            sent_at,
            events: self.assignment.taken(),
            others_delivered,
            healthy: false,
        }
    }

    /// Returns the next event, while it may be sent.
    pub(crate) fn next(&mut self) -> Option<Item> {
        (self.unwell, self.failed_at) = (false, None);
        self.delivered_to.clear();
        // Handlers that block may have used up the lease on earlier events.
        if self.permit().holds(self.shared) { self.assignment.items.pop_front() } else { None }
    }

    /// Returns the permission to send what is left.
    pub(crate) fn permit(&self) -> SendPermit {
        SendPermit {
            until: self.assignment.until,
            pauses_begun: (!self.counted).then_some(self.assignment.pauses_begun),
        }
    }

    /// Requeues events that may no longer be sent, before the rest.
    pub(crate) fn take_back(&mut self, items: Vec<Item>) {
        items.into_iter().rev().for_each(|item| self.assignment.items.push_front(item));
        self.put_back_rest();
    }

    /// Extends the permission: the lease was checked again, and a counted attempt goes on whatever is paused
    /// meanwhile.
    pub(crate) fn extend(&mut self, until: Instant) {
        self.assignment.until = Some(until);
        self.assignment.pauses_begun = self.shared.pauses_begun.load(Relaxed);
    }

    /// Requeues what this worker cannot send at once, for other workers.
    pub(crate) fn give_way(&mut self) {
        self.submit_outcomes(false);
        if !self.assignment.items.is_empty() {
            lock(&self.shared.buffer).put_back(&mut self.assignment);
            self.shared.work.notify_one();
        }
    }

    /// Records that an event was delivered.
    pub(crate) fn delivered(&mut self, item: Item) {
        if self.assignment.taken() > 1 && !self.delivered_to.contains(&item.destination) {
            self.delivered_to.push(item.destination);
        }
        if item.has_failed() {
            lock(&self.shared.failing_events).forget(item.id());
        }
        let event_id = item.id().clone();
        let Item { content, lease, seq, key, held, key_number, destination, batched_with_head, .. } = item;
        let origin = SettlementOrigin::new(lease, key_number, destination, batched_with_head, content.ok());
        self.settlements
            .push(origin, Settlement { lane: lease.lane, seq, event_id, key, held, change: Change::Done });
    }

    /// Requeues events that were not sent because an earlier event of their key failed. Call it before the
    /// outcome of that event is recorded.
    pub(crate) fn requeue_followers(&mut self, items: Vec<Item>) {
        if !items.is_empty() {
            lock(&self.shared.buffer).requeue(&mut items.into());
        }
    }

    /// Splits a batch that failed as a whole. Its events are sent again by key, then one by one, and no attempt
    /// is counted.
    pub(crate) fn split_batch(&mut self, items: Vec<Item>) {
        lock(&self.shared.buffer).split_batch(&self.assignment, items);
        self.shared.work.notify_one();
    }

    /// Requeues what may no longer be sent at once, so that it does not come after the outcomes of earlier
    /// events.
    pub(crate) fn put_back_rest(&mut self) {
        if !self.assignment.items.is_empty() {
            lock(&self.shared.buffer).put_back(&mut self.assignment);
        }
    }

    /// Records the outcome of an event.
    pub(crate) fn settle(&mut self, item: Item, change: Change) {
        if matches!(change, Change::Dead { .. }) {
            let sinks = self.shared.routes.names(self.assignment.receiver);
            self.shared.metrics.died(sinks, item.content.as_ref().ok().map(|event| event.event_type()));
        }
        let (lease, key_number, destination, batched_with_head) =
            (item.lease, item.key_number, item.destination, item.batched_with_head);
        let event = item.content.as_ref().ok().cloned();
        let receiver = self.assignment.receiver;
        let settlement = outcome_report::settlement(self.shared, receiver, item, change);
        let origin = SettlementOrigin::new(lease, key_number, destination, batched_with_head, event);
        self.settlements.push(origin, settlement);
    }

    /// Leaves an event in the table: its receiver is down.
    pub(crate) fn keep(&mut self, item: Item) {
        lock(&self.shared.buffer).requeue_refused(&self.assignment, item);
        // The next claim brings another event to try.
        self.shared.wake.notify_one();
    }

    /// Hands outcomes over to the settler, so that the next assessment knows of them.
    pub(crate) fn flush(&mut self) {
        self.submit_outcomes(false);
        if lock(&self.shared.buffer).sent(&mut self.assignment, Instant::now()) {
            self.shared.work.notify_one();
        }
    }

    /// Ends the assignment. Returns whether it is time to settle.
    pub(crate) fn end(mut self) -> bool {
        self.submit_outcomes(true)
    }

    fn submit_outcomes(&mut self, end: bool) -> bool {
        if self.settlements.is_empty() && !end {
            return false;
        }
        let now = Instant::now();
        let (settle_at, first, back, left) = {
            let mut buffer = lock(&self.shared.buffer);
            let first = !buffer.has_outcomes();
            let back = buffer.finish(&self.assignment, &mut self.settlements, now);
            let left = !self.assignment.items.is_empty();
            if end {
                self.ended = true;
                buffer.end_assignment(&mut self.assignment, now);
            }
            (buffer.settle_at(&self.shared.settings, now), first, back, left && end)
        };
        let due = settle_at.is_some_and(|at| at <= now);
        if back {
            outcome_report::is_back(self.shared, self.assignment.receiver);
        }
        if due || (first && settle_at.is_some()) {
            self.shared.outcomes.notify_one();
        }
        if left {
            self.shared.work.notify_one();
        }
        due
    }
}

impl Drop for ActiveAssignment<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.submit_outcomes(true);
        }
    }
}
