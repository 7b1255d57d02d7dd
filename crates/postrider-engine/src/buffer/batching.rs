//! Forms batches: which ready events go to which destination now, and together with which others.

use postrider_core::store::HoldReason;

use super::*;
use crate::{concurrency_shares::SendRoom, destination::Readiness};

/// Most events of one queue that are set aside at a time, in search of one whose destination has room.
const SET_ASIDE_MAX: usize = 256;

/// How long an event that waits for another send to end is left before it is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Buffer {
    /// Takes events of a queue. If a send goes to one destination, all of them go to the same one, and only if
    /// it has room. What finds no room waits in the queue, or in the table if the sends under way take long.
    pub(super) fn take_with_room(
        &mut self,
        source: Source,
        slot: RouteSlot,
        most: usize,
        now: Instant,
    ) -> VecDeque<Item> {
        let workers = self.receivers.workers();
        let (one, full) = self.receivers.get(slot).map_or((false, false), |receiver| {
            (receiver.has_one_destination(), receiver.is_full_of_failed(workers))
        });
        if !one && !full {
            return self.queues.take(source, slot, most);
        }
        let (mut set_aside, mut saturated) = (VecDeque::new(), None);
        let found = loop {
            let mut items = self.queues.take(source, slot, most);
            let Some(first) = items.front() else { break items };
            let (destination, spread, failed) = (first.destination, first.seq, first.has_failed());
            if one {
                self.keep_destination(&mut items, destination);
            }
            if full {
                self.keep_only(&mut items, |item| item.has_failed() == failed);
            }
            let is_crowd = set_aside.len() >= SET_ASIDE_MAX / 2;
            let room = match (full && failed, self.paced_room(slot, &items, &set_aside, now)) {
                // A send that ends makes room.
                (true, _) if !is_crowd => SendRoom::Soon(now + RETRY_AFTER),
                (true, _) => SendRoom::Wait(RETRY_AFTER + RETRY_AFTER.mul_f64((spread % 64) as f64 / 64.0)),
                (false, Some(room)) => room,
                (false, None) if !one => SendRoom::Yes,
                (false, None) => self
                    .receivers
                    .get_mut(slot)
                    .map_or(SendRoom::Yes, |receiver| receiver.room(destination, workers, spread, now)),
            };
            match room {
                SendRoom::Yes => break items,
                SendRoom::Wait(after) => items.into_iter().for_each(|item| self.defer(item, after, now)),
                SendRoom::Soon(at) => {
                    saturated = Some(saturated.map_or(at, |saturated: Instant| saturated.min(at)));
                    set_aside.append(&mut items);
                    if set_aside.len() >= SET_ASIDE_MAX {
                        break items;
                    }
                }
            }
        };
        let found = if found.is_empty() && one && !full {
            self.take_alone(slot, &mut set_aside, (most, now))
        } else {
            found
        };
        while let Some(item) = set_aside.pop_back() {
            self.enqueue_front(item);
        }
        if found.is_empty() {
            self.receivers.saturate(slot, saturated);
        }
        found
    }

    /// Takes events of the first destination that was set aside, if it has room while no other destination
    /// wants it.
    fn take_alone(
        &mut self,
        slot: RouteSlot,
        set_aside: &mut VecDeque<Item>,
        (most, now): (usize, Instant),
    ) -> VecDeque<Item> {
        let Some(destination) = set_aside.front().map(|item| item.destination) else {
            return VecDeque::new();
        };
        let workers = self.receivers.workers();
        let has_room = |receiver: &Receiver| {
            receiver.has_room_alone(destination, workers) && receiver.paced_until(destination, now).is_none()
        };
        if !self.receivers.get(slot).is_some_and(has_room) {
            return VecDeque::new();
        }
        let count = set_aside.iter().take(most).take_while(|item| item.destination == destination).count();
        set_aside.drain(..count).collect()
    }

    /// Returns how events of a paced destination wait in memory. None if its pace lets them go now.
    fn paced_room(
        &mut self,
        slot: RouteSlot,
        items: &VecDeque<Item>,
        set_aside: &VecDeque<Item>,
        now: Instant,
    ) -> Option<SendRoom> {
        let first = items.front()?;
        let (destination, spread) = (first.destination, first.seq);
        let receiver = self.receivers.get_mut(slot)?;
        let (opens, most) = receiver.paced_until(destination, now)?;
        let waiting = set_aside.iter().filter(|item| item.destination == destination).count();
        if waiting < most && set_aside.len() < SET_ASIDE_MAX / 2 {
            return Some(SendRoom::Soon(opens));
        }
        Some(SendRoom::Wait(receiver.next_turn(destination, spread, now)))
    }

    /// Keeps the events of this destination in a batch and requeues the others.
    fn keep_destination(&mut self, items: &mut VecDeque<Item>, destination: Option<DestinationId>) {
        self.keep_only(items, |item| item.destination == destination);
    }

    /// Keeps the events that satisfy `keep` in a batch and requeues the others.
    fn keep_only(&mut self, items: &mut VecDeque<Item>, keep: impl Fn(&Item) -> bool) {
        let (kept, mut others): (VecDeque<Item>, VecDeque<Item>) = items.drain(..).partition(keep);
        *items = kept;
        while let Some(other) = others.pop_back() {
            self.enqueue_front(other);
        }
    }

    /// Keeps the events in a batch that may go together now. Events whose destination is not ready are deferred
    /// to the table, so that they block nobody. Returns the destination that the batch probes, if it probes
    /// one.
    pub(super) fn keep_ready(
        &mut self,
        slot: RouteSlot,
        items: &mut VecDeque<Item>,
        now: Instant,
    ) -> Option<Option<DestinationId>> {
        if !self.receivers.get_mut(slot).is_some_and(Receiver::is_troubled) {
            return None;
        }
        let mut kept: VecDeque<Item> = VecDeque::with_capacity(items.len());
        let (mut probed, mut sent_to) = (None, Vec::new());
        while let Some(item) = items.pop_front() {
            let Some(receiver) = self.receivers.get_mut(slot) else { break };
            match receiver.gate(item.destination, &mut sent_to, item.seq, now) {
                Readiness::Ready => kept.push_back(item),
                Readiness::Probe if kept.is_empty() => {
                    receiver.probing(item.destination, now);
                    probed = Some(item.destination);
                    kept.push_back(item);
                    break;
                }
                // It goes alone, with the next batch.
                Readiness::Probe => {
                    items.push_front(item);
                    break;
                }
                Readiness::Wait(after) => self.defer(item, after, now),
            }
        }
        while let Some(rest) = items.pop_back() {
            self.enqueue_front(rest);
        }
        *items = kept;
        probed
    }

    /// Defers an event to the table. No attempt is counted.
    fn defer(&mut self, item: Item, after: Duration, now: Instant) {
        let owned = self.lanes.under_mut(item.lease);
        owned.into_iter().for_each(|lane| lane.busy += 1);
        let event_id = item.id().clone();
        let Item {
            content, lease, seq, attempts, held, key, key_number, destination, batched_with_head, ..
        } = item;
        // The row keeps its error, if it was ever sent.
        let change = Change::Wait { after, attempts, error: None, reason: HoldReason::Deferred };
        let settlement = Settlement { lane: lease.lane, seq, event_id, key, held, change };
        let origin = SettlementOrigin::new(lease, key_number, destination, batched_with_head, content.ok());
        self.outcomes.push(origin, settlement, now);
        self.deferred = true;
    }

    /// Returns whether an event was deferred since the last call.
    pub(crate) fn take_deferred(&mut self) -> bool {
        std::mem::take(&mut self.deferred)
    }

    /// Requeues the events of a batch that failed as a whole, to be sent separately.
    pub(crate) fn split_batch(&mut self, assignment: &Assignment, items: Vec<Item>) {
        self.receivers.get_mut(assignment.slot).into_iter().for_each(|receiver| receiver.failed_whole());
        let first = items.first().map(|item| item.key_number);
        let isolation = if items.iter().any(|item| Some(item.key_number) != first) {
            Isolation::OwnKey
        } else {
            Isolation::Alone
        };
        let mut items: VecDeque<Item> =
            items.into_iter().map(|item| Item { isolation: item.isolation.max(isolation), ..item }).collect();
        self.requeue(&mut items);
    }

    /// Keeps the events in a batch that may go together, and returns with whom they may. Where one event can
    /// fail the others, failed events go alone. Events that were told to wait go with fewer than the last time,
    /// since one of them may be the reason.
    pub(super) fn isolate(&mut self, slot: RouteSlot, items: &mut VecDeque<Item>) -> Isolation {
        let Some(receiver) = self.receivers.get(slot).filter(|receiver| receiver.is_batching()) else {
            return Isolation::Mixed;
        };
        let fails_whole = receiver.fails_whole();
        let batch_limit = |item: &Item| receiver.batch_limit(item.destination, item.key_number);
        let isolation = |item: &Item| match item.isolation {
            Isolation::Mixed if fails_whole && item.may_fail_others() => Isolation::Alone,
            isolation => isolation,
        };
        let Some(first) = items.front() else { return Isolation::Mixed };
        let (first, limited) = (isolation(first), batch_limit(first).is_some());
        let most = match first {
            Isolation::OwnKey | Isolation::Alone => 1,
            Isolation::Mixed => {
                let goes_together = |item: &&Item| {
                    isolation(item) == Isolation::Mixed && batch_limit(item).is_some() == limited
                };
                let together_with = items.iter().take_while(goes_together);
                let least = together_with.clone().filter_map(batch_limit).min().unwrap_or(usize::MAX);
                together_with.count().min(least)
            }
        };
        while items.len() > most {
            let Some(rest) = items.pop_back() else { break };
            self.enqueue_front(rest);
        }
        first
    }
}
