//! Which events a claim is to leave in the table, and whose backlog is read next.

use super::{
    backlog::{AdmissionState, Owner},
    backlog_cursor::BacklogCursor,
    backlog_id::BacklogId,
    pauses::{EventAttributes, Pauses},
    probes::Probes,
    *,
};
use postrider_core::store::{Admission, Glance};

/// A claim that is to be made.
pub(crate) struct ClaimPlan {
    pub(crate) claim: Claim,
    except: Option<Arc<ClaimAdmission>>,
    /// The slot whose backlog is walked; none for the lanes' own positions.
    pub(super) backlog: Option<BacklogId>,
}

impl ClaimPlan {
    /// The lease that a lane is claimed under.
    pub(super) fn lease(&self, lane: Lane) -> Option<Lease> {
        self.claim.lanes.iter().map(|claim| claim.lease).find(|lease| lease.lane == lane)
    }

    /// Whether a backlog is walked, and not the lanes' own positions.
    pub(crate) fn is_backlog(&self) -> bool {
        self.backlog.is_some()
    }

    /// What the claim returned, as it lies in memory.
    pub(crate) fn items(
        &self,
        events: Vec<ClaimedEvent>,
        routes: &RouteTable,
        ordering: KeyOrder,
    ) -> Vec<Item> {
        let leases: BTreeMap<Lane, Lease> =
            self.claim.lanes.iter().map(|claim| (claim.lease.lane, claim.lease)).collect();
        let mut items = Vec::with_capacity(events.len());
        // Names and keys may be far from the processor. It fetches several of them at once if little else is done in between.
        let slots: Vec<RouteSlot> = events.iter().map(|event| slot_of(&event.event, routes)).collect();
        let numbers: Vec<Option<u64>> =
            events.iter().map(|event| Some(hash::of_key(key_of(&event.event)?))).collect();
        let mut lease: Option<Lease> = None;
        for ((event, slot), number) in events.into_iter().zip(slots).zip(numbers) {
            // Mostly that of the one before.
            if lease.is_none_or(|lease| lease.lane != event.lane) {
                lease = leases.get(&event.lane).copied();
            }
            let Some(lease) = lease else { continue };
            let key = key_of(&event.event).filter(|_| ordering == KeyOrder::Kept || event.held).cloned();
            items.push(Item {
                destination: event
                    .event
                    .as_ref()
                    .ok()
                    .and_then(|event| super::destination_of(event, slot, routes)),
                batched_with_head: false,
                failed: false,
                only_deferred: false,
                isolation: Isolation::Mixed,
                weight_bytes: event.event.as_ref().map_or(EVENT_FLAT_BYTES, Event::weight_bytes),
                key_number: number.filter(|_| key.is_some()).unwrap_or_else(|| hash::of_seq(event.seq)),
                content: event.event.map_err(Box::new),
                lease,
                seq: event.seq,
                attempts: event.attempts,
                held: event.held,
                source: Source::Cold,
                key,
                slot,
            });
        }
        items
    }

    /// Whether the next claim will begin further on.
    pub(crate) fn got_on(&self, claimed: &Claimed) -> bool {
        self.claim.lanes.iter().any(|lane| {
            let reached = claimed.positions.iter().find(|(number, _)| *number == lane.lease.lane);
            reached.is_some_and(|(number, reached)| {
                // What had to be left is where a walk over a backlog begins again.
                let left = self.backlog.is_some() && self.refused(*number).is_some();
                reached.got_on_from(&lane.from) && !left
            })
        })
    }

    /// Whether all that is to be looked at again is what this claim was to look at again.
    pub(crate) fn brought_nothing_new(&self, claimed: &Claimed) -> bool {
        let was_asked = |(number, seq): &(Lane, Seq)| {
            let lane = self.claim.lanes.iter().find(|lane| lane.lease.lane == *number);
            lane.is_some_and(|lane| lane.again.binary_search(seq).is_ok())
        };
        claimed.events.is_empty() && !claimed.again.is_empty() && claimed.again.iter().all(was_asked)
    }

    /// Whether the walk leaves out what was tried before in this lane.
    pub(super) fn skipped(&self, lane: Lane) -> bool {
        self.except.as_ref().is_some_and(|except| lock(&except.state).skipped.contains(&lane))
    }

