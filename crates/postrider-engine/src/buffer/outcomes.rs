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
        self.outcomes.append(settlements, now);
        back
    }

    /// When outcomes are to be settled: at once if there are many or nothing else is under way, else soon.
    pub(crate) fn settle_at(&self, settings: &Settings, now: Instant) -> Option<Instant> {
        let fresh = self.outcomes.since().map(|since| {
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
        let taken = self.outcomes.take(&mut self.postponed, most, now);
        let (held, dropped) = self.still_held(taken);
        self.outcomes.settle_begins(held.len());
        self.running_claim.settle_begins();
        (held, dropped)
    }

    /// The settle under way has come to its end. The next outcomes have the room that its own had: room that grows with each batch is
    /// copied each time that it grows.
    pub(crate) fn end_settle(&mut self, spare: PendingSettlements) {
        self.outcomes.settle_ends(spare);
        self.in_flight.tidy();
    }

    /// Parts verdicts into those whose lease still holds as far as we know, and a number of dropped ones.
    pub(crate) fn still_held(&mut self, settlements: PendingSettlements) -> (PendingSettlements, u64) {
        let (held, mut dropped) = settlements.part(|lease| self.lanes.under(lease).is_some());
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
        if self.running_claim.skipped_beside_settle() && settlement.change != Change::Done {
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
                if held {
                    self.claims.key_returns();
                }
            }
        }
    }

    /// The key waits in the table from now on: a later claim meets its followers there and parks them.
    pub(super) fn give_back_followers(&mut self, key: LaneKey) {
        let mut busy = self.keys.remove(&key).unwrap_or_default();
        for follower in busy.take() {
            self.recheck(follower.lease.lane, follower.seq);
            self.in_flight.remove(follower.seq);
        }
        if !busy.departs() {
            // Others of the key are under way: what comes meanwhile waits for them.
            self.keys.insert(key.clone(), busy);
        }
        self.key_drained(&key);
        // The claim under way may not have seen the hold, and may bring followers along.
        self.running_claim.note_held(key);
    }

    fn leave(&mut self, lease: Lease, settlement: &Settlement) {
        if let Some(lane) = self.lanes.under_mut(lease) {
            lane.busy = lane.busy.saturating_sub(1);
            if lane.end_suspect(settlement.seq) {
                self.suspects.ended(Instant::now());
            }
        }
        self.postponed.forget(settlement.seq);
        if self.running_claim.runs() && !mutations::active(Mutation::TrackerForgets) {
            self.in_flight.settle(settlement.seq);
        } else {
            // The end of the settle is soon enough to tidy up.
            self.in_flight.remove_one_of_many(settlement.seq);
        }
    }
}
