//! Everything that is in memory: owned lanes, queued events, busy keys, and outcomes on their way back.
//!
//! Three rules live here, and nowhere else:
//!
//! * **One at a time.** A key is busy from the moment its head is queued until the outcome that frees it is committed;
//!   what follows waits behind it in memory, and is given back when the head has to wait.
//! * **In flight.** An event is tracked from claim or hand-over until its settle is committed, and beyond that until
//!   every claim that began before has returned: an older snapshot would bring it back.
//! * **Under lease.** Nothing is sent for a lane that is not held, or whose local deadline has passed.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::{BuildHasherDefault, DefaultHasher},
    sync::Arc,
};

use postrider_core::{
    Event, Source, Timestamp,
    event::limits::EVENT_FLAT_BYTES,
    store::{Change, Claim, Claimed, Lane, LaneClaim, Lease, Position, Seq, Settlement, Undecodable},
    tx::Placed,
};
use tokio::time::Instant;

use crate::{
    breaker::Breaker,
    lineup::Lineup,
    routes::{RouteId, RouteTable},
    settings::{KeyOrder, Settings},
};

/// A hasher without a random seed: a simulated run is decided by its own seed alone.
type FixedState = BuildHasherDefault<DefaultHasher>;
type KeyOfLane = (Lane, Arc<str>);

/// One event in memory.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) cargo: Result<Event, Undecodable>,
    pub(crate) lease: Lease,
    pub(crate) seq: Seq,
    pub(crate) attempts: u32,
    pub(crate) held: bool,
    pub(crate) source: Source,
    pub(crate) key: Option<Arc<str>>,
}

/// The outcome of one event on its way to the table.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    pub(crate) lease: Lease,
    pub(crate) settlement: Settlement,
}

/// What a worker is to do next.
pub(crate) enum Next {
    /// Send these; no route at all is an answer too.
    Send(Option<RouteId>, Vec<Item>),
    /// Nothing to send, until something changes or this moment comes.
    Wait(Option<Instant>),
}

/// What became of the wish to hand an event over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandOver {
    Reserved,
    Full,
    /// Somebody else's lane, in flight already, or shutting down: the table has it.
    LeftToClaim,
}

struct OwnedLane {
    lease: Lease,
    /// The local moment after which nothing is sent.
    deadline: Instant,
    position: Position,
    again: Vec<Seq>,
}

struct Tracked {
    source: Source,
    weight: usize,
}

pub(crate) struct Buffer {
    lanes: BTreeMap<Lane, OwnedLane>,
    first_deadline: Option<Instant>,
    hot: Lineup<Item>,
    cold: Lineup<Item>,
    /// Counts takes modulo three: two for hot, one for cold.
    turn: u8,
    /// Busy keys, with what waits behind them.
    keys: HashMap<KeyOfLane, VecDeque<Item>, FixedState>,
    tracked: BTreeMap<Seq, Tracked>,
    /// Places in the hot queue for events that are about to commit.
    reserved: BTreeMap<Seq, Item>,
    hot_count: usize,
    cold_count: usize,
    bytes: usize,
    /// A claim is under way. What is settled meanwhile lingers below until it has returned.
    claiming: bool,
    /// The last claim was not begun for want of room.
    starved: bool,
    /// A held key was freed: what is parked behind it can come back.
    returning: bool,
    /// When the next waiting event is due, as far as is known.
    due_at: Option<Instant>,
    settled_meanwhile: Vec<Seq>,
    held_meanwhile: HashSet<KeyOfLane, FixedState>,
    sending: usize,
    outcomes: Vec<Verdict>,
    outcomes_since: Option<Instant>,
    /// Outcomes that a settle under way writes.
    settling: usize,
    pub(crate) breakers: Vec<Breaker>,
    batch_max: Vec<usize>,
    pub(crate) accepting: bool,
}

