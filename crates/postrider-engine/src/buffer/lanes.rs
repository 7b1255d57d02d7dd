//! Takes lanes, extends them, and gives them up or loses them with their events.

use super::*;

/// A lane that was not idle in time is kept for this many times as long as its drain was waited for.
const KEPT_FACTOR: u32 = 4;

/// How often that wait is doubled at most.
const KEPT_DOUBLINGS: u32 = 4;

/// How long nothing is claimed from a lane that another session has locked.
const LOCKED_PAUSE: Duration = Duration::from_millis(250);

impl Buffer {
    /// Takes a lane under a new lease.
    pub(crate) fn own(&mut self, taken: AcquiredLane, deadline: Instant) {
        if let Some(before) = self.lanes.get(taken.lease.lane).map(|lane| lane.lease) {
            self.lose(before);
        }
        self.note_lease_taken(taken.lease);
        self.lanes.insert(taken, deadline);
    }

    /// Extends a lease, unless it was lost since its renewal was sent.
    pub(crate) fn extend(&mut self, lease: Lease, deadline: Instant) {
        self.lanes.extend(lease, deadline);
    }

    /// Returns the local moment after which nothing of this lease is sent.
    pub(crate) fn deadline(&self, lease: Lease) -> Option<Instant> {
        self.lanes.under(lease).map(|lane| lane.deadline)
    }

    /// Whether a local deadline has passed. Lanes are renewed together, so nothing is sent until the renewal
    /// comes through or the lane is known to be lost.
    pub(crate) fn is_expired(&self, now: Instant) -> bool {
        self.lanes.first_deadline().is_some_and(|deadline| now >= deadline)
    }

    /// Forgets a lane and its queued events. What is being sent stays tracked until it ends. Nothing happens if
    /// the lane was taken again under another lease.
    pub(crate) fn lose(&mut self, lease: Lease) {
        let (lane, Some(lost)) = (lease.lane, self.lanes.remove(lease)) else { return };
        lock(&self.backlogs).forget_lane(lane);
        lost.suspects.into_iter().for_each(|item| self.forget(item));
        self.forget_queued(lane);
    }

    /// Forgets the events of a lane that are not being sent. The table has them.
    pub(super) fn forget_queued(&mut self, lane: Lane) {
        let reserved: Vec<Seq> =
            self.reserved.values().filter(|item| item.lease.lane == lane).map(|item| item.seq).collect();
        for seq in reserved {
            self.reserved.remove(&seq);
            self.in_flight.remove(seq);
        }
        let queued = self.queues.extract(|item| item.lease.lane != lane);
        queued.into_iter().for_each(|item| self.forget(item));
        let waiting: Vec<Seq> = self
            .keys
            .iter_mut()
            .filter(|(of, _)| of.lane == lane)
            .flat_map(|(_, followers)| followers.take().into_iter().map(|item| item.seq))
            .collect();
        waiting.into_iter().for_each(|seq| self.in_flight.remove(seq));
    }

    /// Forgets the head of a key and its followers.
    pub(super) fn forget(&mut self, item: Item) {
        self.in_flight.remove(item.seq);
        let followers = item.lane_key().and_then(|key| self.keys.remove(&key));
        followers
            .unwrap_or_default()
            .take()
            .into_iter()
            .for_each(|follower| self.in_flight.remove(follower.seq));
    }

    /// Forgets everything, after a task of the engine panicked and left its work half done. The lanes are taken
    /// anew when their leases have run out.
    pub(crate) fn reset(&mut self) {
        self.leases().into_iter().for_each(|lease| self.lose(lease));
        self.keys.clear();
        self.in_flight.clear();
        self.sending = 0;
        self.claim_room.end_sharing();
        self.outcomes.clear();
        self.postponed.clear();
        self.receivers.reset();
        self.end_claim();
    }

    /// Begins to drain the lanes beyond a fair share. A lane that is not idle within the timeout is kept: what
    /// is being sent or cannot be settled must not stop the rest of its lane.
    pub(crate) fn drain_beyond(&mut self, share: usize, now: Instant, drain_timeout: Duration) {
        self.keep_busy_lanes(now, drain_timeout);
        let kept = self.lanes.values().filter(|lane| lane.draining.is_none()).count();
        let unsettled = self.postponed.lanes();
        let over: Vec<Lane> = self
            .lanes
            .iter()
            .rev()
            .filter(|(number, lane)| lane.may_drain(now) && !unsettled.contains(number))
            .map(|(&lane, _)| lane)
            .take(kept.saturating_sub(share))
            .collect();
        for lane in over {
            let Some(owned) = self.lanes.get_mut(lane) else { continue };
            owned.draining = Some(now);
            lock(&self.backlogs).forget_lane(lane);
            let suspects = std::mem::take(&mut owned.suspects);
            suspects.into_iter().for_each(|item| self.forget(item));
            self.forget_queued(lane);
        }
    }

