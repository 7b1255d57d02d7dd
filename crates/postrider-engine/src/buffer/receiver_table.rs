//! Owns the receivers, the pace of each route, and the workers that handlers share.

use postrider_core::SinkTraits;
use tokio::time::Instant;

use super::route_pace::RoutePace;
use crate::{
    receiver::Receiver,
    routes::{ReceiverId, RouteTable},
    settings::Settings,
    slots::{ReceiverSlot, RouteSlot},
};

/// Most events in memory for a receiver that is down. They have several keys and are tried in turn, so that one
/// refused event is not all it is ever asked for.
const PROBES_MAX: usize = 8;

/// Who receives what.
pub(super) struct ReceiverTable {
    receivers: Vec<Receiver>,
    /// The receiver of each route.
    of_slot: Vec<ReceiverSlot>,
    /// The pace of each route.
    paces: Vec<RoutePace>,
    /// Whether a route waits for a destination to have room again.
    saturated: bool,
    /// Workers that handlers in this process share, how many of them are busy, and how many one route may have.
    workers: usize,
    handlers_busy: usize,
    workers_of_slot: usize,
    /// Most events in memory for a receiver that is down.
    probes: usize,
}

impl ReceiverTable {
    pub(super) fn new(routes: &RouteTable, settings: &Settings) -> Self {
        let receivers: Vec<Receiver> = std::iter::once(SinkTraits::HANDLER)
            .chain((0..routes.receivers()).map(|id| routes.traits(id)))
            .map(Receiver::new)
            .collect();
        let of_slot: Vec<ReceiverSlot> = std::iter::once(None)
            .chain((0..routes.len()).map(|route| routes.receiver(route)))
            .map(ReceiverSlot::of)
            .collect();
        let paces = std::iter::once(None)
            .chain((0..routes.len()).map(|route| routes.settings(Some(route))))
            .map(RoutePace::of)
            .collect();
        let of_handlers =
            |slot: &&ReceiverSlot| receivers.get(slot.index()).is_some_and(Receiver::is_in_process);
        // A handler that hangs must not take the last worker from the others.
        let others = of_slot.iter().skip(1).filter(of_handlers).count() > 1;
        Self {
            // All receivers may be down at once, and other events need room.
            probes: (settings.cold_queue / 4 / receivers.len().max(1)).clamp(1, PROBES_MAX),
            receivers,
            of_slot,
            paces,
            saturated: false,
            workers: settings.workers,
            handlers_busy: 0,
            workers_of_slot: settings.workers - usize::from(others && settings.workers > 1),
        }
    }

    /// The receiver of a route.
    pub(super) fn get(&self, slot: RouteSlot) -> Option<&Receiver> {
        self.receivers.get(self.of_slot.get(slot.index())?.index())
    }

    pub(super) fn get_mut(&mut self, slot: RouteSlot) -> Option<&mut Receiver> {
        self.receivers.get_mut(self.of_slot.get(slot.index())?.index())
    }

    /// The receiver in this place.
    pub(super) fn at(&self, receiver: ReceiverSlot) -> Option<&Receiver> {
        self.receivers.get(receiver.index())
    }

    /// The place of a route's receiver.
    pub(super) fn of(&self, slot: RouteSlot) -> ReceiverSlot {
        self.of_slot.get(slot.index()).copied().unwrap_or_default()
    }

