//! What a worker has in its hand: events to send, and outcomes to hand on.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::Ordering::Relaxed,
};

use postrider_core::store::{Change, Settlement};
use tokio::time::Instant;

use crate::{
    buffer::{Assignment, Item, PendingSettlements, SettlementOrigin},
    destination::DestinationId,
    engine::Shared,
    lock, outcome_policy,
    receiver::Attempt,
    routes::ReceiverId,
};

/// What allows to send something; to be looked at last before it is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendPermit {
    until: Option<Instant>,
    /// None for an attempt that is counted already: it is under way, whatever is paused meanwhile.
    pauses_begun: Option<u64>,
}

impl SendPermit {
    /// Whether the lease has not run out, and nothing was paused.
    pub(crate) fn holds(self, shared: &Shared) -> bool {
        let late = self.until.is_some_and(|until| Instant::now() >= until);
        let paused = self.pauses_begun.is_some_and(|begun| begun != shared.pauses_begun.load(Relaxed));
        !late && !paused
    }
}

/// Events that a worker has taken. However it ends, the worker is free again, and what was not sent lines up again.
pub(crate) struct ActiveAssignment<'a> {
    pub(crate) shared: &'a Shared,
    assignment: Assignment,
    settlements: PendingSettlements,
    /// The attempt was written before it was made.
    pub(crate) counted: bool,
    /// The receiver's health check did not pass for one of the events since the last was taken. A batch asks for no other then, since a
    /// check that hangs takes its time.
    pub(crate) unwell: bool,
    /// Where something was delivered since then.
    delivered_to: Vec<Option<DestinationId>>,
    /// When the first of them failed since then.
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

    /// What the receiver calls the destination of an event; empty where it has only one.
    pub(crate) fn destination(&self, item: &Item) -> String {
        let sink = self.receiver().and_then(|id| self.shared.routes.sink(id));
        let Some((sink, event)) = sink.zip(item.content.as_ref().ok()) else { return String::new() };
        catch_unwind(AssertUnwindSafe(|| sink.destination(event))).ok().flatten().unwrap_or_default()
    }

    /// What its receiver has to know of an attempt to rule on its outcome.
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

    /// The next event to send, as long as it may be sent.
    pub(crate) fn next(&mut self) -> Option<Item> {
        (self.unwell, self.failed_at) = (false, None);
        self.delivered_to.clear();
        // Handlers that block may have used up the lease on those before.
        if self.permit().holds(self.shared) { self.assignment.items.pop_front() } else { None }
    }

    /// What allows to send what is in the hand.
    pub(crate) fn permit(&self) -> SendPermit {
        SendPermit {
            until: self.assignment.until,
            pauses_begun: (!self.counted).then_some(self.assignment.pauses_begun),
        }
    }

    /// These were to be sent, and may not be any more: they line up again before the rest.
    pub(crate) fn take_back(&mut self, items: Vec<Item>) {
        items.into_iter().rev().for_each(|item| self.assignment.items.push_front(item));
        self.put_back_rest();
    }

    /// The lease was looked at again: it holds for longer. The attempt is counted, and under way whatever is paused meanwhile.
    pub(crate) fn extend(&mut self, until: Instant) {
        self.assignment.until = Some(until);
        self.assignment.pauses_begun = self.shared.pauses_begun.load(Relaxed);
    }

    /// Others can send what this worker cannot at once.
    pub(crate) fn give_way(&mut self) {
        self.submit_outcomes(false);
        if !self.assignment.items.is_empty() {
            lock(&self.shared.buffer).put_back(&mut self.assignment);
            self.shared.work.notify_one();
        }
    }

    /// The event was delivered, which is to be settled.
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

    /// These were not sent, or not taken, because an earlier event of their key was not: they wait behind it. To be said before what
    /// became of that one.
    pub(crate) fn requeue_followers(&mut self, items: Vec<Item>) {
        if !items.is_empty() {
            lock(&self.shared.buffer).requeue(&mut items.into());
        }
    }

    /// A batch with these in it has failed as a whole: they are sent again apart, by key and then one by one, before anything is counted.
    pub(crate) fn part(&mut self, items: Vec<Item>) {
        lock(&self.shared.buffer).part(&self.assignment, items);
        self.shared.work.notify_one();
    }

    /// What may no longer be sent goes back at once: it must not come behind what becomes of those before it.
    pub(crate) fn put_back_rest(&mut self) {
        if !self.assignment.items.is_empty() {
            lock(&self.shared.buffer).put_back(&mut self.assignment);
        }
    }

    /// The outcome of an event, to be settled.
    pub(crate) fn settle(&mut self, item: Item, change: Change) {
        if matches!(change, Change::Dead { .. }) {
            let sinks = self.shared.routes.names(self.assignment.receiver);
            self.shared.metrics.died(sinks, item.content.as_ref().ok().map(|event| event.event_type()));
        }
        let (lease, key_number, destination, batched_with_head) =
            (item.lease, item.key_number, item.destination, item.batched_with_head);
        let event = item.content.as_ref().ok().cloned();
        let receiver = self.assignment.receiver;
        let settlement = outcome_policy::settlement(self.shared, receiver, item, change);
        let origin = SettlementOrigin::new(lease, key_number, destination, batched_with_head, event);
        self.settlements.push(origin, settlement);
    }

    /// The receiver is down: the event stays where it is.
    pub(crate) fn keep(&mut self, item: Item) {
        lock(&self.shared.buffer).requeue_refused(&self.assignment, item);
        // The next claim brings another one to try.
        self.shared.wake.notify_one();
    }

    /// Hands outcomes on to be settled, so that what follows is judged in their light.
    pub(crate) fn flush(&mut self) {
        self.submit_outcomes(false);
        if lock(&self.shared.buffer).sent(&mut self.assignment, Instant::now()) {
            self.shared.work.notify_one();
        }
    }

    /// Everything was sent. Says whether it is time to settle.
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
            outcome_policy::is_back(self.shared, self.assignment.receiver);
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