    /// Keeps the draining lanes that are not idle in time. They are read again from the start.
    fn keep_busy_lanes(&mut self, now: Instant, drain_timeout: Duration) {
        let unsettled = self.postponed.lanes();
        for (number, lane) in self.lanes.iter_mut() {
            let busy = lane.busy > 0 && !mutations::active(Mutation::LanesFrozen);
            let Some(since) = lane.draining.filter(|_| busy) else { continue };
            // Slow sends get more time with each try.
            let drain_timeout = drain_timeout * 2_u32.saturating_pow(lane.kept.min(KEPT_DOUBLINGS));
            if since + drain_timeout <= now || unsettled.contains(number) {
                (lane.draining, lane.kept_until) = (None, Some(now + drain_timeout * KEPT_FACTOR));
                lane.kept = lane.kept.saturating_add(1);
                lane.from_start = true;
            }
        }
    }

    /// Returns the draining lanes that have nothing under way, with their suspects.
    pub(crate) fn drained_lanes(&self) -> Vec<(Lease, Seq)> {
        if self.is_frozen() {
            return Vec::new();
        }
        let drained = self.lanes.values().filter(|lane| lane.draining.is_some() && lane.busy == 0);
        drained.map(|lane| (lane.lease, lane.suspect_to)).collect()
    }

    /// Returns the lanes that have nothing under way or unwritten, with their suspects, and whether these are
    /// all.
    pub(crate) fn idle_lanes(&self) -> (Vec<(Lease, Seq)>, bool) {
        if self.is_frozen() {
            return (Vec::new(), false);
        }
        let idle: Vec<_> = self.lanes.values().filter(|lane| lane.busy == 0).collect();
        let all = idle.len() == self.lanes.len();
        (idle.into_iter().map(|lane| (lane.lease, lane.suspect_to)).collect(), all)
    }

    /// Whether one busy lane keeps the others from being released, which is a mutation.
    fn is_frozen(&self) -> bool {
        mutations::active(Mutation::LanesFrozen) && self.lanes.values().any(|lane| lane.busy > 0)
    }

    /// Returns the lanes that have nothing in memory, with their suspects.
    pub(crate) fn finished_lanes(&self) -> Vec<(Lease, Seq)> {
        if self.is_frozen() {
            return Vec::new();
        }
        let queued = self.queues.iter().chain(self.reserved.values());
        let mut unfinished: HashSet<Lane> = queued.map(|item| item.lease.lane).collect();
        unfinished.extend(self.keys.keys().map(|key| key.lane));
        let finished = |lane: &&OwnedLane| {
            lane.busy == 0 && lane.suspects.is_empty() && !unfinished.contains(&lane.lease.lane)
        };
        self.lanes.values().filter(finished).map(|lane| (lane.lease, lane.suspect_to)).collect()
    }

    /// Leaves the unsent events of these lanes to the table, and drains the lanes. Returns how many events.
    pub(crate) fn leave_queued(&mut self, lanes: &[(Lease, Seq)], now: Instant) -> usize {
        let queued = self.queued_in(lanes);
        for (lease, _) in lanes {
            let owned = self.lanes.get_mut(lease.lane);
            let suspects = owned.map(|lane| {
                // A claim on its way back may bring more.
                lane.draining.get_or_insert(now);
                std::mem::take(&mut lane.suspects)
            });
            suspects.into_iter().flatten().for_each(|item| self.forget(item));
            self.forget_queued(lease.lane);
        }
        queued
    }

    /// Leaves the unsent events of all lanes to the table.
    pub(crate) fn leave_all_queued(&mut self, now: Instant) -> usize {
        self.leave_queued(&self.lanes.with_suspects(), now)
    }

    /// Returns how many unsent events of these lanes are in memory.
    fn queued_in(&self, lanes: &[(Lease, Seq)]) -> usize {
        let lanes: HashSet<Lane> = lanes.iter().map(|(lease, _)| lease.lane).collect();
        let queued = self.queues.iter().filter(|item| lanes.contains(&item.lease.lane));
        let suspects = self.lanes.values().filter(|lane| lanes.contains(&lane.lease.lane));
        let followers = self.keys.iter().filter(|(key, _)| lanes.contains(&key.lane));
        queued.count()
            + suspects.map(|lane| lane.suspects.len()).sum::<usize>()
            + followers.map(|(_, followers)| followers.len()).sum::<usize>()
    }