impl Buffer {
    pub(crate) fn new(routes: &RouteTable) -> Self {
        let slots = routes.len() + 1;
        Self {
            lanes: BTreeMap::new(),
            first_deadline: None,
            hot: Lineup::new(slots),
            cold: Lineup::new(slots),
            turn: 0,
            keys: HashMap::default(),
            tracked: BTreeMap::new(),
            reserved: BTreeMap::new(),
            hot_count: 0,
            cold_count: 0,
            bytes: 0,
            claiming: false,
            starved: false,
            returning: false,
            due_at: None,
            settled_meanwhile: Vec::new(),
            held_meanwhile: HashSet::default(),
            sending: 0,
            outcomes: Vec::new(),
            outcomes_since: None,
            settling: 0,
            breakers: (0..slots).map(|_| Breaker::new()).collect(),
            batch_max: std::iter::once(1)
                .chain((0..routes.len()).filter_map(|id| routes.sink(id)).map(|sink| sink.traits().batch_max))
                .collect(),
            accepting: true,
        }
    }

    // ── lanes ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// A lease was taken.
    pub(crate) fn own(&mut self, lease: Lease, deadline: Instant) {
        self.lose(lease.lane);
        let position = Position::START;
        self.lanes.insert(lease.lane, OwnedLane { lease, deadline, position, again: Vec::new() });
        self.note_deadlines();
    }

    /// A lease was renewed. It may have been lost since the renewal was sent.
    pub(crate) fn extend(&mut self, lease: Lease, deadline: Instant) {
        if let Some(lane) = self.lanes.get_mut(&lease.lane).filter(|lane| lane.lease == lease) {
            lane.deadline = deadline;
        }
        self.note_deadlines();
    }

    fn note_deadlines(&mut self) {
        self.first_deadline = self.lanes.values().map(|lane| lane.deadline).min();
    }

    /// Whether a local deadline has passed. Lanes are renewed together, so nothing at all is sent then: what is queued
    /// waits until the renewal comes through or the lane is known to be lost.
    pub(crate) fn is_expired(&self, now: Instant) -> bool {
        self.first_deadline.is_some_and(|deadline| now >= deadline)
    }

    /// The lane is no longer ours: what is queued of it is forgotten. What is being sent stays tracked until it ends.
    pub(crate) fn lose(&mut self, lane: Lane) {
        if self.lanes.remove(&lane).is_none() {
            return;
        }
        self.note_deadlines();
        let reserved: Vec<Seq> =
            self.reserved.values().filter(|item| item.lease.lane == lane).map(|item| item.seq).collect();
        for seq in reserved {
            self.reserved.remove(&seq);
            self.untrack(seq);
        }
        let mut queued = self.hot.extract(|item| item.lease.lane != lane);
        queued.extend(self.cold.extract(|item| item.lease.lane != lane));
        for item in queued {
            self.untrack(item.seq);
            if let Some(key) = item.key {
                self.keys.remove(&(lane, key));
            }
        }
        let waiting: Vec<Seq> = self
            .keys
            .iter_mut()
            .filter(|((of, _), _)| *of == lane)
            .flat_map(|(_, followers)| followers.drain(..).map(|item| item.seq))
            .collect();
        waiting.into_iter().for_each(|seq| self.untrack(seq));
    }

    pub(crate) fn leases(&self) -> Vec<Lease> {
        self.lanes.values().map(|lane| lane.lease).collect()
    }

    pub(crate) fn lanes_owned(&self) -> usize {
        self.lanes.len()
    }

