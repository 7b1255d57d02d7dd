//! The hot queue: places for events that are about to commit.

use super::*;

impl Buffer {
    /// Reserves a place in the hot queue for an event that is about to commit. Claims pass it over from now on: otherwise
    /// one could deliver and settle it between the commit and the hand-over, which would then deliver it again.
    pub(crate) fn reserve(
        &mut self,
        event: &Event,
        placed: &Placed,
        settings: &Settings,
        routes: &RouteTable,
        now: Instant,
    ) -> HandOver {
        let slot = slot_of(event, routes);
        if !self.receiver(slot).is_some_and(Receiver::is_up) {
            return HandOver::LeftToClaim;
        }
        let lease = match self.lanes.get(&placed.lane) {
            Some(lane) if self.accepting && now < lane.deadline && !lane.draining => lane.lease,
            _ => return HandOver::LeftToClaim,
        };
        // What was settled during a claim that hangs stays tracked until it returns, and counts too.
        let crowded = self.tracked.len() >= settings.hot_queue + settings.cold_queue;
        let weight_bytes = event.weight_bytes();
        let heavy = self.bytes + weight_bytes > settings.queue_bytes;
        if self.hot_count >= settings.hot_queue || crowded || heavy {
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
            key_number: hash::of_seq(placed.seq),
            slot,
            along: false,
            weight_bytes,
        };
        self.track(&item);
        self.reserved.insert(placed.seq, item);
        HandOver::Reserved
    }

    /// The event has committed: it lines up. False if its lane was lost meanwhile.
    pub(crate) fn hand_over(&mut self, seq: Seq) -> bool {
        let Some(item) = self.reserved.remove(&seq) else { return false };
        self.line_up(item);
        true
    }

    /// Nobody knows whether the event has committed: the table does.
    pub(crate) fn cancel_reservation(&mut self, seq: Seq) {
        if let Some(item) = self.reserved.remove(&seq) {
            self.untrack(seq);
            self.look_again(item.lease.lane, seq);
        }
    }
}
