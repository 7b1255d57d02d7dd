//! Queues: what lines up, and what is sent next.

use std::collections::hash_map::Entry;

use super::*;

/// Most events that a worker takes for a handler at once. It gives back the rest as soon as one of them takes its time.
const HAND_MAX: usize = 128;

/// Most bytes of a batch, unless its first event has more: a sink may need as much again to spell it out.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// Sharing what takes less time than this is not worth it: until a sleeping thread is awake, it would be done. With shares of ever smaller
/// rests two threads slept a third of their time.
const HAND_WORTH: Duration = Duration::from_micros(50);

impl Buffer {
    /// An event comes in, with its key if it has one.
    pub(super) fn enter(&mut self, item: Item, key: Option<LaneKey>) {
        self.track(&item);
        if let Some(key) = key {
            match self.keys.entry(key) {
                Entry::Occupied(_) if mutations::active(Mutation::TwoOfAKey) => {}
                Entry::Occupied(mut busy) => return busy.get_mut().push_back(item),
                Entry::Vacant(free) => _ = free.insert(Followers::default()),
            }
        }
        self.enqueue(item);
    }

    pub(super) fn enqueue(&mut self, item: Item) {
        if self.is_held_back(&item) {
            return self.release(item);
        }
        // What its destination told to wait has waited already; and what becomes of it says whom that was about.
        let was_limited = self
            .receivers
            .get(item.slot)
            .is_some_and(|receiver| receiver.batch_limit(item.destination, item.key_number).is_some());
        match self.suspects_beside(&item) {
            Some(suspects) => suspects.push_back(item),
            None if was_limited => self.queues.push_front(item),
            None => self.queues.push(item),
        }
    }

    pub(super) fn enqueue_front(&mut self, item: Item) {
        if self.is_held_back(&item) {
            return self.release(item);
        }
        match self.suspects_beside(&item) {
            Some(suspects) => suspects.push_front(item),
            None => self.queues.push_front(item),
        }
    }

    /// Suspects stand apart: where this one does, if it is one. What was handed over in memory is none: it was not committed when its lane was
    /// taken, so nobody had it under way.
    fn suspects_beside(&mut self, item: &Item) -> Option<&mut VecDeque<Item>> {
        if item.source == Source::Hot {
            return None;
        }
        let lane = self.lanes.get_mut(item.lease.lane).filter(|lane| item.seq <= lane.suspect_to)?;
        self.suspects.begin_wait();
        Some(&mut lane.suspects)
    }

    /// What to send next: hot and cold in turn, two to one, routes in turn within each.
    pub(crate) fn next(&mut self, now: Instant) -> NextWork {
        if self.is_expired(now) || self.pauses.stop() {
            return NextWork::Wait(None);
        }
        let mut alone = self.alone(now);
        if !matches!(alone, SuspectTurn::NotNeeded) && self.defer_suspects(now) {
            alone = self.alone(now);
        }
        if let SuspectTurn::Now(lane, place) = alone
            && let Some(assignment) = self.take_suspect(lane, place, now)
        {
            return NextWork::Suspect(assignment);
        }
        loop {
            // As long as all that was taken has to wait for its destination.
            if let Some(next) = self.next_of_lines(&alone, now) {
                return next;
            }
        }
    }

    fn next_of_lines(&mut self, alone: &SuspectTurn, now: Instant) -> Option<NextWork> {
        let open = |slot: RouteSlot| self.receivers.is_open(slot, now) && !self.waits_for(alone, slot);
        let Some(Turn { source, slot, queued }) = self.queues.next(open) else {
            return Some(NextWork::Wait(self.next_moment(alone, now)));
        };
        let alone = self.queues.waiting() == 1;
        let most = self.most_of(slot, queued, alone).max(1);
        let mut items = self.take_with_room(source, slot, most, now);
        self.queues.end_turn();
        let most = most.min(self.events_at_once(slot, &items));
        self.leave_what_is_too_much(&mut items, most);
        let isolation = self.isolate(slot, &mut items);
        let probed = self.keep_ready(slot, &mut items, now);
        let up = self.receivers.get(slot).filter(|receiver| receiver.is_up() && probed.is_none());
        let key_max = up.filter(|_| isolation != Isolation::Alone).map_or(1, |up| up.key_max);
        if key_max > 1 {
            self.take_along(slot, &mut items, most, key_max);
        }
        if items.is_empty() {
            return None;
        }
        let mut assignment = self.assignment(slot, items, now);
        assignment.probed = probed;
        Some(NextWork::Send(assignment))
    }