    /// Where the walk had to leave something once more, in this lane.
    pub(super) fn refused(&self, lane: Lane) -> Option<BacklogCursor> {
        lock(&self.except.as_ref()?.state).refused.get(&lane).copied()
    }

    /// What was let go and the walk has met, but is for the lanes' own claims to bring.
    pub(super) fn left_to_others(&self) -> Vec<(Lane, Seq)> {
        self.except.as_ref().map(|except| std::mem::take(&mut lock(&except.state).others)).unwrap_or_default()
    }
}

/// The slot of what was claimed; the first if nobody wants it, or if the row is none.
fn slot_of(content: &Result<Event, Undecodable>, routes: &RouteTable) -> RouteSlot {
    content.as_ref().map_or(RouteSlot::default(), |event| super::slot_of(event, routes))
}

fn key_of(content: &Result<Event, Undecodable>) -> Option<&Arc<str>> {
    match content {
        Ok(event) => event.shared_key(),
        Err(row) => row.key.as_ref(),
    }
}

/// Asked by the store for every row.
struct ClaimAdmission {
    routes: Arc<RouteTable>,
    state: Mutex<AdmissionState>,
    backlogs: Arc<Mutex<Backlogs>>,
    pauses: Arc<Pauses>,
    keyed: bool,
}

impl std::fmt::Debug for ClaimAdmission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Except").field(&*lock(&self.state)).finish()
    }
}

impl Admission for ClaimAdmission {
    fn admits(&self, row: &Glance<'_>) -> bool {
        let route = self.routes.find_by_name(row.event_type, row.aggregate_type);
        let slot = RouteSlot::of(route);
        let mut state = lock(&self.state);
        let whose = if self.pauses.is_empty() {
            slot.into()
        } else {
            let receiver = ReceiverSlot::of(route.and_then(|route| self.routes.receiver(route)));
            let attributes = EventAttributes { event_type: Some(row.event_type), key: row.key, receiver };
            let resumed = state.only.is_some_and(|only| self.pauses.fits(only, attributes));
            Owner { slot, paused: self.pauses.of(attributes), resumed }
        };
        state.admits(&mut lock(&self.backlogs), whose, row, self.keyed)
    }
}

impl Buffer {
    /// Most events of a slot that may be in memory now.
    fn limit_of(&self, slot: RouteSlot, settings: &Settings) -> usize {
        if !self.receivers.is_up(slot) {
            self.receivers.probes()
        } else if self.claim_room.is_shared() {
            // One share more than there are slots, for those that come next.
            settings.cold_queue / (self.active_slots() + 1)
        } else {
            usize::MAX
        }
        .max(1)
    }

    fn active_slots(&self) -> usize {
        let backlogs = lock(&self.backlogs);
        let active = |(slot, count): &(RouteSlot, usize)| {
            self.receivers.is_up(*slot) && (*count > 0 || backlogs.has((*slot).into()))
        };
        self.in_flight.by_route().filter(active).count()
    }

    fn room_of(&self, slot: RouteSlot, settings: &Settings) -> usize {
        if self.postponed.stops(slot) {
            return 0;
        }
        let up = self.receivers.is_up(slot);
        let count = if up { self.in_flight.of_route(slot) } else { self.count_of_receiver(slot) };
        self.limit_of(slot, settings).saturating_sub(count)
    }

    /// How many events are in memory for the receiver of this slot.
    pub(super) fn count_of_receiver(&self, slot: RouteSlot) -> usize {
        self.receivers.slots_beside(slot).map(|slot| self.in_flight.of_route(slot)).sum()
    }

    /// Whether claims have to ask what is wanted.
    pub(super) fn has_exceptions(&self) -> bool {
        self.claim_room.is_shared()
            || self.postponed.stops_any()
            || !self.receivers.are_all_up()
            || !self.pauses.is_empty()
            || !lock(&self.backlogs).is_empty()
    }

    /// The slot whose backlog is read next: one with room for half of what it may have, or a pause that has ended.
    pub(super) fn next_backlog(&self, settings: &Settings) -> Option<BacklogId> {
        if mutations::active(Mutation::BacklogUnread) {
            return None;
        }
        // The limits ask who is behind, so the lock must be free by then.
        self.slots_to_read(self.claims.last_backlog()).into_iter().find(|id| {
            let Some(slot) = id.route() else {
                return !self.pauses.holds(*id) && !self.waits_for_its_keys(*id);
            };
            let limit = self.limit_of(slot, settings).min(settings.cold_queue);
            self.room_of(slot, settings) >= limit.div_ceil(2)
        })
    }