    // ── claim ────────────────────────────────────────────────────────────────────────────────────────────────────

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
        for lane in self.lanes.values_mut().filter(|lane| now < lane.deadline) {
            if from_bottom {
                lane.position = Position::START;
            }
            let again = std::mem::take(&mut lane.again);
            lanes.push(LaneClaim { lease: lane.lease, from: lane.position, again });
        }
        let lowest = lanes.iter().map(|lane| lane.from.seq).min()?;
        self.claiming = true;
        self.returning = false;
        let in_flight = self.tracked.range(lowest.saturating_add(1)..).map(|(&seq, _)| seq).collect();
        Some(Claim { lanes, in_flight, limit: room.min(settings.claim_batch), bytes })
    }

    /// Takes what a claim returned into the cold queue. Says how many events that were.
    pub(crate) fn take(
        &mut self,
        claim: &Claim,
        claimed: Claimed,
        routes: &RouteTable,
        ordering: KeyOrder,
    ) -> usize {
        for &lane in &claimed.lost {
            self.lose(lane);
        }
        // A lane that was lost, or lost and taken again, while the claim ran begins anew.
        let leases: BTreeMap<Lane, Lease> = claim
            .lanes
            .iter()
            .map(|lane| (lane.lease.lane, lane.lease))
            .filter(|(lane, lease)| self.lanes.get(lane).is_some_and(|owned| owned.lease == *lease))
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

    fn end_claim(&mut self) {
        self.claiming = false;
        self.held_meanwhile.clear();
        for seq in std::mem::take(&mut self.settled_meanwhile) {
            self.tracked.remove(&seq);
        }
    }

    fn look_again(&mut self, lane: Lane, seq: Seq) {
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

    // ── hot ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Reserves a place in the hot queue for an event that is about to commit. Claims pass it over from now on: otherwise
    /// one could deliver and settle it between the commit and the hand-over, which would then deliver it again.
    pub(crate) fn reserve(
        &mut self,
        event: &Event,
        placed: &Placed,
        settings: &Settings,
        now: Instant,
    ) -> HandOver {
        let lease = match self.lanes.get(&placed.lane) {
            Some(lane) if self.accepting && now < lane.deadline => lane.lease,
            _ => return HandOver::LeftToClaim,
        };
        if self.hot_count >= settings.hot_queue || self.bytes + event.weight_bytes() > settings.queue_bytes {
            return HandOver::Full;
        }
        let item = Item {
            cargo: Ok(event.clone()),
            lease,
            seq: placed.seq,
            attempts: 0,
            held: false,
            source: Source::Hot,
            key: None,
        };
        self.track(&item);
        self.reserved.insert(placed.seq, item);
        HandOver::Reserved
    }

    /// The event has committed: it lines up. False if its lane was lost meanwhile.
    pub(crate) fn hand_over(&mut self, seq: Seq, routes: &RouteTable) -> bool {
        let Some(item) = self.reserved.remove(&seq) else { return false };
        self.line_up(item, routes);
        true
    }

    /// Nobody knows whether the event has committed: the table does.
    pub(crate) fn cancel_reservation(&mut self, seq: Seq) {
        if let Some(item) = self.reserved.remove(&seq) {
            self.untrack(seq);
            self.look_again(item.lease.lane, seq);
        }
    }

    // ── queues ───────────────────────────────────────────────────────────────────────────────────────────────────

    fn track(&mut self, item: &Item) {
        let weight = item.cargo.as_ref().map_or(EVENT_FLAT_BYTES, Event::weight_bytes);
        match item.source {
            Source::Hot => self.hot_count += 1,
            Source::Cold => self.cold_count += 1,
        }
        self.bytes += weight;
        self.tracked.insert(item.seq, Tracked { source: item.source, weight });
    }

    fn enter(&mut self, item: Item, routes: &RouteTable) {
        self.track(&item);
        if let Some(key) = &item.key {
            match self.keys.entry((item.lease.lane, key.clone())) {
                std::collections::hash_map::Entry::Occupied(mut busy) => {
                    busy.get_mut().push_back(item);
                    return;
                }
                std::collections::hash_map::Entry::Vacant(free) => free.insert(VecDeque::new()),
            };
        }
        self.line_up(item, routes);
    }

    fn line_up(&mut self, item: Item, routes: &RouteTable) {
        let slot = item.cargo.as_ref().ok().and_then(|event| routes.find(event)).map_or(0, |route| route + 1);
        match item.source {
            Source::Hot => self.hot.push(slot, item),
            Source::Cold => self.cold.push(slot, item),
        }
    }

    /// What to send next: hot and cold in turn, two to one, routes in turn within each.
    pub(crate) fn next(&mut self, now: Instant) -> Next {
        if self.is_expired(now) {
            return Next::Wait(None);
        }
        let (breakers, batch_max) = (&self.breakers, &self.batch_max);
        let open = |slot: usize| breakers.get(slot).is_some_and(|breaker| breaker.lets_through(now));
        let most = |slot: usize| match breakers.get(slot) {
            Some(breaker) if breaker.is_closed() => batch_max.get(slot).copied().unwrap_or(1),
            _ => 1,
        };
        let hot_first = self.turn < 2;
        let (first, second) =
            if hot_first { (&mut self.hot, &mut self.cold) } else { (&mut self.cold, &mut self.hot) };
        let Some((slot, items)) = first.pop(open, most).or_else(|| second.pop(open, most)) else {
            return Next::Wait(self.breakers.iter().filter_map(|breaker| breaker.opens_at(now)).min());
        };
        self.turn = (self.turn + 1) % 3;
        self.sending += items.len();
        if let Some(breaker) = self.breakers.get_mut(slot) {
            breaker.sending();
        }
        Next::Send(slot.checked_sub(1), items)
    }

    /// Whether anything can be sent now.
    pub(crate) fn has_work(&self, now: Instant) -> bool {
        let open = |slot: usize| self.breakers.get(slot).is_some_and(|breaker| breaker.lets_through(now));
        !self.is_expired(now) && (self.hot.has(open) || self.cold.has(open))
    }

    // ── outcomes ─────────────────────────────────────────────────────────────────────────────────────────────────

    /// Events were sent, and this is what became of them.
    pub(crate) fn finish(&mut self, verdicts: impl IntoIterator<Item = Verdict>, now: Instant) {
        for verdict in verdicts {
            self.sending = self.sending.saturating_sub(1);
            self.outcomes.push(verdict);
        }
        self.outcomes_since.get_or_insert(now);
    }

    /// When outcomes are to be settled: at once if there are many or nothing else is under way, else soon.
    pub(crate) fn settle_at(&self, settings: &Settings, now: Instant) -> Option<Instant> {
        let since = self.outcomes_since?;
        let many = self.outcomes.len() >= settings.settle_batch;
        Some(if many || (self.sending == 0 && !self.has_work(now)) {
            now
        } else {
            since + settings.settle_after
        })
    }

    /// Takes outcomes to settle. Those of a lane that was lost meanwhile are dropped here; the second value says how
    /// many.
    pub(crate) fn take_outcomes(&mut self, most: usize) -> (Vec<Verdict>, u64) {
        let count = self.outcomes.len().min(most);
        let taken: Vec<Verdict> = self.outcomes.drain(..count).collect();
        if self.outcomes.is_empty() {
            self.outcomes_since = None;
        }
        let (held, dropped) = self.still_held(taken);
        self.settling = held.len();
        (held, dropped)
    }

    /// The settle under way has come to its end.
    pub(crate) fn end_settle(&mut self) {
        self.settling = 0;
    }

    /// Parts verdicts into those whose lease still holds as far as we know, and a number of dropped ones.
    pub(crate) fn still_held(&mut self, verdicts: Vec<Verdict>) -> (Vec<Verdict>, u64) {
        let (held, dropped): (Vec<Verdict>, Vec<Verdict>) = verdicts.into_iter().partition(|verdict| {
            self.lanes.get(&verdict.lease.lane).is_some_and(|lane| lane.lease == verdict.lease)
        });
        let count = dropped.len() as u64;
        for verdict in dropped {
            // If the lane was taken anew, the event is pending under the new lease and nobody else will look at it.
            self.look_again(verdict.settlement.lane, verdict.settlement.seq);
            self.leave(&verdict.settlement);
            self.give_back_followers(&verdict.settlement);
        }
        (held, count)
    }

    /// A settle was committed: keys move on, or their followers are given back to wait in the table.
    pub(crate) fn committed(&mut self, settlement: &Settlement, routes: &RouteTable) {
        self.leave(settlement);
        match settlement.change {
            Change::Done | Change::Dead { block: false, .. } => self.free(settlement, routes),
            Change::Wait { .. } | Change::Dead { block: true, .. } => self.give_back_followers(settlement),
        }
    }

    /// The next event of the key lines up.
    fn free(&mut self, settlement: &Settlement, routes: &RouteTable) {
        let Some(key) = &settlement.key else { return };
        let place = (settlement.lane, key.clone());
        let Some(followers) = self.keys.get_mut(&place) else { return };
        match followers.pop_front() {
            Some(next) => self.line_up(next, routes),
            None => {
                self.keys.remove(&place);
                self.returning |= settlement.held;
            }
        }
    }

    /// The key waits in the table from now on: a later claim meets its followers there and parks them.
    fn give_back_followers(&mut self, settlement: &Settlement) {
        let Some(key) = &settlement.key else { return };
        let place = (settlement.lane, key.clone());
        for follower in self.keys.remove(&place).unwrap_or_default() {
            self.look_again(follower.lease.lane, follower.seq);
            self.untrack(follower.seq);
        }
        if self.claiming {
            // The claim under way may not have seen the hold, and may bring followers along.
            self.held_meanwhile.insert(place);
        }
    }

    fn leave(&mut self, settlement: &Settlement) {
        if self.claiming {
            self.uncount(settlement.seq);
            self.settled_meanwhile.push(settlement.seq);
        } else {
            self.untrack(settlement.seq);
        }
    }

    fn untrack(&mut self, seq: Seq) {
        self.uncount(seq);
        self.tracked.remove(&seq);
    }

    /// Takes an event out of the counts while it may stay tracked. Counting out twice does nothing.
    fn uncount(&mut self, seq: Seq) {
        let Some(tracked) = self.tracked.get_mut(&seq).filter(|tracked| tracked.weight > 0) else { return };
        self.bytes = self.bytes.saturating_sub(std::mem::take(&mut tracked.weight));
        let count = match tracked.source {
            Source::Hot => &mut self.hot_count,
            Source::Cold => &mut self.cold_count,
        };
        *count = count.saturating_sub(1);
    }

    // ── end ──────────────────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn depths(&self) -> (usize, usize) {
        (self.hot_count, self.cold_count)
    }

    pub(crate) fn sending(&self) -> usize {
        self.sending
    }

    /// Whether outcomes wait to be settled, or are being settled.
    pub(crate) fn has_outcomes(&self) -> bool {
        !self.outcomes.is_empty() || self.settling > 0
    }

    /// Nothing is being sent, nothing is to be settled, and nothing can be sent.
    pub(crate) fn is_drained(&self, now: Instant) -> bool {
        self.sending == 0 && !self.has_outcomes() && !self.has_work(now)
    }

    /// Nothing is in memory.
    pub(crate) fn is_empty(&self) -> bool {
        self.tracked.is_empty()
    }

    /// Forgets what is queued, without an attempt counted; says how many events that were.
    pub(crate) fn give_back(&mut self) -> usize {
        let queued = self.hot.extract(|_| false).len() + self.cold.extract(|_| false).len();
        let waiting: usize = self.keys.values_mut().map(|followers| followers.drain(..).count()).sum();
        queued + waiting
    }

    /// The age of an event at the time of its claim.
    pub(crate) fn oldest(claimed: &Claimed) -> Option<Timestamp> {
        claimed.events.iter().map(|event| event.created_at).min()
    }
}