    /// Returns what to mark in the table before these events are sent, with room for the next ones. If one lane
    /// needs a mark, all get the same one: marked at different times, nearly every claim would have to write.
    pub(crate) fn marks(&self, claimed: &Claimed, ahead: Seq) -> Vec<(Lease, Seq)> {
        // Events of a lane are mostly adjacent.
        let groups = || claimed.events.chunk_by(|one, next| one.lane == next.lane);
        let lane_of = |events: &[ClaimedEvent]| self.lanes.get(events.first()?.lane);
        let beyond = |events: &[ClaimedEvent]| {
            let last = events.iter().map(|event| event.seq).max();
            lane_of(events).is_some_and(|lane| last > Some(lane.sent_to))
        };
        if !groups().any(beyond) {
            return Vec::new();
        }
        let last = claimed.events.iter().map(|event| event.seq).max().unwrap_or_default();
        let mark = last.saturating_add(ahead);
        let lanes: BTreeMap<Lane, Lease> =
            groups().filter_map(lane_of).map(|lane| (lane.lease.lane, lane.lease)).collect();
        lanes.into_values().map(|lease| (lease, mark)).collect()
    }

    /// Returns what to mark while a claim runs, so that nobody waits for it afterwards: the last claim left
    /// something, and another one as long would go beyond the highest marks.
    pub(crate) fn marks_ahead(&self, plan: &ClaimPlan, ahead: Seq) -> Vec<(Lease, Seq)> {
        let Some((first, last)) = self.claims.left_more().filter(|_| plan.backlog.is_none()) else {
            return Vec::new();
        };
        let next = last.saturating_add(last.saturating_sub(first));
        let marked = self.lanes.values().map(|lane| lane.sent_to).max().unwrap_or_default();
        if next <= marked || marked < first {
            return Vec::new();
        }
        let lanes = plan
            .claim
            .lanes
            .iter()
            .filter(|lane| self.lanes.get(lane.lease.lane).is_some_and(|owned| owned.sent_to == marked));
        lanes.map(|lane| (lane.lease, next.saturating_add(ahead))).collect()
    }

    /// Records that the table has these marks.
    pub(crate) fn marked<'m>(&mut self, marks: impl Iterator<Item = &'m (Lease, Seq)>) {
        for (lease, seq) in marks {
            if let Some(lane) = self.lanes.under_mut(*lease) {
                lane.sent_to = lane.sent_to.max(*seq);
            }
        }
    }

    /// Gives back the events of lanes that could not be marked, and claims nothing from these lanes for a
    /// while.
    pub(crate) fn leave_unmarked(&mut self, claimed: &mut Claimed, locked: &[Lane], now: Instant) {
        for lane in locked {
            if let Some(owned) = self.lanes.get_mut(*lane) {
                owned.locked_until = Some(now + LOCKED_PAUSE);
            }
        }
        let is_unmarked = |event: &ClaimedEvent| {
            let marked = self.lanes.get(event.lane).map_or(0, |lane| lane.sent_to);
            locked.contains(&event.lane) && event.seq > marked
        };
        let left = claimed.events.extract_if(.., |event| is_unmarked(event));
        claimed.again.extend(left.map(|event| (event.lane, event.seq)));
    }

    /// Returns until when something of this lease may be sent; none if it may not be sent now.
    pub(crate) fn may_send_until(&self, lease: Lease, now: Instant) -> Option<Instant> {
        let lane = self.lanes.under(lease)?;
        self.gate_of_lease(lease, now).is_open().then_some(lane.deadline)
    }

    pub(crate) fn leases(&self) -> Vec<Lease> {
        self.lanes.values().map(|lane| lane.lease).collect()
    }

    /// Returns the lanes where new events without a key are welcome. There are none while this instance has
    /// more than it can soon send, so that others take a share.
    pub(crate) fn hints(&self, settings: &Settings) -> Vec<Lane> {
        if !self.accepting || self.in_flight.cold() > settings.cold_queue / 2 {
            return Vec::new();
        }
        self.lanes.iter().filter(|(_, lane)| lane.draining.is_none()).map(|(&lane, _)| lane).collect()
    }

    pub(crate) fn lanes_owned(&self) -> usize {
        self.lanes.len()
    }
}
