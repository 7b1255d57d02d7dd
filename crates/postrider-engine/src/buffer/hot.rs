//! Hands events over in memory: it reserves their places before the commit and enqueues them after it.

use super::{pauses::EventAttributes, *};

/// What became of a hand-over in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandOver {
    Reserved,
    Full,
    /// The table keeps it: the lane is not ours, the number is in flight, the receiver is down, or the engine
    /// shuts down.
    LeftToClaim,
}

/// Where an event would go. Its sink decides that, and is asked before the buffer is locked: it is user code.
pub(crate) struct HotTarget {
    slot: RouteSlot,
    destination: Option<DestinationId>,
}

impl HotTarget {
    pub(crate) fn of(event: &Event, routes: &RouteTable) -> Self {
        let slot = slot_of(event, routes);
        Self { slot, destination: destination_of(event, slot, routes) }
    }
}

impl Buffer {
    /// Reserves a place for an event that is about to commit. Claims skip it from now on. Otherwise a claim
    /// could deliver and settle it between the commit and the hand-over, which would then deliver it again.
    pub(crate) fn reserve(
        &mut self,
        event: &Event,
        placed: &Placed,
        bound: &HotTarget,
        settings: &Settings,
        now: Instant,
    ) -> HandOver {
        let slot = bound.slot;
        let receiver = self.receivers.of(slot);
        let attributes = EventAttributes { event_type: Some(event.event_type()), key: event.key(), receiver };
        if self.pauses.stop() || !self.gate_of_event(slot, attributes).is_open() {
            return HandOver::LeftToClaim;
        }
        let lease = match self.lanes.get(placed.lane) {
            Some(lane) if self.accepting && lane.gate(now).is_open() => lane.lease,
            _ => return HandOver::LeftToClaim,
        };
        // The database went back in time and gave the number to another event, which is under way. The table
        // knows which event has it now.
        if self.in_flight.is_unsettled(placed.seq) && !self.reserved.contains_key(&placed.seq) {
            return HandOver::LeftToClaim;
        }
        // Settled events stay tracked until a claim that hangs returns, and count too.
        let tracked = self.in_flight.len().saturating_sub(self.postponed.len());
        let full = tracked >= settings.hot_queue + settings.cold_queue;
        let weight_bytes = event.weight_bytes();
        let heavy = self.in_flight.bytes() + weight_bytes > settings.queue_bytes;
        if self.in_flight.hot() >= settings.hot_queue || full || heavy {
            return HandOver::Full;
        }
        let item = Item {
            content: Ok(event.clone()),
            lease,
            seq: placed.seq,
            attempts: 0,
            held: false,
            source: Source::Hot,
            key: None,
            key_number: hash::of_seq(placed.seq),
            slot,
            destination: bound.destination,
            batched_with_head: false,
            failed: false,
            only_deferred: false,
            isolation: Isolation::Mixed,
            weight_bytes,
        };
        self.track(&item);
        self.reserved.insert(placed.seq, item);
        HandOver::Reserved
    }

    /// Enqueues an event that has committed. Returns false if its lane was lost or it was paused meanwhile.
    pub(crate) fn hand_over(&mut self, seq: Seq, id: &EventId) -> bool {
        let Some(item) = self.take_reserved(seq, id) else { return false };
        let paused = self.is_held_back(&item);
        self.enqueue(item);
        !paused
    }

    /// Gives up a reservation: only the table knows whether the event has committed.
    pub(crate) fn cancel_reservation(&mut self, seq: Seq, id: &EventId) {
        if let Some(item) = self.take_reserved(seq, id) {
            self.in_flight.remove(seq);
            self.recheck(item.lease.lane, seq);
        }
    }

    /// The number may belong to another event by now: the database lost the transaction or rolled it back.
    fn take_reserved(&mut self, seq: Seq, id: &EventId) -> Option<Item> {
        self.reserved.get(&seq).filter(|item| item.id() == id)?;
        self.reserved.remove(&seq)
    }
}