    /// Room that only those may have who come while memory is full of somebody else's.
    pub(super) fn reserve_of(&self, settings: &Settings) -> usize {
        if self.claim_room.is_shared() || !self.has_several_routes() { 0 } else { settings.cold_queue / 4 }
    }

    /// Memory has drained: no need for shares any more, once nobody is behind for want of room.
    pub(super) fn end_sharing(&mut self) {
        let backlogs = lock(&self.backlogs);
        if !backlogs.slots().any(|id| id.route().is_some_and(|slot| self.receivers.is_up(slot))) {
            self.claim_room.end_sharing();
        }
    }

    /// The lanes in which a claim leaves out what was tried in vain.
    fn skipped_lanes(&self, slot: BacklogId, claim: &Claim) -> BTreeSet<Lane> {
        let backlogs = lock(&self.backlogs);
        let lanes = claim.lanes.iter().map(|lane| (lane.lease.lane, lane.from));
        lanes.filter(|(lane, from)| backlogs.skips_from(slot, *lane, *from)).map(|(lane, _)| lane).collect()
    }

    /// Whether a backlog is that of a receiver which is down.
    pub(super) fn is_down(&self, id: BacklogId) -> bool {
        id.route().is_some_and(|slot| !self.receivers.is_up(slot))
    }

    /// Whether a walk over a backlog looks for one event to try.
    fn looks_for_one(&self, slot: BacklogId) -> bool {
        self.is_down(slot) && lock(&self.backlogs).probes(slot).is_some_and(Probes::looks_for_one)
    }

    /// A claim of these lanes, and what it is to leave.
    pub(super) fn plan(
        &self,
        mut claim: Claim,
        backlog: Option<BacklogId>,
        settings: &Settings,
        routes: &Arc<RouteTable>,
    ) -> ClaimPlan {
        let start = claim.lanes.iter().map(|lane| (lane.lease.lane, lane.from.seq)).collect();
        let walked = claim.lanes.iter().filter(|_| backlog.is_some());
        let again = walked.flat_map(|lane| lane.again.iter().copied()).collect();
        let skipped = backlog.map_or_else(BTreeSet::new, |slot| self.skipped_lanes(slot, &claim));
        let one = backlog.filter(|slot| self.looks_for_one(*slot));
        let room = |slot: RouteSlot| if one == Some(slot.into()) { 1 } else { usize::MAX };
        let except = self.has_exceptions().then(|| {
            let slots = || self.in_flight.by_route().map(|(slot, _)| slot);
            Arc::new(ClaimAdmission {
                routes: routes.clone(),
                state: Mutex::new(AdmissionState {
                    room: slots().map(|slot| self.room_of(slot, settings).min(room(slot))).collect(),
                    down: slots().filter(|slot| !self.receivers.is_up(*slot)).collect(),
                    only: backlog,
                    start,
                    skipped,
                    refused: BTreeMap::new(),
                    left: BTreeMap::new(),
                    crowded: self.crowded(backlog),
                    again,
                    others: Vec::new(),
                    met: self.lanes.iter().map(|(lane, owned)| (*lane, owned.position.seq)).collect(),
                }),
                backlogs: self.backlogs.clone(),
                pauses: self.pauses.shared(),
                keyed: settings.key_order == KeyOrder::Kept,
            })
        });
        claim.admission = except.clone().map(|except| except as Arc<dyn Admission>);
        ClaimPlan { claim, except, backlog }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Routes;

    #[test]
    fn a_backlog_is_looked_for_while_slots_have_shares() {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        // On a thread of its own: what this is about would wait for ever.
        std::thread::spawn(move || {
            let routes = Routes::new().on("A", async |_| ()).on("B", async |_| ()).build().unwrap();
            let settings = Settings::default();
            let mut buffer = Buffer::new(&routes, &settings);
            buffer.claim_room.share();
            let row =
                Glance { lane: 0, seq: 1, event_type: "A", aggregate_type: "", key: None, due_at: None };
            lock(&buffer.backlogs).note_probe(RouteSlot::at(1).into(), row.lane, row.seq, None);
            sender.send(buffer.next_backlog(&settings)).unwrap();
        });
        assert_eq!(receiver.recv_timeout(Duration::from_secs(10)), Ok(Some(RouteSlot::at(1).into())));
    }
}