    /// The receivers of all routes with their identities.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ReceiverId, &mut Receiver)> {
        self.receivers.iter_mut().skip(1).enumerate()
    }

    /// All routes that go to the receiver of this one.
    pub(super) fn slots_beside(&self, slot: RouteSlot) -> impl Iterator<Item = RouteSlot> {
        let receiver = self.of(slot);
        let beside = self.of_slot.iter().enumerate().filter(move |(_, of)| **of == receiver);
        beside.map(|(index, _)| RouteSlot::at(index))
    }

    /// Whether the receiver of a route is up.
    pub(super) fn is_up(&self, slot: RouteSlot) -> bool {
        self.get(slot).is_some_and(Receiver::is_up)
    }

    /// Whether this receiver is up. Without one: whether events without a route can be handled.
    pub(super) fn is_receiver_up(&self, receiver: Option<ReceiverId>) -> bool {
        self.at(ReceiverSlot::of(receiver)).is_none_or(Receiver::is_up)
    }

    pub(super) fn are_all_up(&self) -> bool {
        self.receivers.iter().all(Receiver::is_up)
    }

    /// Whether something of a route may be sent now, and a worker is free for it.
    pub(super) fn is_open(&self, slot: RouteSlot, now: Instant) -> bool {
        self.get(slot).is_some_and(|receiver| {
            receiver.lets_through(now)
                && self.paces.get(slot.index()).is_none_or(|pace| pace.lets_through(now))
                && if receiver.is_in_process() {
                    self.handlers_busy < self.workers && receiver.busy < self.workers_of_slot
                } else {
                    receiver.busy < receiver.concurrent(now).unwrap_or(self.workers)
                }
        })
    }

    /// Returns when the first receiver or route opens that is closed now.
    pub(super) fn next_opening(&self, now: Instant) -> Option<Instant> {
        let receivers = self
            .receivers
            .iter()
            .flat_map(|receiver| receiver.opens_at(now).into_iter().chain(receiver.next_slow_at(now)));
        receivers.chain(self.paces.iter().filter_map(|pace| pace.opens_at(now))).min()
    }

    /// Most events in one batch of a route, by its settings.
    pub(super) fn batch_max(&self, slot: RouteSlot) -> usize {
        self.paces.get(slot.index()).map_or(1, |pace| pace.batch_max)
    }

    /// Records that a batch of this many events is about to be sent.
    pub(super) fn spaced(&mut self, slot: RouteSlot, events: usize, now: Instant) {
        self.paces.get_mut(slot.index()).into_iter().for_each(|pace| pace.sending(now));
        self.get_mut(slot).into_iter().for_each(|receiver| receiver.spaced(events, now));
    }

    /// Takes a worker to send to the receiver of a route.
    pub(super) fn take_worker(&mut self, slot: RouteSlot) {
        self.handlers_busy += usize::from(self.get(slot).is_some_and(Receiver::is_in_process));
    }

    /// Frees the worker.
    pub(super) fn free_worker(&mut self, slot: RouteSlot) {
        let in_process = self.get(slot).is_some_and(Receiver::is_in_process);
        self.handlers_busy = self.handlers_busy.saturating_sub(usize::from(in_process));
    }

    /// Records that ready events of a route find no room beside other destinations, until this moment or until
    /// a send ends.
    pub(super) fn saturate(&mut self, slot: RouteSlot, until: Option<Instant>) {
        self.paces.get_mut(slot.index()).into_iter().for_each(|pace| pace.set_saturated(until));
        self.saturated |= until.is_some();
    }

    /// Records that a send to the receiver of a route has ended. Returns whether events waited for that.
    pub(super) fn make_room(&mut self, slot: RouteSlot) -> bool {
        if !std::mem::take(&mut self.saturated) {
            return false;
        }
        let receiver = self.of(slot);
        let same = self.of_slot.iter().zip(&mut self.paces).filter(|(other, _)| **other == receiver);
        same.for_each(|(_, pace)| pace.set_saturated(None));
        self.saturated = self.paces.iter().any(RoutePace::is_saturated);
        true
    }

    /// Workers that handlers in this process share.
    pub(super) fn workers(&self) -> usize {
        self.workers
    }

    /// Most events in memory for a receiver that is down.
    pub(super) fn probes(&self) -> usize {
        self.probes
    }

    /// Forgets the state of all receivers.
    pub(super) fn reset(&mut self) {
        self.handlers_busy = 0;
        self.receivers.iter_mut().for_each(Receiver::reset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Routes;

    #[test]
    fn one_route_never_has_the_last_worker_where_handlers_share() {
        let routes = Routes::new().on("A", async |_| ()).on("B", async |_| ()).build().unwrap();
        let settings = Settings { workers: 2, ..Settings::default() };
        let (mut table, now) = (ReceiverTable::new(&routes, &settings), Instant::now());
        table.take_worker(RouteSlot::at(1));
        table.get_mut(RouteSlot::at(1)).unwrap().sending(None, now);
        assert!(!table.is_open(RouteSlot::at(1), now) && table.is_open(RouteSlot::at(2), now));
        table.take_worker(RouteSlot::at(2));
        assert!(!table.is_open(RouteSlot::at(2), now), "no worker is left");
        table.free_worker(RouteSlot::at(1));
        assert!(table.is_open(RouteSlot::at(2), now));
    }

    #[test]
    fn routes_to_one_sink_share_a_receiver() {
        let sink = postrider_core::handler(async |_: postrider_core::Delivery| ());
        let routes =
            Routes::new().sink("A", sink.clone()).sink("B", sink).on("C", async |_| ()).build().unwrap();
        let table = ReceiverTable::new(&routes, &Settings::default());
        assert_eq!(table.slots_beside(RouteSlot::at(1)).collect::<Vec<_>>(), [1, 2].map(RouteSlot::at));
        assert_eq!(table.slots_beside(RouteSlot::at(0)).collect::<Vec<_>>(), [0].map(RouteSlot::at));
    }

    #[test]
    fn a_send_that_ends_opens_the_routes_that_found_no_room() {
        let routes = Routes::new().on("A", async |_| ()).build().unwrap();
        let (mut table, now) = (ReceiverTable::new(&routes, &Settings::default()), Instant::now());
        let later = now + std::time::Duration::from_secs(1);
        assert!(!table.make_room(RouteSlot::at(1)), "nobody waits");
        table.saturate(RouteSlot::at(1), Some(later));
        assert_eq!((table.is_open(RouteSlot::at(1), now), table.next_opening(now)), (false, Some(later)));
        assert!(table.make_room(RouteSlot::at(1)) && table.is_open(RouteSlot::at(1), now));
    }
}
