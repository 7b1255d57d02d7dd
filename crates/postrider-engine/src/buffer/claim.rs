//! Begins claims and takes in what they return.

use super::{backlog_id::BacklogId, *};

/// A claim brings at most this part of the bytes that the queues have room for, or one event.
const CLAIM_SHARE: usize = 8;

impl Buffer {
    /// Plans the next claim; none if there is no lane or no room. End it with [`take`](Self::take) or
    /// [`claim_failed`](Self::claim_failed).
    pub(crate) fn begin_claim(
        &mut self,
        settings: &Settings,
        routes: &Arc<RouteTable>,
        now: Instant,
        from_bottom: bool,
    ) -> Option<ClaimPlan> {
        // Settles that commit from now on may name an earlier moment than the claim.
        let unlocked_at =
            self.lanes.values().filter_map(|lane| lane.locked_until).filter(|at| *at > now).min();
        self.claims.forget_due(unlocked_at);
        self.forget_pauses();
        self.forget_long_keys();
        if self.pauses.stop() {
            // Nothing waits for room: the end of the pause wakes the poller.
            self.claim_room.found();
            return None;
        }
        let room = self.room(settings, now)?;
        let backlog =
            if from_bottom || self.claims.is_lanes_turn() { None } else { self.next_backlog(settings) };
        self.claims.planned(backlog);
        if backlog.is_none() {
            self.restart_round_before_skipping();
        }
        let lanes = match backlog {
            Some(slot) => self.backlog_lanes(slot, now),
            None => self.main_lanes(settings, now, from_bottom),
        };
        if lanes.is_empty() {
            return None;
        }
        self.claims.begins(backlog);
        let claim = Claim {
            in_flight: self.in_flight.seqs(),
            // A part at a time: a driver may hold a second copy while it reads.
            bytes: settings
                .queue_bytes
                .saturating_sub(self.in_flight.bytes())
                .min(settings.queue_bytes / CLAIM_SHARE),
            ..Claim::new(lanes, room.min(settings.claim_batch))
        };
        let plan = self.plan(claim, backlog, settings, routes);
        self.running_claim.begin(plan.claim.admission.is_some());
        Some(plan)
    }

    /// Returns how many events there is room for; none if it is too few to claim for.
    fn room(&mut self, settings: &Settings, now: Instant) -> Option<usize> {
        if self.postponed.is_full() {
            return None;
        }
        let heavy = self.in_flight.len() > 1
            && settings.queue_bytes.saturating_sub(self.in_flight.bytes()) < settings.queue_bytes / 4;
        let room = |buffer: &Self| {
            let room = settings.cold_queue - buffer.reserve_of(settings);
            // Claims stay large because they wait for a fair part of the queue.
            let enough = settings.claim_batch.min(room.div_ceil(2));
            let room = room.saturating_sub(buffer.in_flight.cold());
            (room >= enough && !heavy).then_some(room)
        };
        if let Some(room) = room(self) {
            self.claim_room.found();
            self.end_sharing();
            return Some(room);
        }
        if !self.claim_room.missing(self.has_several_routes(), now) {
            return None;
        }
        let room = settings.cold_queue.saturating_sub(self.in_flight.cold());
        (room > 0 && !heavy).then_some(room)
    }

    /// Returns when a claim that found no room is to be tried again, whatever happens.
    pub(crate) fn starved_until(&self) -> Option<Instant> {
        self.claim_room.try_again_at(self.has_several_routes())
    }

    /// Whether there is more than one route. A single one has no others to make room for.
    pub(super) fn has_several_routes(&self) -> bool {
        self.in_flight.routes() > 2
    }

    fn main_lanes(&mut self, settings: &Settings, now: Instant, from_bottom: bool) -> Vec<LaneClaim> {
        let mut lanes = Vec::with_capacity(self.lanes.len());
        for lane in self.lanes.values_mut().filter(|lane| lane.may_claim(now)) {
            let mut again = lane.take_recheck(Seq::MAX);
            // If there is more to recheck than fits, reading from the start is as good.
            if std::mem::take(&mut lane.from_start) || again.len() > settings.cold_queue + settings.hot_queue
            {
                lane.position = Position::START;
                again.clear();
            }
            // A scan from the start that fails is not repeated at once: it may take longer than a claim may. It
            // meets the rows to recheck in order, or the next claim does.
            let from = if from_bottom { Position::START } else { lane.position };
            if from_bottom {
                lane.recheck.append(&mut again);
            }
            lanes.push(LaneClaim { again, ..LaneClaim::after(lane.lease, from) });
        }
        lanes
    }

