//! Owns outcomes that could not be written because a row is locked or the database refuses the write. They are
//! retried while everything else goes on. Their events stay tracked, their keys busy, and their lanes cannot be
//! given back.
//!
//! A route with so many of them that others would soon find no room is *stopped*: nothing more of it is claimed
//! or sent until most of its outcomes are written. A trigger that refuses one event type must not stop the
//! others.
//!
//! Followers of a key that is *stuck* in this way are dropped from memory, which a long backlog of the key
//! would fill. The lane is read from the start once the key goes on.

use super::*;

/// Delays before a locked row is tried again. They double each time.
const LOCKED_MIN: Duration = Duration::from_millis(50);
const LOCKED_MAX: Duration = Duration::from_secs(1);

/// Delays before a refused outcome is tried again.
const REFUSED_MIN: Duration = Duration::from_secs(1);
const REFUSED_MAX: Duration = Duration::from_secs(60);

/// Most refused outcomes that are retried at once, before others have their turn.
const REFUSED_AT_ONCE: usize = 8;

/// Most postponed outcomes, without those of stopped routes, which become no more.
const POSTPONED_MAX: usize = 4096;

/// No route is stopped for fewer outcomes, however little room there is.
const STOPS_MIN: usize = 64;

/// A key is stuck after this many tries at a locked row. Most locks are gone by then.
const LOCKED_TRIES: u32 = 3;

/// An outcome that the database refuses to write in any form. It is retried from time to time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsettled {
    /// The event ID.
    pub event_id: EventId,
    /// The event type, if the row holds an event.
    pub event_type: Option<String>,
    /// The key that waits behind the event.
    pub key: Option<String>,
    /// The database's error.
    pub error: String,
}

/// Why an outcome could not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PostponeReason {
    Locked,
    Refused,
}

/// What is new about a postponed outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Postponement {
    /// It is postponed for this reason for the first time.
    pub(crate) is_new: bool,
    /// It has stopped its route.
    pub(crate) stops_route: bool,
}

#[derive(Debug, Default)]
pub(super) struct PostponedOutcomes {
    waiting: Vec<(Instant, PostponeReason, PendingSettlement)>,
    refused: BTreeMap<Seq, Unsettled>,
    /// The routes of the events, as far as known, and how many outcomes each route has.
    slots: BTreeMap<Seq, RouteSlot>,
    counts: BTreeMap<RouteSlot, usize>,
    /// The stopped routes.
    stopped: BTreeSet<RouteSlot>,
    /// Keys whose followers are not kept in memory.
    stuck: HashSet<LaneKey, QuickState>,
}

