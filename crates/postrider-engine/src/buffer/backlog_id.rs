//! Names the backlogs that skipped events belong to.

use crate::{hash, slots::RouteSlot};

/// Whose backlog it is. The order of the kinds is the order in which backlogs are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum BacklogId {
    /// A route whose receiver is down, or that has more than its share of memory.
    Route(RouteSlot),
    /// A pause of event types or of a sink.
    Pause(u64),
    /// The long keys of a route that are too many to tell apart.
    Overflow(RouteSlot),
    /// A paused key.
    PausedKey(u64),
    /// A key with more events than may wait in memory.
    LongKey(u64),
}

impl BacklogId {
    /// The first one that has a single key.
    pub(super) const FIRST_KEY: Self = Self::PausedKey(0);

    /// The last one that has a single key.
    pub(super) const LAST_KEY: Self = Self::LongKey(u64::MAX);

    /// The route, if it is the backlog of one.
    pub(super) fn route(self) -> Option<RouteSlot> {
        match self {
            Self::Route(slot) => Some(slot),
            _ => None,
        }
    }

    /// Whether it has a single key. Its events are found by that key and need no filter.
    pub(super) fn has_one_key(self) -> bool {
        matches!(self, Self::PausedKey(_) | Self::LongKey(_))
    }

    /// Returns the number of a key in this backlog, for the filter that all backlogs share.
    pub(super) fn number_of(self, key: u64) -> u64 {
        let (kind, number) = match self {
            Self::Route(slot) => (0, slot.index() as u64),
            Self::Pause(number) => (1, number),
            Self::Overflow(slot) => (2, slot.index() as u64),
            Self::PausedKey(number) => (3, number),
            Self::LongKey(number) => (4, number),
        };
        key ^ hash::of_seq(kind << 60 | number)
    }
}

impl From<RouteSlot> for BacklogId {
    fn from(slot: RouteSlot) -> Self {
        Self::Route(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backlogs_of_single_keys_come_last() {
        let slot = RouteSlot::at(usize::MAX);
        let ids = [
            BacklogId::Route(slot),
            BacklogId::Pause(u64::MAX),
            BacklogId::Overflow(slot),
            BacklogId::PausedKey(0),
            BacklogId::LongKey(u64::MAX),
        ];
        assert!(ids.is_sorted());
        assert!(ids.iter().all(|id| id.has_one_key() == (*id >= BacklogId::FIRST_KEY)));
        assert!(ids.iter().all(|id| *id <= BacklogId::LAST_KEY));
    }
}