    /// Plans the scan of a backlog, up to where the lanes' own claims have come. The scan includes the rows to
    /// recheck up to there, since they may precede the backlog. Waiting until there are none could take for
    /// ever.
    fn backlog_lanes(&mut self, id: BacklogId, now: Instant) -> Vec<LaneClaim> {
        let is_down = self.is_down(id);
        let stands = |lane: Lane| Some(self.lanes.get(lane).filter(|lane| lane.may_claim(now))?.position);
        let begins = lock(&self.backlogs).begin_scan(id, is_down, stands);
        let claims = begins.into_iter().filter_map(|(lane, from)| {
            let lane = self.lanes.get_mut(lane)?;
            let to = lane.position.front();
            Some(LaneClaim { to, again: lane.take_recheck(to), ..LaneClaim::after(lane.lease, from) })
        });
        claims.collect()
    }

    /// Takes claimed events into memory. Returns how many.
    pub(crate) fn take(&mut self, plan: &ClaimPlan, claimed: Claimed, items: Vec<Item>) -> usize {
        let claim = &plan.claim;
        for lane in claim.lanes.iter().filter(|lane| claimed.lost.contains(&lane.lease.lane)) {
            self.lose(lane.lease);
        }
        // A lane that was lost while the claim ran, or lost and taken again, begins anew.
        for (lane, position) in claimed.positions {
            let lease = plan.lease(lane);
            let Some(owned) = self.lanes.get_mut(lane).filter(|owned| owned.may_take(lease)) else {
                continue;
            };
            match plan.backlog {
                None if owned.from_start => {}
                None => owned.position = position,
                Some(_) if plan.skipped(lane) => {}
                Some(slot) => {
                    let reached = claimed.more.then_some(position);
                    lock(&self.backlogs).scanned(slot, lane, reached, plan.refused(lane));
                }
            }
        }
        for (lane, seq) in claimed.again.into_iter().chain(plan.left_to_lanes()) {
            self.recheck(lane, seq);
        }
        self.note_clock(claimed.now);
        let seqs = || items.iter().map(|item| item.seq);
        self.claims
            .returned(seqs().min().zip(seqs().max()).filter(|_| claimed.more && plan.backlog.is_none()));
        let mut count = 0;
        // Whether events under the last lease are ours. The next event usually has the same lease.
        let (mut known, mut ours) = (None, false);
        for mut item in items {
            let lane = item.lease.lane;
            if known != Some(item.lease) {
                known = Some(item.lease);
                // The lane is read from the start again, in order.
                ours = self.lanes.get(lane).is_some_and(|owned| owned.may_take(known) && !owned.from_start);
            }
            if !ours || self.in_flight.contains(item.seq) || self.is_stuck(&item) {
                continue;
            }
            let key = item.lane_key();
            if self.running_claim.was_held(key.as_ref()) {
                self.recheck(lane, item.seq);
                continue;
            }
            if self.exceeds_key_queue(&item, key.as_ref(), plan.backlog) {
                // It may have waited for its time. The next claim knows that it waits, and skips it as such.
                self.recheck(lane, item.seq);
                continue;
            }
            count += 1;
            if item.attempts > 0 {
                item.attempts = self.attempts_of(&item);
            }
            self.enter(item, key);
        }
        if let Some(slot) = plan.backlog.filter(|_| count == 0) {
            lock(&self.backlogs).found_nothing(slot);
        }
        self.end_claim();
        count
    }

    /// Begins a round anew before the first claim that skips rows. A claim that skips nothing may leave a due
    /// event that is in memory for the next round, and claims that skip rows begin no further rounds.
    fn restart_round_before_skipping(&mut self) {
        if self.claims.begins_to_skip(self.skips_rows()) {
            let lanes: Vec<Lane> = self.lanes.iter().map(|(lane, _)| *lane).collect();
            lanes.into_iter().for_each(|lane| self.wait_from_start(lane));
        }
    }

