//! Receivers in memory: what became of what was sent to them, and what to do when one of them is down.

use super::{backlog_id::BacklogId, *};
use crate::{
    health_checks::HealthChecks,
    receiver::{Assessment, Attempt, RejectionNotice},
    rejection_notices,
};
use postrider_core::{Outcome, rng::Rng};

impl Buffer {
    /// Whether this receiver is taken to be up; without one, whoever sees to events that have no route.
    pub(crate) fn is_up(&self, receiver: Option<ReceiverId>) -> bool {
        self.receivers.is_receiver_up(receiver)
    }

    /// Nothing can be sent or settled now, and what is in memory or was skipped is paused, or for receivers that are down or have asked for a
    /// long time, or of routes that the database refuses to settle.
    pub(crate) fn is_unavailable(&self, now: Instant) -> bool {
        self.is_drained(now) && self.is_rest_unavailable(now)
    }

    /// Nothing can be sent now, and all outcomes that are left were put aside, because they could not be written. Beside them there is
    /// nothing but what is unavailable or paused.
    pub(crate) fn has_only_postponed(&self, now: Instant) -> bool {
        let is_idle = self.sending == 0 && self.unwritten() == 0 && !self.has_work(now);
        self.postponed.len() > 0 && is_idle && self.is_rest_unavailable(now)
    }

    fn is_rest_unavailable(&self, now: Instant) -> bool {
        let is_down = |slot: RouteSlot| {
            let down = |receiver: &Receiver| !receiver.is_up() || receiver.is_held_off(now);
            self.postponed.stops(slot) || self.receivers.get(slot).is_some_and(down)
        };
        // What waits for room behind its key waits for what is in memory.
        let waits = |id: BacklogId| {
            self.pauses.holds(id) || id.route().is_some_and(is_down) || self.waits_for_its_keys(id)
        };
        let mut counts = self.in_flight.by_route();
        counts.all(|(slot, count)| count == 0 || is_down(slot)) && lock(&self.backlogs).slots().all(waits)
    }

    /// Whether memory has no room, for what cannot be sent now, and there is no other route that a claim could look for beyond it.
    pub(crate) fn is_full_of_unavailable(&self, now: Instant) -> bool {
        !self.has_several_routes() && self.is_unavailable(now)
    }

    /// Takes a worker for what is about to be sent.
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

    /// The worker is free again. What it still has in its hand was not sent: it lines up again, at the front.
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

    /// What a worker had in its hand was sent: while it is judged, others may go there. True if somebody may have waited for that.
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

    /// What a worker has in its hand and cannot send at once goes back, for others to send.
    pub(crate) fn put_back(&mut self, assignment: &mut Assignment) {
        assignment.taken -= assignment.items.len();
        self.requeue(&mut assignment.items);
    }

    /// What was not sent, or not tried, lines up again where it stood.
    pub(crate) fn requeue(&mut self, items: &mut VecDeque<Item>) {
        while let Some(item) = items.pop_back() {
            match self.back_from_sending(item) {
                Some(item) if item.batched_with_head => self.requeue_follower(item),
                Some(item) => self.enqueue_front(item),
                None => {}
            }
        }
    }

    /// Events were delivered, each with its key, to these destinations, and this one first. True if the receiver was thought to be down.
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

    /// Whether only the health check of the receiver can tell what this failure means.
    pub(crate) fn has_to_ask(&self, assignment: &Assignment, outcome: &Outcome, attempt: &Attempt) -> bool {
        self.receivers.get(assignment.slot).is_some_and(|receiver| receiver.has_to_be_asked(outcome, attempt))
    }

    /// The health checks of where an event goes.
    pub(crate) fn health_checks(
        &self,
        assignment: &Assignment,
        destination: Option<DestinationId>,
    ) -> HealthChecks {
        let receiver = self.receivers.get(assignment.slot);
        receiver.map_or_else(HealthChecks::default, |receiver| receiver.health_checks(destination))
    }

    /// What an outcome other than delivered means, and whether it shows that the receiver is back.
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

    /// Which receivers reject everything and which no longer do, where operators are `told` of some already, and for how long, and have taken the
    /// brakes of others `off`.
    pub(crate) fn rejecting(
        &mut self,
        told: &[(String, Duration)],
        off: &[String],
        routes: &RouteTable,
    ) -> rejection_notices::RejectionChanges {
        let mut changes = rejection_notices::RejectionChanges::default();
        for (id, receiver) in self.receivers.iter_mut() {
            // One that has no name can be told of to nobody.
            let Some(name) = routes.names(Some(id)).first() else { continue };
            let was_up = receiver.is_up();
            receiver.allow_rejections(off.contains(name));
            changes.opened |= !was_up && receiver.is_up();
            let listed = told.iter().find(|(told, _)| told == name).map(|(_, lasts)| *lasts);
            match receiver.update_rejection_notice(listed) {
                Some(RejectionNotice::Raise) => changes.tell.push(name.clone()),
                Some(RejectionNotice::Clear) => changes.end.push(name.clone()),
                None => {}
            }
        }
        changes
    }

