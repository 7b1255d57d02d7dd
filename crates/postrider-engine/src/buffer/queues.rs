//! Enqueues events and chooses what a worker sends next.

use std::collections::hash_map::Entry;

use super::*;

/// Most events that a worker takes for a handler at once. It gives the rest back as soon as one of them takes
/// time.
const ASSIGNMENT_MAX: usize = 128;

/// Most bytes of a batch, unless its first event is larger. A sink may need as much again to encode it.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// Work that takes less time is not shared: it would be done before a sleeping thread wakes up. With ever
/// smaller shares two threads slept a third of their time.
const WORTH_SHARING: Duration = Duration::from_micros(50);

impl Buffer {
    /// Takes in an event. It waits if its key is busy.
    pub(super) fn enter(&mut self, item: Item, key: Option<LaneKey>) {
        self.track(&item);
        if let Some(key) = key {
            match self.keys.entry(key) {
                Entry::Occupied(_) if mutations::active(Mutation::KeyNotBusy) => {}
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
        // It has waited already, and its outcome shows whether the limit concerned it alone.
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

    /// Returns the suspects of the event's lane, if it is a suspect. Events that were handed over in memory are
    /// none: they were not committed when the lane was taken.
    fn suspects_beside(&mut self, item: &Item) -> Option<&mut VecDeque<Item>> {
        if item.source == Source::Hot {
            return None;
        }
        let lane = self.lanes.get_mut(item.lease.lane).filter(|lane| item.seq <= lane.suspect_to)?;
        self.suspects.begin_wait();
        Some(&mut lane.suspects)
    }

    /// Chooses what to send next. Hot events have two turns of three, and routes take turns.
    pub(crate) fn next(&mut self, now: Instant) -> NextWork {
        if !self.gate(now).is_open() {
            return NextWork::Wait(None);
        }
        let mut suspect_turn = self.suspect_turn(now);
        if !matches!(suspect_turn, SuspectTurn::NotNeeded) && self.defer_suspects(now) {
            suspect_turn = self.suspect_turn(now);
        }
        if let SuspectTurn::Now(lane, place) = suspect_turn
            && let Some(assignment) = self.take_suspect(lane, place, now)
        {
            return NextWork::Suspect(assignment);
        }
        loop {
            // Repeats while all that was taken has to wait for its destination.
            if let Some(next) = self.next_from_queues(&suspect_turn, now) {
                return next;
            }
        }
    }

    fn next_from_queues(&mut self, suspect_turn: &SuspectTurn, now: Instant) -> Option<NextWork> {
        let open = |slot: RouteSlot| self.receivers.is_open(slot, now) && !self.waits_for(suspect_turn, slot);
        let Some(Turn { source, slot, queued }) = self.queues.next(open) else {
            return Some(NextWork::Wait(self.next_moment(suspect_turn, now)));
        };
        let is_only_queue = self.queues.waiting() == 1;
        let most = self.most_of(slot, queued, is_only_queue).max(1);
        let mut items = self.take_with_room(source, slot, most, now);
        self.queues.end_turn();
        let most = most.min(self.events_at_once(slot, &items));
        self.trim_batch(&mut items, most);
        let isolation = self.isolate(slot, &mut items);
        let probed = self.keep_ready(slot, &mut items, now);
        let up = self.receivers.get(slot).filter(|receiver| receiver.is_up() && probed.is_none());
        let key_max = up.filter(|_| isolation != Isolation::Alone).map_or(1, |up| up.key_max);
        if key_max > 1 {
            self.batch_followers(slot, &mut items, most, key_max);
        }
        if items.is_empty() {
            return None;
        }
        let mut assignment = self.assignment(slot, items, now);
        assignment.probed = probed;
        Some(NextWork::Send(assignment))
    }

    /// Returns how many events the destination of a batch takes in one request.
    fn events_at_once(&self, slot: RouteSlot, items: &VecDeque<Item>) -> usize {
        let destination = items.front().and_then(|first| first.destination);
        self.receivers.get(slot).map_or(usize::MAX, |receiver| receiver.events_at_once(destination))
    }

    /// Leaves for the next batch what would make this one too large.
    fn trim_batch(&mut self, items: &mut VecDeque<Item>, most: usize) {
        let mut bytes = weight_bytes(items);
        while (bytes > BATCH_BYTES || items.len() > most) && items.len() > 1 {
            let Some(last) = items.pop_back() else { return };
            bytes = bytes.saturating_sub(last.weight_bytes);
            self.enqueue_front(last);
        }
    }

    /// Fills a batch with followers of its events, for a receiver that keeps the order of keys within a batch.
    /// Keys that are held in the table and suspects come back one by one.
    fn batch_followers(&mut self, slot: RouteSlot, items: &mut VecDeque<Item>, most: usize, key_max: usize) {
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
                let Some(next) = followers.take_next(fits) else { break };
                bytes += next.weight_bytes;
                items.push_back(next);
            }
            self.key_drained(&key);
        }
    }

    /// Requeues an event that was batched with earlier ones of its key and not sent or not taken.
    pub(super) fn requeue_follower(&mut self, mut item: Item) {
        item.batched_with_head = false;
        let Some(key) = item.lane_key() else { return self.enqueue_front(item) };
        let followers = self.keys.entry(key).or_default();
        // The earlier ones may be gone, and then it is the first.
        if followers.departs() {
            self.enqueue_front(item);
        } else {
            followers.push_front(item);
        }
    }

    /// Returns how many events of a route one worker takes. A sink gets a batch. A handler that no other route
    /// waits beside gets a few, leaving some for other workers unless they are done sooner than another worker
    /// would wake. Otherwise one.
    fn most_of(&self, slot: RouteSlot, queued: usize, is_only_queue: bool) -> usize {
        self.receivers.get(slot).map_or(1, |receiver| {
            if receiver.is_batching() {
                let probes = if receiver.is_up() { usize::MAX } else { self.receivers.probes() };
                receiver.batch_now().min(probes).min(self.receivers.batch_max(slot))
            } else if receiver.is_up() && receiver.is_in_process() && is_only_queue {
                (queued / self.receivers.workers().max(1))
                    .max(receiver.sent_within(WORTH_SHARING))
                    .min(ASSIGNMENT_MAX)
            } else {
                1
            }
        })
    }

    /// Whether anything can be sent now.
    pub(crate) fn has_work(&self, now: Instant) -> bool {
        if !self.gate(now).is_open() {
            return false;
        }
        let suspect_turn = self.suspect_turn(now);
        let open =
            |slot: RouteSlot| self.receivers.is_open(slot, now) && !self.waits_for(&suspect_turn, slot);
        matches!(suspect_turn, SuspectTurn::Now(..)) || self.queues.has(open)
    }
}

fn weight_bytes(items: &VecDeque<Item>) -> usize {
    items.iter().map(|item| item.weight_bytes).sum()
}