    /// Looks at all waiting events of a lane again, skipped ones included.
    pub(super) fn wait_from_start(&mut self, lane: Lane) {
        if let Some(owned) = self.lanes.get_mut(lane) {
            let Position { due_at, due_seq, .. } = Position::START;
            owned.position = Position { due_at, due_seq, ..owned.position };
        }
    }

    /// Returns the time on the database's clock, if it was ever seen.
    pub(crate) fn database_now(&self) -> Option<Timestamp> {
        self.clock.now()
    }

    /// Cursors over waiting events are times of the database's clock. If it was set, they mean nothing any
    /// more.
    fn note_clock(&mut self, now: Timestamp) {
        if self.clock.saw(now) {
            let lanes: Vec<Lane> = self.lanes.iter().map(|(lane, _)| *lane).collect();
            lanes.into_iter().for_each(|lane| self.wait_from_start(lane));
            lock(&self.backlogs).wait_from_start();
        }
    }

    /// Ends a claim that failed. Its rows to recheck, and what it brought, are rechecked: a store that looks
    /// for late commits reports each one once.
    pub(crate) fn claim_failed(&mut self, plan: &ClaimPlan, returned: &[(Lane, Seq)]) {
        returned.iter().for_each(|(lane, seq)| self.recheck(*lane, *seq));
        for lane in &plan.claim.lanes {
            for &seq in &lane.again {
                self.recheck(lane.lease.lane, seq);
            }
        }
        self.end_claim();
    }

    pub(super) fn end_claim(&mut self) {
        // The claim may have skipped rows of a lane that was lost meanwhile. A backlog that nobody can read
        // would block all others.
        let ours = |lane: Lane| self.lanes.get(lane).is_some_and(|owned| owned.draining.is_none());
        let mut backlogs = lock(&self.backlogs);
        backlogs.end_scan();
        backlogs.keep_lanes(ours);
        drop(backlogs);
        self.long_keys.claim_ended();
        self.running_claim.end();
        self.in_flight.remove_settled();
    }

