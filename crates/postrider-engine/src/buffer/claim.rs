//! Claims: what to read next, and what becomes of what was read.

use super::{backlog_id::BacklogId, *};

/// A claim brings at most one part in so many of the bytes that the queues have room for, or one event.
const CLAIM_SHARE: usize = 8;

impl Buffer {
    /// What to claim now, or none if there is no lane or no room. A claim that is begun must be ended with
    /// [`take`](Self::take) or [`claim_failed`](Self::claim_failed).
    pub(crate) fn begin_claim(
        &mut self,
        settings: &Settings,
        routes: &Arc<RouteTable>,
        now: Instant,
        from_bottom: bool,
    ) -> Option<ClaimPlan> {
        // Settles that commit from here on may name an earlier moment than the claim will.
        let unlocked_at =
            self.lanes.values().filter_map(|lane| lane.locked_until).filter(|at| *at > now).min();
        self.claims.forget_due(unlocked_at);
        self.forget_pauses();
        self.forget_long_keys();
        if self.pauses.stop() {
            // Nobody waits for room: there will be a wake-up when it is over.
            self.claim_room.found();
            return None;
        }
        let room = self.room(settings, now)?;
        let backlog =
            if from_bottom || self.claims.is_lanes_turn() { None } else { self.next_backlog(settings) };
        self.claims.planned(backlog);
        if backlog.is_none() {
            self.go_round_before_passing();
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
            // A part at a time: while a claim is read, a driver may hold it a second time.
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

    /// How many events there is room for; none if it is too few to claim for.
    fn room(&mut self, settings: &Settings, now: Instant) -> Option<usize> {
        if self.postponed.is_full() {
            return None;
        }
        let heavy = self.in_flight.len() > 1
            && settings.queue_bytes.saturating_sub(self.in_flight.bytes()) < settings.queue_bytes / 4;
        let room = |buffer: &Self| {
            let room = settings.cold_queue - buffer.reserve_of(settings);
            // Waiting for a fair part of the queue to be free keeps claims large.
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

    /// When a claim that there is no room for should be tried again, whatever happens.
    pub(crate) fn starved_until(&self) -> Option<Instant> {
        self.claim_room.try_again_at(self.has_several_routes())
    }

    /// Whether there is more than one route: a single one has no others to make room for.
    pub(super) fn has_several_routes(&self) -> bool {
        self.in_flight.routes() > 2
    }

    fn main_lanes(&mut self, settings: &Settings, now: Instant, from_bottom: bool) -> Vec<LaneClaim> {
        let mut lanes = Vec::with_capacity(self.lanes.len());
        for lane in self.lanes.values_mut().filter(|lane| lane.may_claim(now)) {
            let mut again = lane.take_recheck(Seq::MAX);
            // More to look at again than there is room for is as well looked for from the bottom.
            if std::mem::take(&mut lane.from_start) || again.len() > settings.cold_queue + settings.hot_queue
            {
                lane.position = Position::START;
                again.clear();
            }
            // A look from the bottom that fails is not repeated at once: it may take longer than a claim may take. What is to be looked at again is met
            // by it in its order, or by the next claim.
            let from = if from_bottom { Position::START } else { lane.position };
            if from_bottom {
                lane.again.append(&mut again);
            }
            lanes.push(LaneClaim { again, ..LaneClaim::after(lane.lease, from) });
        }
        lanes
    }

    /// What was passed over of a slot, up to where the lanes' own claims have come. What was let go up to there is met too, since it may
    /// stand before what lies in the backlog: waiting until nothing is let go any more could take for ever.
    fn backlog_lanes(&mut self, slot: BacklogId, now: Instant) -> Vec<LaneClaim> {
        let is_down = self.is_down(slot);
        let stands = |lane: Lane| Some(self.lanes.get(lane).filter(|lane| lane.may_claim(now))?.position);
        let begins = lock(&self.backlogs).begin_walk(slot, is_down, stands);
        let claims = begins.into_iter().filter_map(|(lane, from)| {
            let lane = self.lanes.get_mut(lane)?;
            let to = lane.position.front();
            Some(LaneClaim { to, again: lane.take_recheck(to), ..LaneClaim::after(lane.lease, from) })
        });
        claims.collect()
    }

    /// Takes what a claim returned into the cold queue: its events, which the plan has made items of, and the rest. Says how many
    /// events that were.
    pub(crate) fn take(&mut self, plan: &ClaimPlan, claimed: Claimed, items: Vec<Item>) -> usize {
        let claim = &plan.claim;
        for lane in claim.lanes.iter().filter(|lane| claimed.lost.contains(&lane.lease.lane)) {
            self.lose(lane.lease);
        }
        // A lane that was lost, or lost and taken again, while the claim ran begins anew.
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
                    lock(&self.backlogs).walked(slot, lane, reached, plan.refused(lane));
                }
            }
        }
        for (lane, seq) in claimed.again.into_iter().chain(plan.left_to_others()) {
            self.recheck(lane, seq);
        }
        self.note_clock(claimed.now);
        let seqs = || items.iter().map(|item| item.seq);
        self.claims
            .returned(seqs().min().zip(seqs().max()).filter(|_| claimed.more && plan.backlog.is_none()));
        let mut count = 0;
        // The lease of the item before, and whether what was claimed under it is for us: that of the next is mostly the same.
        let (mut known, mut ours) = (None, false);
        for mut item in items {
            let lane = item.lease.lane;
            if known != Some(item.lease) {
                known = Some(item.lease);
                // What comes from a place before which something was let go meanwhile is read again, in order.
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
                // It may be one that had waited for its time: the next claim knows, and passes it over as such.
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

    /// A claim that passes nothing over may leave a due event that is in memory where it is: the next round meets it. Claims that pass rows over go
    /// no further rounds, so the first of them begins one.
    fn go_round_before_passing(&mut self) {
        if self.claims.begins_to_skip(self.has_exceptions()) {
            let lanes: Vec<Lane> = self.lanes.iter().map(|(lane, _)| *lane).collect();
            lanes.into_iter().for_each(|lane| self.wait_from_start(lane));
        }
    }

    /// Looks at all waiting events of a lane again, those included that were passed over.
    pub(super) fn wait_from_start(&mut self, lane: Lane) {
        if let Some(owned) = self.lanes.get_mut(lane) {
            let Position { due_at, due_seq, .. } = Position::START;
            owned.position = Position { due_at, due_seq, ..owned.position };
        }
    }

    /// The database's clock now, as far as it was ever seen.
    pub(crate) fn database_now(&self) -> Option<Timestamp> {
        self.clock.now()
    }

    /// Cursors over waiting events are times of the database's clock. If that was set, they say nothing any more.
    fn note_clock(&mut self, now: Timestamp) {
        if self.clock.saw(now) {
            let lanes: Vec<Lane> = self.lanes.iter().map(|(lane, _)| *lane).collect();
            lanes.into_iter().for_each(|lane| self.wait_from_start(lane));
            lock(&self.backlogs).wait_from_start();
        }
    }

    /// The claim failed: what it was to look at again is still to be looked at, and so is what it has brought. A store that looks for late
    /// commits gives each of them once.
    pub(crate) fn claim_failed(&mut self, plan: &ClaimPlan, brought: &[(Lane, Seq)]) {
        brought.iter().for_each(|(lane, seq)| self.recheck(*lane, *seq));
        for lane in &plan.claim.lanes {
            for &seq in &lane.again {
                self.recheck(lane.lease.lane, seq);
            }
        }
        self.end_claim();
    }

    pub(super) fn end_claim(&mut self) {
        // It may have passed something over in a lane that was lost meanwhile: a backlog that nobody can read would stand before all others.
        let ours = |lane: Lane| self.lanes.get(lane).is_some_and(|owned| owned.draining.is_none());
        let mut backlogs = lock(&self.backlogs);
        backlogs.end_walk();
        backlogs.keep_lanes(ours);
        drop(backlogs);
        self.long_keys.claim_ended();
        self.running_claim.end();
        self.in_flight.remove_settled();
    }

    pub(super) fn recheck(&mut self, lane: Lane, seq: Seq) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.again.push(seq);
        }
    }

    /// Whether a claim would have something to look at again.
    pub(crate) fn has_recheck(&self) -> bool {
        let now = Instant::now();
        let may_claim =
            |lane: &OwnedLane| lane.draining.is_none() && lane.locked_until.is_none_or(|until| until <= now);
        self.lanes.values().any(|lane| !lane.again.is_empty() && may_claim(lane))
    }

    /// Whether the poller waits for what a settle brings: room, events that were given back, a freed key, or a backlog.
    pub(crate) fn wants_claim(&self, settings: &Settings) -> bool {
        self.claim_room.is_starved()
            || self.claims.is_returning()
            || self.lanes.values().any(|lane| lane.from_start)
            || self.has_recheck()
            || self.next_backlog(settings).is_some()
    }

    /// Whether a claim that is begun now would read something: there is a lane, there is room, and nobody has stopped everything.
    pub(crate) fn may_claim(&self) -> bool {
        !self.lanes.is_empty() && !self.claim_room.is_starved() && !self.pauses.stop()
    }

    /// A peek found that this number was drawn last.
    pub(crate) fn peeked(&mut self, last: Seq) -> PeekResult {
        self.peeks.peeked(last)
    }

    /// The last number that was drawn, as far as it is known here.
    pub(crate) fn last_known_seq(&self) -> Option<Seq> {
        self.peeks.known()
    }

    /// A peek was not answered: polls have to find everything.
    pub(crate) fn peek_failed(&mut self) {
        self.peeks.not_answered();
    }

    /// Whether peeks find what is written next.
    pub(crate) fn can_peek(&self) -> bool {
        self.peeks.is_answered()
    }

    /// Whether a peek told of an event that has not come.
    pub(crate) fn misses_events(&self) -> bool {
        self.peeks.misses()
    }

    /// Whether something was passed over and is still in the table.
    pub(crate) fn has_backlog(&self) -> bool {
        !lock(&self.backlogs).is_empty()
    }

    /// Whether something was passed over that is not paused.
    pub(crate) fn has_unpaused_backlog(&self) -> bool {
        // From the end, where those are that no pause holds.
        lock(&self.backlogs).slots().rev().any(|slot| !self.pauses.holds(slot))
    }

    /// A waiting event is due at this moment. True if none was known to be due earlier.
    pub(crate) fn due(&mut self, at: Instant) -> bool {
        self.claims.due(at)
    }

    /// When the next waiting event is due, as far as is known.
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
    fn what_a_claim_passes_over_in_a_lane_that_is_lost_meanwhile_stands_in_nobodys_way() {
        let routes = Arc::new(Routes::new().on("A", async |_| ()).on("B", async |_| ()).build().unwrap());
        let (settings, now) = (Settings::default(), Instant::now());
        let mut buffer = Buffer::new(&routes, &settings);
        let [kept, lost] = [0, 1].map(|lane| Lease { lane, token: Token { epoch: 1, nonce: 1 } });
        for lease in [kept, lost] {
            buffer.own(Taken { lease, suspect_to: 0 }, now + Duration::from_secs(60));
        }
        let plan = buffer.begin_claim(&settings, &routes, now, false).unwrap();
        buffer.lose(lost);
        lock(&buffer.backlogs).note_probe(RouteSlot::at(1).into(), lost.lane, 5, None);
        lock(&buffer.backlogs).note_probe(RouteSlot::at(2).into(), kept.lane, 6, None);
        buffer.claim_failed(&plan, &[]);
        assert_eq!(buffer.next_backlog(&settings), Some(RouteSlot::at(2).into()));
    }

    #[test]
    fn a_look_from_the_bottom_that_fails_is_not_repeated_by_the_next_claim() {
        let routes = Arc::new(Routes::new().on("A", async |_| ()).build().unwrap());
        let (settings, now) = (Settings::default(), Instant::now());
        let mut buffer = Buffer::new(&routes, &settings);
        let lease = Lease { lane: 0, token: Token { epoch: 1, nonce: 1 } };
        buffer.own(Taken { lease, suspect_to: 0 }, now + Duration::from_secs(60));
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
    fn a_backlog_has_its_turn_however_much_is_let_go_meanwhile() {
        let routes = Arc::new(Routes::new().on("A", async |_| ()).on("B", async |_| ()).build().unwrap());
        let (settings, now) = (Settings::default(), Instant::now());
        let mut buffer = Buffer::new(&routes, &settings);
        let lease = Lease { lane: 0, token: Token { epoch: 1, nonce: 1 } };
        buffer.own(Taken { lease, suspect_to: 0 }, now + Duration::from_secs(60));
        buffer.lanes.get_mut(0).unwrap().position = Position::at(100, Timestamp::EPOCH, 0, &Position::START);
        lock(&buffer.backlogs).note_probe(RouteSlot::at(1).into(), lease.lane, 50, None);
        let mut claims = Vec::new();
        for let_go in [7, 107, 8] {
            buffer.recheck(0, let_go);
            let plan = buffer.begin_claim(&settings, &routes, now, false).unwrap();
            claims.push((plan.is_backlog(), plan.claim.lanes[0].again.clone()));
            buffer.claim_failed(&plan, &[]);
        }
        // What lies beyond the walk is not its business.
        assert_eq!(claims, [(false, vec![7]), (true, vec![7]), (false, vec![7, 8, 107])]);
    }
}
