//! Claims: what to read next, and what becomes of what was read.

use super::*;

impl Buffer {
    /// What to claim now, or none if there is no lane or no room. A claim that is begun must be ended with
    /// [`take`](Self::take) or [`claim_failed`](Self::claim_failed).
    pub(crate) fn begin_claim(
        &mut self,
        settings: &Settings,
        now: Instant,
        from_bottom: bool,
    ) -> Option<Claim> {
        // Settles that commit from here on may name an earlier moment than the claim will.
        self.due_at = None;
        let room = settings.cold_queue.saturating_sub(self.cold_count);
        let bytes = settings.queue_bytes.saturating_sub(self.bytes);
        // Waiting for a fair part of the queue to be free keeps claims large.
        let enough = settings.claim_batch.min(settings.cold_queue.div_ceil(2));
        self.starved = room < enough || (self.tracked.len() > 1 && bytes < settings.queue_bytes / 4);
        if self.starved {
            return None;
        }
        let mut lanes = Vec::with_capacity(self.lanes.len());
        for lane in self.lanes.values_mut().filter(|lane| now < lane.deadline && !lane.draining) {
            let mut again = std::mem::take(&mut lane.again);
            again.sort_unstable();
            again.dedup();
            // More to look at again than there is room for is as well looked for from the bottom.
            if from_bottom || again.len() > settings.cold_queue {
                lane.position = Position::START;
                again.clear();
            }
            lanes.push(LaneClaim { again, ..LaneClaim::after(lane.lease, lane.position) });
        }
        if lanes.is_empty() {
            return None;
        }
        self.claiming = true;
        self.returning = false;
        let in_flight = self.tracked.keys().copied().collect();
        Some(Claim { in_flight, bytes, ..Claim::new(lanes, room.min(settings.claim_batch)) })
    }

    /// Takes what a claim returned into the cold queue. Says how many events that were.
    pub(crate) fn take(
        &mut self,
        claim: &Claim,
        claimed: Claimed,
        routes: &RouteTable,
        ordering: KeyOrder,
    ) -> usize {
        for lane in claim.lanes.iter().filter(|lane| claimed.lost.contains(&lane.lease.lane)) {
            self.lose(lane.lease);
        }
        // A lane that was lost, or lost and taken again, while the claim ran begins anew.
        let leases: BTreeMap<Lane, Lease> = claim
            .lanes
            .iter()
            .map(|lane| (lane.lease.lane, lane.lease))
            .filter(|(lane, lease)| {
                self.lanes.get(lane).is_some_and(|owned| owned.lease == *lease && !owned.draining)
            })
            .collect();
        for (lane, position) in claimed.positions {
            if let Some(owned) = self.lanes.get_mut(&lane).filter(|_| leases.contains_key(&lane)) {
                owned.position = position;
            }
        }
        for (lane, seq) in claimed.again {
            self.look_again(lane, seq);
        }
        let mut count = 0;
        for event in claimed.events {
            let Some(&lease) = leases.get(&event.lane) else { continue };
            if self.tracked.contains_key(&event.seq) {
                continue;
            }
            let key = match &event.event {
                Ok(event) => event.shared_key().cloned(),
                Err(row) => row.key.clone(),
            };
            let key = key.filter(|_| ordering == KeyOrder::Kept || event.held);
            if key.as_ref().is_some_and(|key| self.held_meanwhile.contains(&(event.lane, key.clone()))) {
                self.look_again(event.lane, event.seq);
                continue;
            }
            count += 1;
            self.enter(
                Item {
                    cargo: event.event,
                    lease,
                    seq: event.seq,
                    attempts: event.attempts,
                    held: event.held,
                    source: Source::Cold,
                    key,
                },
                routes,
            );
        }
        self.end_claim();
        count
    }

    /// The claim failed: what it was to look at again is still to be looked at.
    pub(crate) fn claim_failed(&mut self, claim: &Claim) {
        for lane in &claim.lanes {
            for &seq in &lane.again {
                self.look_again(lane.lease.lane, seq);
            }
        }
        self.end_claim();
    }

    pub(super) fn end_claim(&mut self) {
        self.claiming = false;
        self.held_meanwhile.clear();
        for seq in std::mem::take(&mut self.settled_meanwhile) {
            self.tracked.remove(&seq);
        }
    }

    pub(super) fn look_again(&mut self, lane: Lane, seq: Seq) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.again.push(seq);
        }
    }

    /// Whether a claim would have something to look at again.
    pub(crate) fn has_again(&self) -> bool {
        self.lanes.values().any(|lane| !lane.again.is_empty())
    }

    /// Whether the poller waits for what a settle brings: room, events that were given back, or a freed key.
    pub(crate) fn wants_claim(&self) -> bool {
        self.starved || self.returning || self.has_again()
    }

    /// A waiting event is due at this moment. True if none was known to be due earlier.
    pub(crate) fn due(&mut self, at: Instant) -> bool {
        let earlier = self.due_at.is_none_or(|known| at < known);
        if earlier {
            self.due_at = Some(at);
        }
        earlier
    }

    /// When the next waiting event is due, as far as is known.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.due_at
    }
}