    /// Whether an event that has used up its attempts may die: not where all do.
    pub(crate) fn allows_death(&mut self, assignment: &Assignment, item: &Item, now: Instant) -> bool {
        let (destination, key) = (item.destination, item.key_number);
        self.receivers
            .get_mut(assignment.slot)
            .is_none_or(|receiver| receiver.allows_death(destination, key, now))
    }

    /// How many events a destination had taken, counted with all others of its receiver, when it took its last one; and whether it is out for
    /// other keys than this one.
    pub(crate) fn seen_at(
        &self,
        assignment: &Assignment,
        destination: Option<DestinationId>,
        key: u64,
    ) -> (u64, bool) {
        let receiver = self.receivers.get(assignment.slot);
        receiver.map_or((0, false), |receiver| receiver.seen_at(destination, key))
    }

    /// Whether the destination has taken an event of another key since this attempt began.
    /// How many events an outside system has taken; none if it is a handler in this process.
    pub(crate) fn taken_outside(&self, assignment: &Assignment) -> Option<u64> {
        self.receivers.get(assignment.slot).filter(|receiver| !receiver.is_in_process()).map(Receiver::taken)
    }

    pub(crate) fn is_alive_for(&self, assignment: &Assignment, attempt: &Attempt) -> bool {
        self.receivers.get(assignment.slot).is_some_and(|receiver| receiver.is_alive_for(attempt))
    }

    /// Operators were told that a sink rejects everything.
    pub(crate) fn notice_raised(&mut self, name: &str, routes: &RouteTable) {
        let first = |id: usize| routes.names(Some(id)).first().is_some_and(|known| known == name);
        let receivers = self.receivers.iter_mut();
        receivers.filter(|(id, _)| first(*id)).for_each(|(_, receiver)| receiver.notice_raised());
    }

    /// The receiver is down. An event that it did not take goes back to the table, where nothing is written, and comes again after the
    /// others: it may be what the receiver takes offence at.
    pub(crate) fn requeue_refused(&mut self, assignment: &Assignment, item: Item) {
        let Some(item) = self.back_from_sending(item) else { return };
        if mutations::active(Mutation::ProbeStays) {
            return self.enqueue_front(item);
        }
        self.tried(assignment, &item);
        self.release(item);
    }

    /// The receiver is down, and others have their turn before this one is tried again.
    pub(crate) fn tried(&self, assignment: &Assignment, item: &Item) {
        let key = item.key.as_ref().map(|_| item.key_number);
        lock(&self.backlogs).note_tried(item.slot.into(), (item.lease.lane, item.seq), key, assignment.probe);
    }

    /// An event that is sent to see whether its receiver is back.
    fn enqueue_probe(&mut self, item: Item) {
        let key = item.key.as_ref().map(|_| item.key_number);
        lock(&self.backlogs).note_probe(item.slot.into(), item.lease.lane, item.seq, key);
        self.shed_followers(&item);
        self.enqueue(item);
    }

    /// Leaves to the table what is in memory for a receiver that is down, but for a few probes.
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
            // What has not failed yet tells more about the receiver.
            queued.make_contiguous().sort_by_key(Item::has_failed);
            for item in queued {
                if places.next().is_some() { self.enqueue_probe(item) } else { self.release(item) }
            }
        }
    }

    /// What waits behind a probe need not wait in memory.
    fn shed_followers(&mut self, item: &Item) {
        let Some(key) = item.lane_key() else { return };
        let followers = self.keys.get_mut(&key).map(Followers::take).unwrap_or_default();
        if !followers.is_empty() {
            // What a claim under way brings of this key would come before those that go back now.
            self.running_claim.note_held(key);
        }
        for follower in followers {
            self.recheck(follower.lease.lane, follower.seq);
            self.in_flight.remove(follower.seq);
        }
    }

    /// Takes an event and what waits behind it out of memory: the next claim meets them again.
    pub(super) fn release(&mut self, item: Item) {
        let lane = item.lease.lane;
        self.recheck(lane, item.seq);
        self.in_flight.remove(item.seq);
        if let Some(key) = item.lane_key() {
            self.give_back_followers(key);
        }
    }

    /// Takes an event back that is no longer being sent; none if its lane was lost, and it is out of memory.
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
        // The lane may have been taken anew since: its claims have passed this event over, and what waits behind it.
        self.release(item);
        None
    }
}
