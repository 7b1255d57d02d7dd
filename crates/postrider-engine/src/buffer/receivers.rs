//! Assigns events to workers, takes back what they did not send, and moves events to the table when a receiver
//! is down.

use super::{backlog_id::BacklogId, *};
use crate::{
    health_checks::HealthChecks,
    receiver::{Assessment, Attempt, RejectionNotice},
};
use postrider_core::{Outcome, rng::Rng};

/// Receivers that begin or cease to reject everything.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RejectionChanges {
    /// Receivers that reject everything without a notice.
    pub(crate) raise: Vec<String>,
    /// Receivers that take something again.
    pub(crate) clear: Vec<String>,
    /// Whether an operator has released a brake, so that waiting events can go.
    pub(crate) opened: bool,
}

impl Buffer {
    /// Whether this receiver is up. Without one: whether events without a route can be handled.
    pub(crate) fn is_up(&self, receiver: Option<ReceiverId>) -> bool {
        self.receivers.is_receiver_up(receiver)
    }

    /// Whether nothing can be sent or settled now, and all events left are paused, for unavailable receivers,
    /// or of stopped routes.
    pub(crate) fn is_unavailable(&self, now: Instant) -> bool {
        self.is_drained(now) && self.is_rest_unavailable(now)
    }

    /// Whether nothing can be sent now and only postponed outcomes are left, beside events that are paused or
    /// unavailable.
    pub(crate) fn has_only_postponed(&self, now: Instant) -> bool {
        let is_idle = self.sending == 0 && self.unwritten() == 0 && !self.has_work(now);
        self.postponed.len() > 0 && is_idle && self.is_rest_unavailable(now)
    }

    fn is_rest_unavailable(&self, now: Instant) -> bool {
        let is_down = |slot: RouteSlot| {
            let is_held_off = |receiver: &Receiver| receiver.is_held_off(now);
            !self.gate_of_route(slot).is_open() || self.receivers.get(slot).is_some_and(is_held_off)
        };
        // What waits for room behind its key waits for events in memory.
        let waits = |id: BacklogId| {
            self.pauses.holds(id) || id.route().is_some_and(is_down) || self.waits_for_its_keys(id)
        };
        let mut counts = self.in_flight.by_route();
        counts.all(|(slot, count)| count == 0 || is_down(slot)) && lock(&self.backlogs).ids().all(waits)
    }

    /// Whether memory is full of unavailable events, and no other route exists that a claim could look for.
    pub(crate) fn is_full_of_unavailable(&self, now: Instant) -> bool {
        !self.has_several_routes() && self.is_unavailable(now)
    }

    /// Assigns events to a worker.
    pub(super) fn assignment(&mut self, slot: RouteSlot, items: VecDeque<Item>, now: Instant) -> Assignment {
        self.sending += items.len();
        for item in &items {
            self.lanes.get_mut(item.lease.lane).into_iter().for_each(|lane| lane.busy += 1);
        }
        self.receivers.spaced(slot, items.len(), now);
        let receiver = self.receivers.get_mut(slot);
        let probe = receiver.as_ref().is_some_and(|receiver| !receiver.is_up());
        let destination = items.front().and_then(|item| item.destination);
        let since = receiver.map_or(0, |receiver| receiver.sending(destination, now));
        self.receivers.take_worker(slot);
        let failed = items.iter().any(Item::has_failed);
        if failed {
            self.receivers.get_mut(slot).into_iter().for_each(Receiver::sending_failed);
        }
        let receiver = self.receivers.of(slot).receiver();
        let (taken_at, taken) = (now, items.len());
        let (until, pauses_begun) = (self.lanes.first_deadline(), self.pauses.begun());
        let (sent, probed) = (false, None);
        Assignment {
            receiver,
            since,
            items,
            until,
            taken_at,
            taken,
            pauses_begun,
            slot,
            destination,
            sent,
            failed,
            probe,
            probed,
        }
    }

    /// Frees the worker. Unsent events are requeued at the front.
    pub(crate) fn end_assignment(&mut self, assignment: &mut Assignment, now: Instant) {
        self.receivers.free_worker(assignment.slot);
        self.put_back(assignment);
        _ = self.sent(assignment, now);
        if let Some(receiver) = self.receivers.get_mut(assignment.slot) {
            receiver.ended(assignment.destination);
            if assignment.failed {
                receiver.failed_ended();
            }
            receiver.end_probe(assignment.probe, assignment.probed, now);
            receiver.note_pace(assignment.taken, now.saturating_duration_since(assignment.taken_at));
        }
        _ = self.receivers.make_room(assignment.slot);
    }

