//! Plans claims: which rows a claim skips, and which backlog is read next.

use postrider_core::store::Admission;

use super::{
    admission::{AdmissionState, ClaimAdmission},
    backlog::LaneCursors,
    backlog_cursor::BacklogCursor,
    backlog_id::BacklogId,
    gate::Gate,
    probes::Probes,
    *,
};

/// A claim to run.
pub(crate) struct ClaimPlan {
    pub(crate) claim: Claim,
    admission: Option<Arc<ClaimAdmission>>,
    /// The backlog that it reads; none for the lanes' own positions.
    pub(super) backlog: Option<BacklogId>,
}

impl ClaimPlan {
    /// Returns the lease under which a lane is claimed.
    pub(super) fn lease(&self, lane: Lane) -> Option<Lease> {
        self.claim.lanes.iter().map(|claim| claim.lease).find(|lease| lease.lane == lane)
    }

    /// Whether it reads a backlog.
    pub(crate) fn is_backlog(&self) -> bool {
        self.backlog.is_some()
    }

    /// Turns claimed events into items.
    pub(crate) fn items(
        &self,
        events: Vec<ClaimedEvent>,
        routes: &RouteTable,
        ordering: KeyOrder,
    ) -> Vec<Item> {
        let leases: BTreeMap<Lane, Lease> =
            self.claim.lanes.iter().map(|claim| (claim.lease.lane, claim.lease)).collect();
        let mut items = Vec::with_capacity(events.len());
        // Names and keys may not be in the processor's cache. A tight loop lets it fetch several at once.
        let slots: Vec<RouteSlot> = events.iter().map(|event| slot_of(&event.event, routes)).collect();
        let numbers: Vec<Option<u64>> =
            events.iter().map(|event| Some(hash::of_key(key_of(&event.event)?))).collect();
        let mut lease: Option<Lease> = None;
        for ((event, slot), number) in events.into_iter().zip(slots).zip(numbers) {
            // Usually the lease of the event before.
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

    /// Whether the next claim begins further on.
    pub(crate) fn got_on(&self, claimed: &Claimed) -> bool {
        self.claim.lanes.iter().any(|lane| {
            let reached = claimed.positions.iter().find(|(number, _)| *number == lane.lease.lane);
            reached.is_some_and(|(number, reached)| {
                // A scan of a backlog begins again at what it refused.
                let left = self.backlog.is_some() && self.refused(*number).is_some();
                reached.got_on_from(&lane.from) && !left
            })
        })
    }

    /// Whether all rows to recheck are those that this claim was asked to recheck.
    pub(crate) fn brought_nothing_new(&self, claimed: &Claimed) -> bool {
        let was_asked = |(number, seq): &(Lane, Seq)| {
            let lane = self.claim.lanes.iter().find(|lane| lane.lease.lane == *number);
            lane.is_some_and(|lane| lane.again.binary_search(seq).is_ok())
        };
        claimed.events.is_empty() && !claimed.again.is_empty() && claimed.again.iter().all(was_asked)
    }

    /// Whether the scan leaves out what was tried before in this lane.
    pub(super) fn skipped(&self, lane: Lane) -> bool {
        self.admission.as_ref().is_some_and(|admission| admission.leaves_out(lane))
    }

    /// Returns where the scan refused an event again, in this lane.
    pub(super) fn refused(&self, lane: Lane) -> Option<BacklogCursor> {
        self.admission.as_ref()?.refused(lane)
    }

    /// Takes the rechecked rows that only the lanes' own claims may bring.
    pub(super) fn left_to_lanes(&self) -> Vec<(Lane, Seq)> {
        self.admission.as_ref().map(|admission| admission.take_left_to_lanes()).unwrap_or_default()
    }
}

/// Returns the slot of a claimed row. Rows that are no events have the slot without a route.
fn slot_of(content: &Result<Event, Undecodable>, routes: &RouteTable) -> RouteSlot {
    content.as_ref().map_or(RouteSlot::default(), |event| super::slot_of(event, routes))
}

fn key_of(content: &Result<Event, Undecodable>) -> Option<&Arc<str>> {
    match content {
        Ok(event) => event.shared_key(),
        Err(row) => row.key.as_ref(),
    }
}

impl Buffer {
    /// Returns how many events of a route may be in memory now.
    fn limit_of(&self, slot: RouteSlot, settings: &Settings) -> usize {
        if !self.receivers.is_up(slot) {
            self.receivers.probes()
        } else if self.claim_room.is_shared() {
            // One share more than there are active routes, for the next one.
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
        let count = match self.gate_of_route(slot) {
            Gate::Stopped => return 0,
            Gate::Down => self.count_of_receiver(slot),
            _ => self.in_flight.of_route(slot),
        };
        self.limit_of(slot, settings).saturating_sub(count)
    }

    /// Returns how many events are in memory for the receiver of a route.
    pub(super) fn count_of_receiver(&self, slot: RouteSlot) -> usize {
        self.receivers.slots_beside(slot).map(|slot| self.in_flight.of_route(slot)).sum()
    }

    /// Whether claims must decide row by row.
    pub(super) fn skips_rows(&self) -> bool {
        self.claim_room.is_shared()
            || self.postponed.stops_any()
            || !self.receivers.are_all_up()
            || !self.pauses.is_empty()
            || !lock(&self.backlogs).is_empty()
    }

    /// Returns the backlog to read next: a route with room for half of its limit, or a pause that has ended.
    pub(super) fn next_backlog(&self, settings: &Settings) -> Option<BacklogId> {
        if mutations::active(Mutation::BacklogUnread) {
            return None;
        }
        // The limits lock the backlogs themselves, so the lock must be free here.
        self.backlogs_to_read(self.claims.last_backlog()).into_iter().find(|id| {
            let Some(slot) = id.route() else {
                return !self.pauses.holds(*id) && !self.waits_for_its_keys(*id);
            };
            let limit = self.limit_of(slot, settings).min(settings.cold_queue);
            self.room_of(slot, settings) >= limit.div_ceil(2)
        })
    }

    /// Returns the room that is kept for routes that come while another one fills memory.
    pub(super) fn reserve_of(&self, settings: &Settings) -> usize {
        if self.claim_room.is_shared() || !self.has_several_routes() { 0 } else { settings.cold_queue / 4 }
    }

    /// Stops sharing once memory has drained and no route that is up has a backlog.
    pub(super) fn end_sharing(&mut self) {
        let backlogs = lock(&self.backlogs);
        if !backlogs.ids().any(|id| id.route().is_some_and(|slot| self.receivers.is_up(slot))) {
            self.claim_room.end_sharing();
        }
    }

    /// Returns the lanes in which a claim leaves out what was tried in vain.
    fn skipped_lanes(&self, id: BacklogId, claim: &Claim) -> BTreeSet<Lane> {
        let backlogs = lock(&self.backlogs);
        let lanes = claim.lanes.iter().map(|lane| (lane.lease.lane, lane.from));
        lanes.filter(|(lane, from)| backlogs.skips_from(id, *lane, *from)).map(|(lane, _)| lane).collect()
    }

    /// Whether this is the backlog of a receiver that is down.
    pub(super) fn is_down(&self, id: BacklogId) -> bool {
        id.route().is_some_and(|slot| !self.receivers.is_up(slot))
    }

    /// Whether the scan of a backlog looks for a single event to try.
    fn looks_for_one(&self, id: BacklogId) -> bool {
        self.is_down(id) && lock(&self.backlogs).probes(id).is_some_and(Probes::looks_for_one)
    }

    /// Plans a claim of these lanes.
    pub(super) fn plan(
        &self,
        mut claim: Claim,
        backlog: Option<BacklogId>,
        settings: &Settings,
        routes: &Arc<RouteTable>,
    ) -> ClaimPlan {
        let start = claim.lanes.iter().map(|lane| (lane.lease.lane, lane.from.seq)).collect();
        let scanned = claim.lanes.iter().filter(|_| backlog.is_some());
        let recheck = scanned.flat_map(|lane| lane.again.iter().copied()).collect();
        let skipped = backlog.map_or_else(BTreeSet::new, |slot| self.skipped_lanes(slot, &claim));
        let one = backlog.filter(|slot| self.looks_for_one(*slot));
        let room = |slot: RouteSlot| if one == Some(slot.into()) { 1 } else { usize::MAX };
        let admission = self.skips_rows().then(|| {
            let slots = || self.in_flight.by_route().map(|(slot, _)| slot);
            let state = AdmissionState {
                room: slots().map(|slot| self.room_of(slot, settings).min(room(slot))).collect(),
                down: slots().filter(|slot| !self.receivers.is_up(*slot)).collect(),
                scanned: backlog,
                start,
                skipped,
                refused: LaneCursors::new(),
                refused_keys: BTreeMap::new(),
                long_keys: self.long_key_room(backlog),
                recheck,
                left_to_lanes: Vec::new(),
                met: self.lanes.iter().map(|(lane, owned)| (*lane, owned.position.seq)).collect(),
            };
            let keyed = settings.key_order == KeyOrder::Kept;
            let (routes, backlogs) = (routes.clone(), self.backlogs.clone());
            Arc::new(ClaimAdmission::new(routes, state, backlogs, self.pauses.shared(), keyed))
        });
        claim.admission = admission.clone().map(|admission| admission as Arc<dyn Admission>);
        ClaimPlan { claim, admission, backlog }
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::store::RowSummary;

    use super::*;
    use crate::Routes;

    #[test]
    fn a_backlog_is_found_while_routes_share_memory() {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        // On a thread of its own: a deadlock would wait for ever.
        std::thread::spawn(move || {
            let routes = Routes::new().on("A", async |_| ()).on("B", async |_| ()).build().unwrap();
            let settings = Settings::default();
            let mut buffer = Buffer::new(&routes, &settings);
            buffer.claim_room.share();
            let row =
                RowSummary { lane: 0, seq: 1, event_type: "A", aggregate_type: "", key: None, due_at: None };
            lock(&buffer.backlogs).note_probe(RouteSlot::at(1).into(), row.lane, row.seq, None);
            sender.send(buffer.next_backlog(&settings)).unwrap();
        });
        assert_eq!(receiver.recv_timeout(Duration::from_secs(10)), Ok(Some(RouteSlot::at(1).into())));
    }
}