impl PostponedOutcomes {
    /// Returns when the first one is to be retried.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.iter().map(|(at, ..)| *at).min()
    }

    /// Whether some wait for a lock, which will be released.
    pub(super) fn has_locked(&self) -> bool {
        self.waiting.iter().any(|(_, why, _)| *why == PostponeReason::Locked)
    }

    /// Returns the lanes that have postponed outcomes.
    pub(super) fn lanes(&self) -> BTreeSet<Lane> {
        self.waiting.iter().map(|(.., outcome)| outcome.lease.lane).collect()
    }

    /// Whether there is no room for more. Nothing is claimed then.
    pub(super) fn is_full(&self) -> bool {
        let stopped: usize = self.stopped.iter().filter_map(|slot| self.counts.get(slot)).sum();
        self.waiting.len().saturating_sub(stopped) >= POSTPONED_MAX
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns how many are locked and how many refused.
    fn counts(&self) -> (usize, usize) {
        let locked = self.waiting.iter().filter(|(_, why, _)| *why == PostponeReason::Locked).count();
        (locked, self.waiting.len() - locked)
    }

    /// Takes the due ones of one reason. Of the refused ones only a few at a time, so that they do not keep
    /// others from being written.
    pub(super) fn take_due(&mut self, now: Instant) -> PendingSettlements {
        let mut taken = PendingSettlements::default();
        let due = |(at, ..): &&(Instant, PostponeReason, PendingSettlement)| *at <= now;
        let Some(kind) = self.waiting.iter().find(due).map(|(_, why, _)| *why) else { return taken };
        let most = if kind == PostponeReason::Refused { REFUSED_AT_ONCE } else { usize::MAX };
        let due =
            |(at, why, _): &mut (Instant, PostponeReason, PendingSettlement)| *at <= now && *why == kind;
        for entry in self.waiting.extract_if(.., due).take(most) {
            taken.push_postponed(entry.2);
        }
        taken
    }

    /// Forgets an outcome that was written or dropped.
    pub(super) fn forget(&mut self, seq: Seq) {
        if !self.refused.is_empty() {
            self.refused.remove(&seq);
        }
        if !self.slots.is_empty() {
            self.count_out(seq);
        }
    }

    /// Returns how many outcomes stop a route: half of the room, so that the next route finds two thirds of
    /// that.
    fn stops_at(&self) -> usize {
        (POSTPONED_MAX.saturating_sub(self.slots.len()) / 2).max(STOPS_MIN)
    }

    /// Counts an outcome for its route. Returns whether that stops the route.
    fn count_in(&mut self, seq: Seq, slot: RouteSlot) -> bool {
        if self.slots.insert(seq, slot).is_some() {
            return false;
        }
        let stops_at = self.stops_at();
        let count = self.counts.entry(slot).or_default();
        *count += 1;
        *count >= stops_at && self.stopped.insert(slot)
    }

    /// Counts an outcome out. Its route goes on at half the number that stopped it.
    fn count_out(&mut self, seq: Seq) {
        let Some(slot) = self.slots.remove(&seq) else { return };
        let left = self.counts.remove(&slot).unwrap_or_default().saturating_sub(1);
        if left > 0 {
            self.counts.insert(slot, left);
        }
        if left <= self.stops_at() / 2 {
            self.stopped.remove(&slot);
        }
    }

    /// Whether this route is stopped.
    pub(super) fn stops(&self, slot: RouteSlot) -> bool {
        !self.stopped.is_empty() && self.stopped.contains(&slot)
    }

    /// Whether any route is stopped.
    pub(super) fn stops_any(&self) -> bool {
        !self.stopped.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Buffer {
    /// Postpones an outcome. Returns what is new about it.
    pub(crate) fn postpone(
        &mut self,
        mut outcome: PendingSettlement,
        why: PostponeReason,
        error: &str,
        now: Instant,
    ) -> Postponement {
        if self.is_from_before_rewind(outcome.lease) {
            return Postponement::default();
        }
        let Settlement { seq, event_id, key, .. } = &outcome.settlement;
        // Others need not wait for the lock.
        if let Some(lane) = self.lanes.under_mut(outcome.lease) {
            lane.end_suspect(*seq);
        }
        let (min, max) = match why {
            PostponeReason::Locked => (LOCKED_MIN, LOCKED_MAX),
            PostponeReason::Refused => (REFUSED_MIN, REFUSED_MAX),
        };
        let is_new = match why {
            PostponeReason::Locked => outcome.tries == 0,
            PostponeReason::Refused => {
                let event_type = outcome.event.as_ref().map(|event| event.event_type().to_owned());
                let known = self.postponed.refused.get(seq).and_then(|known| known.event_type.clone());
                let unsettled = Unsettled {
                    event_id: event_id.clone(),
                    event_type: event_type.or(known),
                    key: key.as_deref().map(str::to_owned),
                    error: error.to_owned(),
                };
                self.postponed.refused.insert(*seq, unsettled).is_none()
            }
        };
        if why == PostponeReason::Refused || outcome.tries >= LOCKED_TRIES {
            self.mark_stuck(&outcome);
        }
        let slot = self.in_flight.slot(outcome.settlement.seq);
        let stopped = slot.filter(|slot| self.postponed.count_in(outcome.settlement.seq, *slot));
        match why {
            PostponeReason::Locked => self.in_flight.release_route(outcome.settlement.seq),
            PostponeReason::Refused => {
                // It may wait for ever, so only the outcome stays in memory.
                outcome.event = None;
                self.in_flight.release_room(outcome.settlement.seq);
            }
        }
        let pause = min.saturating_mul(1 << outcome.tries.min(16)).min(max);
        outcome.tries = outcome.tries.saturating_add(1);
        self.postponed.waiting.push((now + pause, why, outcome));
        stopped.into_iter().for_each(|slot| self.return_route_to_table(slot));
        Postponement { is_new, stops_route: stopped.is_some() }
    }

    /// Leaves the ready events of a route to the table.
    fn return_route_to_table(&mut self, slot: RouteSlot) {
        let mut queued = self.queues.take_route(slot);
        for lane in self.lanes.values_mut() {
            let (left, kept): (VecDeque<Item>, _) =
                lane.suspects.drain(..).partition(|item| item.slot == slot);
            lane.suspects = kept;
            queued.extend(left);
        }
        queued.into_iter().for_each(|item| self.release(item));
    }

    /// Returns the event types of refused outcomes whose routes are stopped.
    pub(crate) fn stopped_types(&self) -> BTreeSet<String> {
        if !self.postponed.stops_any() {
            return BTreeSet::new();
        }
        let is_stopped =
            |seq: &Seq| self.postponed.slots.get(seq).is_some_and(|slot| self.postponed.stops(*slot));
        let refused = self.postponed.refused.iter().filter(|(seq, _)| is_stopped(seq));
        refused.filter_map(|(_, unsettled)| unsettled.event_type.clone()).collect()
    }

    /// Drops the followers of a stuck key. The table has them.
    fn mark_stuck(&mut self, outcome: &PendingSettlement) {
        let Some(key) = outcome.lane_key() else { return };
        let followers = self.keys.get_mut(&key).map(Followers::take).unwrap_or_default();
        followers.iter().for_each(|follower| self.in_flight.remove(follower.seq));
        self.postponed.stuck.insert(key);
    }

    /// Whether an event's key is stuck, so that it is not kept.
    pub(super) fn is_stuck(&self, item: &Item) -> bool {
        !self.postponed.stuck.is_empty()
            && item.lane_key().is_some_and(|key| self.postponed.stuck.contains(&key))
    }

    /// Ends the stuck state of a key whose outcome was written. The lane is read from the start: what the
    /// running claim brings of the key would overtake what was dropped.
    pub(super) fn clear_stuck(&mut self, outcome: &PendingSettlement) {
        if self.postponed.stuck.is_empty() {
            return;
        }
        let Some(key) = outcome.lane_key().filter(|key| self.postponed.stuck.contains(key)) else { return };
        self.postponed.stuck.remove(&key);
        if let Some(lane) = self.lanes.get_mut(key.lane) {
            lane.from_start = true;
        }
        self.running_claim.note_held(key);
    }

    /// Returns the outcomes that the database refuses.
    pub(crate) fn unsettled(&self) -> Vec<Unsettled> {
        self.postponed.refused.values().cloned().collect()
    }

    /// Returns how many outcomes are locked and how many refused.
    pub(crate) fn postponed_counts(&self) -> (usize, usize) {
        self.postponed.counts()
    }

    pub(crate) fn unsettled_count(&self) -> usize {
        self.postponed.refused.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Postpones outcomes of a route until it is stopped. Returns how many that took.
    fn stop(postponed: &mut PostponedOutcomes, slot: usize) -> Seq {
        let first = slot as Seq * 10_000;
        (1..10_000).find(|n| postponed.count_in(first + n, RouteSlot::at(slot))).unwrap()
    }

    #[test]
    fn each_route_that_is_stopped_leaves_room_for_the_next() {
        let mut postponed = PostponedOutcomes::default();
        let took: Vec<Seq> = (1..=12).map(|slot| stop(&mut postponed, slot)).collect();
        assert_eq!(took[..3], [1365, 910, 607]);
        assert_eq!(took[11], STOPS_MIN as Seq, "{took:?}");
        assert!(
            (1..=12).all(|slot| postponed.stops(RouteSlot::at(slot))) && !postponed.stops(RouteSlot::at(13))
        );
    }

    #[test]
    fn a_route_goes_on_when_half_of_its_outcomes_are_written() {
        let mut postponed = PostponedOutcomes::default();
        let took = stop(&mut postponed, 1);
        let written = (1..=took).find(|n| {
            postponed.forget(10_000 + n);
            !postponed.stops(RouteSlot::at(1))
        });
        assert!(written.is_some_and(|written| (300..700).contains(&written)), "{written:?}");
        assert!(!postponed.count_in(10_001, RouteSlot::at(1)), "it may have some again before it is stopped");
    }
}
