//! What goes to which destination now, and with whom.

use postrider_core::store::HoldReason;

use super::*;
use crate::{concurrency_shares::SendRoom, destination::Readiness};

/// Most events of one line that are passed over at a time, in search of one whose destination has room.
const PASSED_MAX: usize = 256;

/// Longest wait before an event that waits for another send to end is tried again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Buffer {
    /// Takes up to so many events of a line, where a send goes to one destination all of the same one and only if there is room for it. What
    /// finds none waits where it stands, or in the table if what is under way takes long.
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
        let (mut passed, mut saturated) = (VecDeque::new(), None);
        let found = loop {
            let mut items = self.queues.take(source, slot, most);
            let Some(first) = items.front() else { break items };
            let (destination, spread, failed) = (first.destination, first.seq, first.has_failed());
            if one {
                self.leave_other_destinations(&mut items, destination);
            }
            if full {
                self.leave_others(&mut items, |item| item.has_failed() == failed);
            }
            let is_crowd = passed.len() >= PASSED_MAX / 2;
            let room = match (full && failed, self.paced_room(slot, &items, &passed, now)) {
                // A send that ends makes room.
                (true, _) if !is_crowd => SendRoom::Soon(now + LOOK_AGAIN),
                (true, _) => SendRoom::Wait(LOOK_AGAIN + LOOK_AGAIN.mul_f64((spread % 64) as f64 / 64.0)),
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
                    passed.append(&mut items);
                    if passed.len() >= PASSED_MAX {
                        break items;
                    }
                }
            }
        };
        let found = if found.is_empty() && one && !full {
            self.take_alone(slot, &mut passed, (most, now))
        } else {
            found
        };
        while let Some(item) = passed.pop_back() {
            self.enqueue_front(item);
        }
        if found.is_empty() {
            self.receivers.saturate(slot, saturated);
        }
        found
    }

    /// Up to so many of the first destination among what was passed over, if it has room as long as nobody else wants it.
    fn take_alone(
        &mut self,
        slot: RouteSlot,
        passed: &mut VecDeque<Item>,
        (most, now): (usize, Instant),
    ) -> VecDeque<Item> {
        let Some(destination) = passed.front().map(|item| item.destination) else { return VecDeque::new() };
        let workers = self.receivers.workers();
        let has_room = |receiver: &Receiver| {
            receiver.has_room_alone(destination, workers) && receiver.paced_until(destination, now).is_none()
        };
        if !self.receivers.get(slot).is_some_and(has_room) {
            return VecDeque::new();
        }
        let count = passed.iter().take(most).take_while(|item| item.destination == destination).count();
        passed.drain(..count).collect()
    }

    /// Whether events of a destination that sets its own pace wait in line for it. None if it has room now, as far as its pace is concerned.
    fn paced_room(
        &mut self,
        slot: RouteSlot,
        items: &VecDeque<Item>,
        passed: &VecDeque<Item>,
        now: Instant,
    ) -> Option<SendRoom> {
        let first = items.front()?;
        let (destination, spread) = (first.destination, first.seq);
        let receiver = self.receivers.get_mut(slot)?;
        let (opens, most) = receiver.paced_until(destination, now)?;
        let waiting = passed.iter().filter(|item| item.destination == destination).count();
        if waiting < most && passed.len() < PASSED_MAX / 2 {
            return Some(SendRoom::Soon(opens));
        }
        Some(SendRoom::Wait(receiver.next_turn(destination, spread, now)))
    }

    /// Leaves in a batch what goes to this destination; the others stay where they stood.
    fn leave_other_destinations(&mut self, items: &mut VecDeque<Item>, destination: Option<DestinationId>) {
        self.leave_others(items, |item| item.destination == destination);
    }

    /// Leaves in a batch what satisfies this; the others stay where they stood.
    fn leave_others(&mut self, items: &mut VecDeque<Item>, keep: impl Fn(&Item) -> bool) {
        let (kept, mut others): (VecDeque<Item>, VecDeque<Item>) = items.drain(..).partition(keep);
        *items = kept;
        while let Some(other) = others.pop_back() {
            self.enqueue_front(other);
        }
    }

    /// Leaves in a batch what may go together and now. What has to wait for its destination goes back to the table, so that it stands in nobody's
    /// way. Gives the destination that the batch is a probe of, if it is one.
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
                // It goes alone, and next.
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

    /// What lines up and cannot go now waits in the table. Nothing is counted.
    fn defer(&mut self, item: Item, after: Duration, now: Instant) {
        let owned = self.lanes.under_mut(item.lease);
        owned.into_iter().for_each(|lane| lane.busy += 1);
        let event_id = item.id().clone();
        let Item {
            content, lease, seq, attempts, held, key, key_number, destination, batched_with_head, ..
        } = item;
        // What is said of it already stays: why it failed, if it was ever sent.
        let change = Change::Wait { after, attempts, error: None, reason: HoldReason::Deferred };
        let settlement = Settlement { lane: lease.lane, seq, event_id, key, held, change };
        let origin = SettlementOrigin::new(lease, key_number, destination, batched_with_head, content.ok());
        self.outcomes.push(origin, settlement, now);
        self.deferred = true;
    }

    /// Whether something was put off since this was last asked.
    pub(crate) fn take_deferred(&mut self) -> bool {
        std::mem::take(&mut self.deferred)
    }

    /// A batch with these in it has failed as a whole. They line up again where they stood, to be sent apart.
    pub(crate) fn part(&mut self, assignment: &Assignment, items: Vec<Item>) {
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

    /// Leaves in a batch what may go together, and says with whom that is. What failed before goes alone where one event can fail the others, and
    /// what was told to wait goes with fewer of its kind than the last time: one of them may be the reason.
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