    /// Records that the send of an assignment has ended. Others may go there while its outcomes are assessed.
    /// Returns whether somebody may have waited for that.
    pub(crate) fn sent(&mut self, assignment: &mut Assignment, now: Instant) -> bool {
        if std::mem::replace(&mut assignment.sent, true) {
            return false;
        }
        let receiver = self.receivers.get_mut(assignment.slot);
        receiver
            .into_iter()
            .for_each(|receiver| receiver.was_sent(assignment.destination, assignment.taken_at, now));
        self.receivers.make_room(assignment.slot)
    }

    /// Requeues what a worker cannot send at once, for other workers.
    pub(crate) fn put_back(&mut self, assignment: &mut Assignment) {
        assignment.taken -= assignment.items.len();
        self.requeue(&mut assignment.items);
    }

    /// Requeues events that were not sent, in their order.
    pub(crate) fn requeue(&mut self, items: &mut VecDeque<Item>) {
        while let Some(item) = items.pop_back() {
            match self.back_from_sending(item) {
                Some(item) if item.batched_with_head => self.requeue_follower(item),
                Some(item) => self.enqueue_front(item),
                None => {}
            }
        }
    }

    /// Records delivered events with their destinations and keys, and the first one. Returns whether the
    /// receiver was down before.
    pub(super) fn note_delivered(
        &mut self,
        assignment: &Assignment,
        events: impl Iterator<Item = (Option<DestinationId>, u64)>,
        first: Option<Seq>,
        now: Instant,
    ) -> bool {
        let Some(receiver) = self.receivers.get_mut(assignment.slot) else { return false };
        let was_up = receiver.is_up();
        receiver.note_delivered(events, assignment.taken_at(), now);
        let is_back = !was_up && receiver.is_up();
        if let Some(seq) = first.filter(|_| is_back) {
            lock(&self.backlogs).note_taken(assignment.slot.into(), seq);
        }
        is_back
    }

    /// Whether only the health check can tell what this failure means.
    pub(crate) fn has_to_ask(&self, assignment: &Assignment, outcome: &Outcome, attempt: &Attempt) -> bool {
        self.receivers.get(assignment.slot).is_some_and(|receiver| receiver.has_to_be_asked(outcome, attempt))
    }

    /// Returns the health checks of an event's destination.
    pub(crate) fn health_checks(
        &self,
        assignment: &Assignment,
        destination: Option<DestinationId>,
    ) -> HealthChecks {
        let receiver = self.receivers.get(assignment.slot);
        receiver.map_or_else(HealthChecks::default, |receiver| receiver.health_checks(destination))
    }

    /// Assesses an outcome other than delivered. Returns also whether it shows that the receiver is up again.
    pub(crate) fn assess(
        &mut self,
        assignment: &Assignment,
        outcome: &Outcome,
        attempt: &Attempt,
        rng: &mut Rng,
    ) -> (Assessment, bool) {
        let Some(receiver) = self.receivers.get_mut(assignment.slot) else {
            return (Assessment::AsReported, false);
        };
        let was_up = receiver.is_up();
        let ruling = receiver.assess(outcome, attempt, Instant::now(), rng);
        let back = receiver.is_up() && !was_up;
        if let Assessment::ReceiverDown { newly: true, .. } = ruling {
            self.shed(assignment.slot);
        }
        (ruling, back)
    }

    /// Updates the notices of receivers that reject everything, given those that are `raised` already and for
    /// how long, and the sinks whose brakes operators have taken `off`.
    pub(crate) fn rejecting(
        &mut self,
        raised: &[(String, Duration)],
        off: &[String],
        routes: &RouteTable,
    ) -> RejectionChanges {
        let mut changes = RejectionChanges::default();
        for (id, receiver) in self.receivers.iter_mut() {
            // A receiver without a name cannot be reported.
            let Some(name) = routes.names(Some(id)).first() else { continue };
            let was_up = receiver.is_up();
            receiver.allow_rejections(off.contains(name));
            changes.opened |= !was_up && receiver.is_up();
            let listed = raised.iter().find(|(raised, _)| raised == name).map(|(_, lasts)| *lasts);
            match receiver.update_rejection_notice(listed) {
                Some(RejectionNotice::Raise) => changes.raise.push(name.clone()),
                Some(RejectionNotice::Clear) => changes.clear.push(name.clone()),
                None => {}
            }
        }
        changes
    }

    /// Whether an event that has used up its attempts may die. It may not where all do.
    pub(crate) fn allows_death(&mut self, assignment: &Assignment, item: &Item, now: Instant) -> bool {
        let (destination, key) = (item.destination, item.key_number);
        self.receivers
            .get_mut(assignment.slot)
            .is_none_or(|receiver| receiver.allows_death(destination, key, now))
    }

