//! Outcomes that could not be written: a row is locked by somebody else, or the database refuses it. They are tried again, the first soon and
//! the others slowly, while all else goes on. Their events stay tracked, their keys busy, and their lanes cannot be given back.
//!
//! A route that has so many of them that the others would soon find no room is *stopped*: nothing more of it is claimed or sent until most of
//! its outcomes are written. A trigger that refuses one type must not stop the others.
//!
//! What follows in a key that is *stuck* so is not kept in memory, which a long backlog of it would fill: it is dropped when a claim brings it,
//! and the lane is read from the beginning once the key goes on.

use super::*;

/// How long to wait before a row that was locked is tried again; doubled each time.
const LOCKED_MIN: Duration = Duration::from_millis(50);
const LOCKED_MAX: Duration = Duration::from_secs(1);

/// The same for an outcome that was refused.
const REFUSED_MIN: Duration = Duration::from_secs(1);
const REFUSED_MAX: Duration = Duration::from_secs(60);

/// So many refused outcomes are tried again at once, and others have their turn before the next ones.
const REFUSED_AT_ONCE: usize = 8;

/// Most outcomes that wait here, but for those of routes that are stopped: these become no more.
const ASIDE_MAX: usize = 4096;

/// No route is stopped for fewer of them, however little room there is.
const STOPS_MIN: usize = 64;

/// A key is stuck after so many tries at a locked row; most locks are gone by then.
const LOCKED_TRIES: u32 = 3;

/// An outcome that the database refuses to write, in whatever form. It is tried again once in a while.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unsettled {
    /// The id of the event.
    pub event_id: EventId,
    /// Its type, unless what is in its row is no event.
    pub event_type: Option<String>,
    /// The key that waits behind it.
    pub key: Option<String>,
    /// What the database said.
    pub error: String,
}

/// Why an outcome was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PostponeReason {
    Locked,
    Refused,
}

/// What is new about an outcome that was put aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Postponement {
    /// It was not put aside for this reason before.
    pub(crate) is_new: bool,
    /// It has stopped its route.
    pub(crate) stops_route: bool,
}

#[derive(Debug, Default)]
pub(super) struct PostponedOutcomes {
    waiting: Vec<(Instant, PostponeReason, PendingSettlement)>,
    refused: BTreeMap<Seq, Unsettled>,
    /// The slots of the events, as far as they are known, and how many each slot has.
    slots: BTreeMap<Seq, RouteSlot>,
    counts: BTreeMap<RouteSlot, usize>,
    /// The slots of the routes that are stopped.
    stopped: BTreeSet<RouteSlot>,
    /// Keys whose followers are not kept in memory.
    stuck: HashSet<LaneKey, QuickState>,
}

