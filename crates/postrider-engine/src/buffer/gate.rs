//! Decides whether events may be sent now, and names what is in the way.

use postrider_core::store::Lease;
use tokio::time::Instant;

use super::{Buffer, OwnedLane, pauses::EventAttributes};
use crate::slots::RouteSlot;

/// Whether events may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// Nothing is in the way.
    Go,
    /// An operator has paused them, or the pauses are not known.
    Paused,
    /// Their route is stopped, because too many of its outcomes cannot be written.
    Stopped,
    /// Their receiver is down: only probes go.
    Down,
    /// Their lane is being given up.
    Draining,
    /// The lease has run out, as far as is known here.
    Expired,
}

impl Gate {
    pub(super) fn is_open(self) -> bool {
        self == Self::Go
    }
}

impl OwnedLane {
    /// Whether events of this lane may be sent.
    pub(super) fn gate(&self, now: Instant) -> Gate {
        if self.draining.is_some() {
            Gate::Draining
        } else if now >= self.deadline {
            Gate::Expired
        } else {
            Gate::Go
        }
    }
}

impl Buffer {
    /// Whether anything may be sent at all.
    pub(super) fn gate(&self, now: Instant) -> Gate {
        if self.is_expired(now) {
            Gate::Expired
        } else if self.pauses.stop() {
            Gate::Paused
        } else {
            Gate::Go
        }
    }

    /// Whether events may be sent under a lease.
    pub(super) fn gate_of_lease(&self, lease: Lease, now: Instant) -> Gate {
        self.lanes.under(lease).map_or(Gate::Expired, |lane| lane.gate(now))
    }

    /// Whether events of a route may be sent, as far as no pause concerns them.
    pub(super) fn gate_of_route(&self, slot: RouteSlot) -> Gate {
        if self.postponed.stops(slot) {
            Gate::Stopped
        } else if !self.receivers.is_up(slot) {
            Gate::Down
        } else {
            Gate::Go
        }
    }

    /// Whether an event may be sent, as far as its lane is not concerned.
    pub(super) fn gate_of_event(&self, slot: RouteSlot, attributes: EventAttributes<'_>) -> Gate {
        match self.gate_of_route(slot) {
            Gate::Stopped => Gate::Stopped,
            _ if self.pauses.of(attributes).is_some() => Gate::Paused,
            gate => gate,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postrider_core::{
        Timestamp,
        store::{AcquiredLane, Pause, Subject},
    };

    use super::*;
    use crate::{Routes, Settings, buffer::test_item};

    #[test]
    fn each_obstacle_is_named() {
        let routes = Routes::new().on("A", async |_| ()).build().unwrap();
        let (mut buffer, now) = (Buffer::new(&routes, &Settings::default()), Instant::now());
        let (item, later) = (test_item("key", 1, 1), now + Duration::from_secs(1));
        let gate = |buffer: &Buffer| buffer.gate_of_event(item.slot, item.attributes(&buffer.receivers));
        assert_eq!(buffer.gate_of_lease(item.lease, now), Gate::Expired, "the lane is not owned");
        buffer.own(AcquiredLane { lease: item.lease, suspect_to: 0 }, later);
        assert_eq!((buffer.gate(now), buffer.gate(later)), (Gate::Go, Gate::Expired));
        assert!(buffer.gate_of_lease(item.lease, now).is_open() && gate(&buffer).is_open());
        let subject = Subject::key("key");
        let pause = Pause { subject, since: Timestamp::EPOCH, reason: String::new() };
        _ = buffer.set_pauses(&[pause], &routes);
        assert_eq!((gate(&buffer), buffer.gate_of_route(item.slot)), (Gate::Paused, Gate::Go));
        buffer.wait_for_pauses();
        assert_eq!(buffer.gate(now), Gate::Paused, "nobody knows what is paused");
        _ = buffer.leave_all_queued(now);
        assert_eq!(buffer.gate_of_lease(item.lease, now), Gate::Draining);
    }
}
