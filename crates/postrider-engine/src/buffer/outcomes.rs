//! Takes outcomes in, hands them to settles, and carries out what their commit means for keys and lanes.

use super::*;

impl Buffer {
    /// Takes in the outcomes of events that were sent. Returns whether this shows that their receiver is up
    /// again.
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

    /// Returns when to settle: at once if there are many outcomes or nothing else is under way, else soon.
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

    /// Takes outcomes to settle, and drops those of lanes that were lost meanwhile. Returns how many it
    /// dropped.
    pub(crate) fn take_outcomes(&mut self, most: usize, now: Instant) -> (PendingSettlements, u64) {
        let taken = self.outcomes.take(&mut self.postponed, most, now);
        let (held, dropped) = self.still_held(taken);
        self.outcomes.settle_begins(held.len());
        self.running_claim.settle_begins();
        (held, dropped)
    }

    /// Ends the running settle. The next outcomes reuse its capacity, which would otherwise be copied each time
    /// that it grows.
    pub(crate) fn end_settle(&mut self, spare: PendingSettlements) {
        self.outcomes.settle_ends(spare);
        self.in_flight.tidy();
    }

    /// Splits off the outcomes whose lease is lost, and drops them. Returns how many.
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
            // If the lane was taken anew, the event is pending under the new lease and only this recheck finds
            // it.
            self.recheck(settlement.lane, settlement.seq);
            self.leave(outcome.lease, settlement);
            if let Some(key) = outcome.lane_key() {
                self.give_back_followers(key);
            }
        }
        (held, count)
    }

    /// Carries out a committed outcome: its key moves on, or its followers go back to the table. An outcome
    /// from before a rewind changes nothing.
    pub(crate) fn committed(&mut self, outcome: PendingSettlement) {
        if self.is_from_before_rewind(outcome.lease) {
            return;
        }
        self.clear_stuck(&outcome);
        let settlement = &outcome.settlement;
        self.note_settled(outcome.lease, settlement);
        self.leave(outcome.lease, settlement);
        // A claim that skips rows does not come back to those that were due. If it met this one before the
        // commit was known here, it left it to us. A dead one may have been redriven by then.
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

    /// Enqueues the next event of the key.
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

    /// Gives the followers of a key back to the table, where a later claim meets and parks them.
    pub(super) fn give_back_followers(&mut self, key: LaneKey) {
        let mut busy = self.keys.remove(&key).unwrap_or_default();
        for follower in busy.take() {
            self.recheck(follower.lease.lane, follower.seq);
            self.in_flight.remove(follower.seq);
        }
        if !busy.departs() {
            // Other events of the key are under way, and new ones wait for them.
            self.keys.insert(key.clone(), busy);
        }
        self.key_drained(&key);
        // The running claim may not have seen the hold, and may bring followers along.
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
            // The tracker is tidied once, at the end of the settle.
            self.in_flight.remove_one_of_many(settlement.seq);
        }
    }
}