impl PostponedOutcomes {
    /// When the first of them is to be tried again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.iter().map(|(at, ..)| *at).min()
    }

    /// Whether some wait for a lock to go, which will.
    pub(super) fn has_locked(&self) -> bool {
        self.waiting.iter().any(|(_, why, _)| *why == PostponeReason::Locked)
    }

    /// The lanes that have such an outcome.
    pub(super) fn lanes(&self) -> BTreeSet<Lane> {
        self.waiting.iter().map(|(.., outcome)| outcome.lease.lane).collect()
    }

    /// Whether there are as many as may be: nothing more is claimed then.
    pub(super) fn is_full(&self) -> bool {
        let stopped: usize = self.stopped.iter().filter_map(|slot| self.counts.get(slot)).sum();
        self.waiting.len().saturating_sub(stopped) >= ASIDE_MAX
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// How many wait because their rows are locked, and how many because they were refused.
    fn counts(&self) -> (usize, usize) {
        let locked = self.waiting.iter().filter(|(_, why, _)| *why == PostponeReason::Locked).count();
        (locked, self.waiting.len() - locked)
    }

    /// Takes those whose time has come, of one kind: what is refused must not keep others from being written, so of these a few at a time.
    pub(super) fn take_due(&mut self, now: Instant) -> PendingSettlements {
        let mut taken = PendingSettlements::default();
        let due = |(at, ..): &&(Instant, PostponeReason, PendingSettlement)| *at <= now;
        let Some(kind) = self.waiting.iter().find(due).map(|(_, why, _)| *why) else { return taken };
        let most = if kind == PostponeReason::Refused { REFUSED_AT_ONCE } else { usize::MAX };
        let due =
            |(at, why, _): &mut (Instant, PostponeReason, PendingSettlement)| *at <= now && *why == kind;
        for entry in self.waiting.extract_if(.., due).take(most) {
            taken.push_again(entry.2);
        }
        taken
    }

    /// The outcome was written, or is nobody's business any more.
    pub(super) fn forget(&mut self, seq: Seq) {
        if !self.refused.is_empty() {
            self.refused.remove(&seq);
        }
        if !self.slots.is_empty() {
            self.count_out(seq);
        }
    }

    /// So many outcomes stop a route: half as many as there is room for, so that the next one finds two thirds of it.
    fn stops_at(&self) -> usize {
        (ASIDE_MAX.saturating_sub(self.slots.len()) / 2).max(STOPS_MIN)
    }

    /// Counts an outcome for its slot. True if that stops its route.
    fn count_in(&mut self, seq: Seq, slot: RouteSlot) -> bool {
        if self.slots.insert(seq, slot).is_some() {
            return false;
        }
        let stops_at = self.stops_at();
        let count = self.counts.entry(slot).or_default();
        *count += 1;
        *count >= stops_at && self.stopped.insert(slot)
    }

    /// The route goes on when it has half as many as stopped it.
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

    /// Whether the route of this slot is stopped.
    pub(super) fn stops(&self, slot: RouteSlot) -> bool {
        !self.stopped.is_empty() && self.stopped.contains(&slot)
    }

    /// Whether any route is.
    pub(super) fn stops_any(&self) -> bool {
        !self.stopped.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Buffer {
    /// An outcome could not be written. Says what is new about that.
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
        // It does not go alone any more: others need not wait for a lock to go.
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
                let told = self.postponed.refused.get(seq).and_then(|told| told.event_type.clone());
                let unsettled = Unsettled {
                    event_id: event_id.clone(),
                    event_type: event_type.or(told),
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
                // What may wait for ever keeps nothing in memory but its outcome.
                outcome.event = None;
                self.in_flight.release_room(outcome.settlement.seq);
            }
        }
        let pause = min.saturating_mul(1 << outcome.tries.min(16)).min(max);
        outcome.tries = outcome.tries.saturating_add(1);
        self.postponed.waiting.push((now + pause, why, outcome));
        stopped.into_iter().for_each(|slot| self.leave_to_table(slot));
        Postponement { is_new, stops_route: stopped.is_some() }
    }

    /// Leaves to the table what lines up for this slot.
    fn leave_to_table(&mut self, slot: RouteSlot) {
        let mut queued = self.queues.take_route(slot);
        for lane in self.lanes.values_mut() {
            let (left, kept): (VecDeque<Item>, _) =
                lane.suspects.drain(..).partition(|item| item.slot == slot);
            lane.suspects = kept;
            queued.extend(left);
        }
        queued.into_iter().for_each(|item| self.release(item));
    }

    /// The types of refused outcomes whose routes are stopped.
    pub(crate) fn stopped_types(&self) -> BTreeSet<String> {
        if !self.postponed.stops_any() {
            return BTreeSet::new();
        }
        let is_stopped =
            |seq: &Seq| self.postponed.slots.get(seq).is_some_and(|slot| self.postponed.stops(*slot));
        let refused = self.postponed.refused.iter().filter(|(seq, _)| is_stopped(seq));
        refused.filter_map(|(_, unsettled)| unsettled.event_type.clone()).collect()
    }

    /// What waits behind a key that is stuck is left to the table.
    fn mark_stuck(&mut self, outcome: &PendingSettlement) {
        let Some(key) = outcome.lane_key() else { return };
        let followers = self.keys.get_mut(&key).map(Followers::take).unwrap_or_default();
        followers.iter().for_each(|follower| self.in_flight.remove(follower.seq));
        self.postponed.stuck.insert(key);
    }

    /// Whether an event is not to be kept, because its key is stuck.
    pub(super) fn is_stuck(&self, item: &Item) -> bool {
        !self.postponed.stuck.is_empty()
            && item.lane_key().is_some_and(|key| self.postponed.stuck.contains(&key))
    }

    /// The outcome was written: if its key was stuck, the lane is read from the beginning. What a claim under way brings of the key would
    /// come before what was dropped.
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

    /// Outcomes that the database refuses to write.
    pub(crate) fn unsettled(&self) -> Vec<Unsettled> {
        self.postponed.refused.values().cloned().collect()
    }

    /// How many outcomes were put aside because their rows are locked, and how many because the database refused them.
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

    /// Puts outcomes of a slot aside until its route is stopped. Says how many that took.
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
