//! Outcomes on their way to the table, and what their commit means for keys and lanes.

use super::*;

impl Buffer {
    /// Events were sent, and this is what became of them. True if their receiver was thought to be down, and is not.
    pub(crate) fn finish(
        &mut self,
        assignment: &Assignment,
        settlements: &mut PendingSettlements,
        now: Instant,
    ) -> bool {
        if settlements.is_empty() {
            return false;
        }
        self.sending = self.sending.saturating_sub(settlements.len());
        let back =
            self.note_delivered(assignment, settlements.delivered(), settlements.first_delivered(), now);
        self.outcomes.append(settlements);
        self.outcomes_since.get_or_insert(now);
        back
    }

    /// When outcomes are to be settled: at once if there are many or nothing else is under way, else soon.
    pub(crate) fn settle_at(&self, settings: &Settings, now: Instant) -> Option<Instant> {
        let fresh = self.outcomes_since.map(|since| {
            let many = self.outcomes.len() >= settings.settle_batch;
            if many || (self.sending == 0 && !self.has_work(now)) {
                now
            } else {
                since + settings.settle_after
            }
        });
        fresh.into_iter().chain(self.postponed.next()).min()
    }

    /// Takes outcomes to settle: those that were put aside by themselves, so that no others wait for what they wait for. Those of a lane
    /// that was lost meanwhile are dropped here; the second value says how many.
    pub(crate) fn take_outcomes(&mut self, most: usize, now: Instant) -> (PendingSettlements, u64) {
        // In turn: what was put aside must not keep the others waiting, nor the other way round.
        self.postponed_turn = !self.postponed_turn || self.outcomes.is_empty();
        let mut taken =
            if self.postponed_turn { self.take_due_postponed(now) } else { PendingSettlements::default() };
        if taken.is_empty() {
            taken = self.outcomes.take(most, std::mem::take(&mut self.outcomes_room));
        }
        if self.outcomes.is_empty() {
            self.outcomes_since = None;
        }
        let (held, dropped) = self.still_held(taken);
        self.settling = held.len();
        self.passed_before_settle = self.passed;
        (held, dropped)
    }

    /// The settle under way has come to its end. The next outcomes have the room that its own had: room that grows with each batch is
    /// copied each time that it grows.
    pub(crate) fn end_settle(&mut self, mut room: PendingSettlements) {
        room.clear();
        self.outcomes_room = room;
        self.settling = 0;
        self.tracked.tidy();
    }

    /// Parts verdicts into those whose lease still holds as far as we know, and a number of dropped ones.
    pub(crate) fn still_held(&mut self, settlements: PendingSettlements) -> (PendingSettlements, u64) {
        let (held, mut dropped) =
            settlements.part(|lease| self.lanes.get(&lease.lane).is_some_and(|lane| lane.lease == lease));
        let count = dropped.len() as u64;
        for outcome in dropped.drain() {
            if self.is_from_before_rewind(outcome.lease) {
                continue;
            }
            let settlement = &outcome.settlement;
            self.clear_stuck(&outcome);
            self.postponed.forget(settlement.seq);
            // If the lane was taken anew, the event is pending under the new lease and nobody else will look at it.
            self.recheck(settlement.lane, settlement.seq);
            self.leave(outcome.lease, settlement);
            if let Some(key) = outcome.lane_key() {
                self.give_back_followers(key);
            }
        }
        (held, count)
    }

    /// A settle was committed: keys move on, or their followers are given back to wait in the table. One of a future that is lost has nothing
    /// to say about what is in memory since.
    pub(crate) fn committed(&mut self, outcome: PendingSettlement) {
        if self.is_from_before_rewind(outcome.lease) {
            return;
        }
        self.clear_stuck(&outcome);
        let settlement = &outcome.settlement;
        self.note_settled(outcome.lease, settlement);
        self.leave(outcome.lease, settlement);
        // A claim that passes rows over does not come back to those that were due: if it met this one before the settle was known to be
        // committed, it left it to us. One that went dead may have been redriven by then.
        let passed = self.passing || self.passed != self.passed_before_settle;
        if passed && settlement.change != Change::Done {
            self.recheck(settlement.lane, settlement.seq);
        }
        match settlement.change {
            Change::Done | Change::Dead { block: false, .. } => self.free(outcome),
            Change::Wait { .. } | Change::Attempt { .. } | Change::Dead { block: true, .. } => {
                if let Some(key) = outcome.lane_key() {
                    self.give_back_followers(key);
                }
            }
        }
    }

    /// The next event of the key lines up.
    fn free(&mut self, outcome: PendingSettlement) {
        let held = outcome.settlement.held;
        let Some(key) = outcome.lane_key() else { return };
        let Entry::Occupied(mut followers) = self.keys.entry(key) else { return };
        if !followers.get_mut().departs() {
            return;
        }
        match followers.get_mut().pop_front() {
            Some(next) => {
                if !self.long_keys.is_empty() {
                    next.lane_key().iter().for_each(|key| self.key_drained(key));
                }
                self.enqueue(next);
            }
            None => {
                followers.remove();
                self.returning |= held;
            }
        }
    }

    /// The key waits in the table from now on: a later claim meets its followers there and parks them.
    pub(super) fn give_back_followers(&mut self, key: LaneKey) {
        let mut busy = self.keys.remove(&key).unwrap_or_default();
        for follower in busy.take() {
            self.recheck(follower.lease.lane, follower.seq);
            self.untrack(follower.seq);
        }
        if !busy.departs() {
            // Others of the key are under way: what comes meanwhile waits for them.
            self.keys.insert(key.clone(), busy);
        }
        self.key_drained(&key);
        if self.claiming {
            // The claim under way may not have seen the hold, and may bring followers along.
            self.held_meanwhile.insert(key);
        }
    }

    fn leave(&mut self, lease: Lease, settlement: &Settlement) {
        if let Some(lane) = self.lanes.get_mut(&settlement.lane).filter(|lane| lane.lease == lease) {
            lane.busy = lane.busy.saturating_sub(1);
            if lane.end_suspect(settlement.seq) {
                self.suspect_ended();
            }
        }
        self.postponed.forget(settlement.seq);
        if self.claiming && !mutations::active(Mutation::TrackerForgets) {
            self.untrack_after_claim(settlement.seq);
        } else {
            // The end of the settle is soon enough to tidy up.
            self.untrack_untidily(settlement.seq);
        }
    }
}