    pub(super) fn recheck(&mut self, lane: Lane, seq: Seq) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.recheck.push(seq);
        }
    }

    /// Whether the next claim has rows to recheck.
    pub(crate) fn has_recheck(&self) -> bool {
        let now = Instant::now();
        let may_claim =
            |lane: &OwnedLane| lane.draining.is_none() && lane.locked_until.is_none_or(|until| until <= now);
        self.lanes.values().any(|lane| !lane.recheck.is_empty() && may_claim(lane))
    }

    /// Whether the poller waits for what a settle brings: room, returned events, a freed key, or a backlog.
    pub(crate) fn wants_claim(&self, settings: &Settings) -> bool {
        self.claim_room.is_starved()
            || self.claims.is_returning()
            || self.lanes.values().any(|lane| lane.from_start)
            || self.has_recheck()
            || self.next_backlog(settings).is_some()
    }

    /// Whether a claim would read something now: there is a lane and room, and sending is not stopped.
    pub(crate) fn may_claim(&self) -> bool {
        !self.lanes.is_empty() && !self.claim_room.is_starved() && !self.pauses.stop()
    }

    /// Records the last number that a peek found.
    pub(crate) fn peeked(&mut self, last: Seq) -> PeekResult {
        self.peeks.peeked(last)
    }

    /// Returns the last number that is known to be drawn.
    pub(crate) fn last_known_seq(&self) -> Option<Seq> {
        self.peeks.known()
    }

    /// Records that a peek was not answered: polls have to find everything.
    pub(crate) fn peek_failed(&mut self) {
        self.peeks.not_answered();
    }

    /// Whether peeks find new events.
    pub(crate) fn can_peek(&self) -> bool {
        self.peeks.is_answered()
    }

    /// Whether a peek found an event that has not come.
    pub(crate) fn misses_events(&self) -> bool {
        self.peeks.misses()
    }

    /// Whether anything was skipped.
    pub(crate) fn has_backlog(&self) -> bool {
        !lock(&self.backlogs).is_empty()
    }

    /// Whether anything was skipped that is not paused.
    pub(crate) fn has_unpaused_backlog(&self) -> bool {
        // From the end, where the backlogs are that no pause holds.
        lock(&self.backlogs).ids().rev().any(|slot| !self.pauses.holds(slot))
    }

    /// Records that a waiting event is due. Returns whether none was known to be due earlier.
    pub(crate) fn due(&mut self, at: Instant) -> bool {
        self.claims.due(at)
    }

    /// Returns when the next waiting event is due, as far as is known.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.claims.due_at()
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::store::Token;

    use super::*;
    use crate::Routes;

    #[test]
    fn what_a_claim_skips_in_a_lane_that_is_lost_meanwhile_blocks_nothing() {
        let routes = Arc::new(Routes::new().on("A", async |_| ()).on("B", async |_| ()).build().unwrap());
        let (settings, now) = (Settings::default(), Instant::now());
        let mut buffer = Buffer::new(&routes, &settings);
        let [kept, lost] = [0, 1].map(|lane| Lease { lane, token: Token { epoch: 1, nonce: 1 } });
        for lease in [kept, lost] {
            buffer.own(AcquiredLane { lease, suspect_to: 0 }, now + Duration::from_secs(60));
        }
        let plan = buffer.begin_claim(&settings, &routes, now, false).unwrap();
        buffer.lose(lost);
        lock(&buffer.backlogs).note_probe(RouteSlot::at(1).into(), lost.lane, 5, None);
        lock(&buffer.backlogs).note_probe(RouteSlot::at(2).into(), kept.lane, 6, None);
        buffer.claim_failed(&plan, &[]);
        assert_eq!(buffer.next_backlog(&settings), Some(RouteSlot::at(2).into()));
    }

    #[test]
    fn a_scan_from_the_start_that_fails_is_not_repeated_by_the_next_claim() {
        let routes = Arc::new(Routes::new().on("A", async |_| ()).build().unwrap());
        let (settings, now) = (Settings::default(), Instant::now());
        let mut buffer = Buffer::new(&routes, &settings);
        let lease = Lease { lane: 0, token: Token { epoch: 1, nonce: 1 } };
        buffer.own(AcquiredLane { lease, suspect_to: 0 }, now + Duration::from_secs(60));
        let stands = Position::at(100, Timestamp::EPOCH, 0, &Position::START);
        buffer.lanes.get_mut(0).unwrap().position = stands;
        buffer.recheck(0, 50);
        let mut claims = Vec::new();
        for from_bottom in [true, false] {
            let plan = buffer.begin_claim(&settings, &routes, now, from_bottom).unwrap();
            let lane = plan.claim.lanes[0].clone();
            claims.push((lane.from, lane.again));
            buffer.claim_failed(&plan, &[]);
        }
        assert_eq!(claims, [(Position::START, vec![]), (stands, vec![50])]);
    }

    #[test]
    fn a_backlog_has_its_turn_however_much_there_is_to_recheck() {
        let routes = Arc::new(Routes::new().on("A", async |_| ()).on("B", async |_| ()).build().unwrap());
        let (settings, now) = (Settings::default(), Instant::now());
        let mut buffer = Buffer::new(&routes, &settings);
        let lease = Lease { lane: 0, token: Token { epoch: 1, nonce: 1 } };
        buffer.own(AcquiredLane { lease, suspect_to: 0 }, now + Duration::from_secs(60));
        buffer.lanes.get_mut(0).unwrap().position = Position::at(100, Timestamp::EPOCH, 0, &Position::START);
        lock(&buffer.backlogs).note_probe(RouteSlot::at(1).into(), lease.lane, 50, None);
        let mut claims = Vec::new();
        for let_go in [7, 107, 8] {
            buffer.recheck(0, let_go);
            let plan = buffer.begin_claim(&settings, &routes, now, false).unwrap();
            claims.push((plan.is_backlog(), plan.claim.lanes[0].again.clone()));
            buffer.claim_failed(&plan, &[]);
        }
        // Rows beyond the scan are left to the lanes' own claims.
        assert_eq!(claims, [(false, vec![7]), (true, vec![7]), (false, vec![7, 8, 107])]);
    }
}