    /// Returns how many events its receiver had taken when a destination took its last one, and whether the
    /// destination fails for other keys too.
    pub(crate) fn seen_at(
        &self,
        assignment: &Assignment,
        destination: Option<DestinationId>,
        key: u64,
    ) -> (u64, bool) {
        let receiver = self.receivers.get(assignment.slot);
        receiver.map_or((0, false), |receiver| receiver.seen_at(destination, key))
    }

    /// Returns how many events an outside system has taken; none for a handler in this process.
    pub(crate) fn taken_outside(&self, assignment: &Assignment) -> Option<u64> {
        self.receivers.get(assignment.slot).filter(|receiver| !receiver.is_in_process()).map(Receiver::taken)
    }

    pub(crate) fn is_alive_for(&self, assignment: &Assignment, attempt: &Attempt) -> bool {
        self.receivers.get(assignment.slot).is_some_and(|receiver| receiver.is_alive_for(attempt))
    }

    /// Records that operators were told of a sink that rejects everything.
    pub(crate) fn notice_raised(&mut self, name: &str, routes: &RouteTable) {
        let first = |id: usize| routes.names(Some(id)).first().is_some_and(|known| known == name);
        let receivers = self.receivers.iter_mut();
        receivers.filter(|(id, _)| first(*id)).for_each(|(_, receiver)| receiver.notice_raised());
    }

    /// Returns a refused event to the table unchanged. It comes again after the others, since it may be what
    /// the receiver objects to.
    pub(crate) fn requeue_refused(&mut self, assignment: &Assignment, item: Item) {
        let Some(item) = self.back_from_sending(item) else { return };
        if mutations::active(Mutation::RefusedProbeRepeated) {
            return self.enqueue_front(item);
        }
        self.tried(assignment, &item);
        self.release(item);
    }

    /// Records that an event was tried, so that others have their turn before it.
    pub(crate) fn tried(&self, assignment: &Assignment, item: &Item) {
        let key = item.key.as_ref().map(|_| item.key_number);
        lock(&self.backlogs).note_tried(item.slot.into(), (item.lease.lane, item.seq), key, assignment.probe);
    }

    /// Enqueues an event that probes its receiver.
    fn enqueue_probe(&mut self, item: Item) {
        let key = item.key.as_ref().map(|_| item.key_number);
        lock(&self.backlogs).note_probe(item.slot.into(), item.lease.lane, item.seq, key);
        self.shed_followers(&item);
        self.enqueue(item);
    }

    /// Returns the events of a receiver that is down to the table, except for a few probes.
    fn shed(&mut self, slot: RouteSlot) {
        let slots: Vec<RouteSlot> = self.receivers.slots_beside(slot).collect();
        let mut places = 0..self.receivers.probes();
        for slot in slots {
            let mut queued = self.queues.take_route(slot);
            for lane in self.lanes.values_mut() {
                let (shed, kept): (VecDeque<Item>, _) =
                    lane.suspects.drain(..).partition(|item| item.slot == slot);
                lane.suspects = kept;
                queued.extend(shed);
            }
            // Events that have not failed yet tell more about the receiver.
            queued.make_contiguous().sort_by_key(Item::has_failed);
            for item in queued {
                if places.next().is_some() { self.enqueue_probe(item) } else { self.release(item) }
            }
        }
    }

    /// Returns the followers of a probe to the table.
    fn shed_followers(&mut self, item: &Item) {
        let Some(key) = item.lane_key() else { return };
        let followers = self.keys.get_mut(&key).map(Followers::take).unwrap_or_default();
        if !followers.is_empty() {
            // What the running claim brings of this key would overtake these.
            self.running_claim.note_held(key);
        }
        for follower in followers {
            self.recheck(follower.lease.lane, follower.seq);
            self.in_flight.remove(follower.seq);
        }
    }

    /// Returns an event and its followers to the table. The next claim meets them again.
    pub(super) fn release(&mut self, item: Item) {
        let lane = item.lease.lane;
        self.recheck(lane, item.seq);
        self.in_flight.remove(item.seq);
        if let Some(key) = item.lane_key() {
            self.give_back_followers(key);
        }
    }

    /// Takes back an event that is no longer being sent; none if its lane was lost, and it is out of memory.
    pub(super) fn back_from_sending(&mut self, item: Item) -> Option<Item> {
        self.sending = self.sending.saturating_sub(1);
        if let Some(lane) = self.lanes.under_mut(item.lease) {
            lane.busy = lane.busy.saturating_sub(1);
            lane.end_suspect(item.seq);
            if lane.draining.is_none() {
                return Some(item);
            }
        }
        if self.is_from_before_rewind(item.lease) {
            return None;
        }
        // The lane may have been taken anew since: its claims skipped this event and its followers.
        self.release(item);
        None
    }
}