    /// The most events that the destination of a batch takes in one request.
    fn events_at_once(&self, slot: RouteSlot, items: &VecDeque<Item>) -> usize {
        let destination = items.front().and_then(|first| first.destination);
        self.receivers.get(slot).map_or(usize::MAX, |receiver| receiver.events_at_once(destination))
    }

    /// Leaves for the next batch what would make this one too large, or have more than so many events.
    fn leave_what_is_too_much(&mut self, items: &mut VecDeque<Item>, most: usize) {
        let mut bytes = weight_bytes(items);
        while (bytes > BATCH_BYTES || items.len() > most) && items.len() > 1 {
            let Some(last) = items.pop_back() else { return };
            bytes = bytes.saturating_sub(last.weight_bytes);
            self.enqueue_front(last);
        }
    }

    /// Fills a batch with what waits behind its events, for a receiver that keeps the order of a key within it. A key that is held in the
    /// table comes back one by one, and so do suspects.
    fn take_along(&mut self, slot: RouteSlot, items: &mut VecDeque<Item>, most: usize, key_max: usize) {
        let mut bytes = weight_bytes(items);
        let one_destination = self.receivers.get(slot).is_some_and(Receiver::has_one_destination);
        for place in 0..items.len() {
            let Some(first) = items.get(place).filter(|first| !first.held && items.len() < most) else {
                continue;
            };
            let suspect_to = self.lanes.get(first.lease.lane).map_or(Seq::MAX, |lane| lane.suspect_to);
            let Some(key) = first.lane_key() else { continue };
            let Some(followers) = self.keys.get_mut(&key) else { continue };
            let paused = |item: &Item| self.pauses.of(item.attributes(&self.receivers)).is_some();
            let destination = first.destination;
            let there = |item: &Item| !one_destination || item.destination == destination;
            let may = |item: &Item| {
                item.slot == slot && !item.held && item.seq > suspect_to && there(item) && !paused(item)
            };
            let most = most.min(items.len().saturating_add(key_max - 1));
            while items.len() < most {
                let fits = |item: &Item| may(item) && bytes + item.weight_bytes <= BATCH_BYTES;
                let Some(next) = followers.take_along(fits) else { break };
                bytes += next.weight_bytes;
                items.push_back(next);
            }
            self.key_drained(&key);
        }
    }

    /// What was under way together with earlier events of its key, and was not sent or not taken, waits behind them again.
    pub(super) fn requeue_follower(&mut self, mut item: Item) {
        item.batched_with_head = false;
        let Some(key) = item.lane_key() else { return self.enqueue_front(item) };
        let followers = self.keys.entry(key).or_default();
        // Those before it may have gone meanwhile: then it is the first.
        if followers.departs() {
            self.enqueue_front(item);
        } else {
            followers.push_front(item);
        }
    }

    /// How many events of a slot one worker takes: a batch for a sink; for a handler that nobody else waits beside a few, and no more
    /// than leave some for the other workers, unless they are done sooner than another would come; otherwise one.
    fn most_of(&self, slot: RouteSlot, queued: usize, alone: bool) -> usize {
        self.receivers.get(slot).map_or(1, |receiver| {
            if receiver.is_batching() {
                let probes = if receiver.is_up() { usize::MAX } else { self.receivers.probes() };
                receiver.batch_now().min(probes).min(self.receivers.batch_max(slot))
            } else if receiver.is_up() && receiver.is_in_process() && alone {
                (queued / self.receivers.workers().max(1)).max(receiver.sent_within(HAND_WORTH)).min(HAND_MAX)
            } else {
                1
            }
        })
    }

    /// Whether anything can be sent now.
    pub(crate) fn has_work(&self, now: Instant) -> bool {
        if self.is_expired(now) || self.pauses.stop() {
            return false;
        }
        let alone = self.alone(now);
        let open = |slot: RouteSlot| self.receivers.is_open(slot, now) && !self.waits_for(&alone, slot);
        matches!(alone, SuspectTurn::Now(..)) || self.queues.has(open)
    }
}

fn weight_bytes(items: &VecDeque<Item>) -> usize {
    items.iter().map(|item| item.weight_bytes).sum()
}
