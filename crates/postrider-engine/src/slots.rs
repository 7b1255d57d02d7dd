//! Numbers the places of routes and receivers in tables, where the first place is for events without a route.

use crate::routes::{ReceiverId, RouteId};

/// The place of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct RouteSlot(usize);

impl RouteSlot {
    /// The place of a route, or of events without one.
    pub(crate) fn of(route: Option<RouteId>) -> Self {
        Self(route.map_or(0, |id| id + 1))
    }

    pub(crate) const fn at(index: usize) -> Self {
        Self(index)
    }

    /// The route; none for the place of events without one.
    pub(crate) fn route(self) -> Option<RouteId> {
        self.0.checked_sub(1)
    }

    pub(crate) const fn index(self) -> usize {
        self.0
    }
}

/// The place of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct ReceiverSlot(usize);

impl ReceiverSlot {
    /// The place of a receiver, or of the handler of events without a route.
    pub(crate) fn of(receiver: Option<ReceiverId>) -> Self {
        Self(receiver.map_or(0, |id| id + 1))
    }

    /// The receiver; none for the handler of events without a route.
    pub(crate) fn receiver(self) -> Option<ReceiverId> {
        self.0.checked_sub(1)
    }

    pub(crate) const fn index(self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_has_no_route_and_no_receiver() {
        assert_eq!((RouteSlot::of(None).index(), RouteSlot::of(None).route()), (0, None));
        assert_eq!((RouteSlot::of(Some(0)).index(), RouteSlot::of(Some(0)).route()), (1, Some(0)));
        assert_eq!((ReceiverSlot::of(None).index(), ReceiverSlot::of(None).receiver()), (0, None));
        assert_eq!((ReceiverSlot::of(Some(2)).index(), ReceiverSlot::of(Some(2)).receiver()), (3, Some(2)));
    }
}
