//! Owns the answer to whether a claim is worth its cost: how much room there is, and whether routes have to share it.

use std::time::Duration;

use tokio::time::Instant;

/// How long memory is full before claims look beyond what fills it. Looking beyond it means to scan a backlog.
const SHARE_AFTER: Duration = Duration::from_millis(100);

/// Room for claims. While memory stays full, each route has a share.
#[derive(Debug, Default)]
pub(super) struct ClaimRoom {
    /// Since when no claim begins for want of room.
    starved_since: Option<Instant>,
    shared: bool,
}

impl ClaimRoom {
    /// Records that there is room.
    pub(super) fn found(&mut self) {
        self.starved_since = None;
    }

    /// Records that there is none. Returns whether routes begin to share, which they do only if there are
    /// several.
    pub(super) fn missing(&mut self, several_routes: bool, now: Instant) -> bool {
        let since = *self.starved_since.get_or_insert(now);
        let begins = !self.shared && several_routes && now - since >= SHARE_AFTER;
        self.shared |= begins;
        begins
    }

    /// Returns when a claim that found no room is to be tried again, whatever happens.
    pub(super) fn try_again_at(&self, several_routes: bool) -> Option<Instant> {
        self.starved_since.filter(|_| !self.shared && several_routes).map(|at| at + SHARE_AFTER)
    }

    pub(super) fn is_starved(&self) -> bool {
        self.starved_since.is_some()
    }

    /// Whether each route has a share of the room.
    pub(super) fn is_shared(&self) -> bool {
        self.shared
    }

    pub(super) fn end_sharing(&mut self) {
        self.shared = false;
    }

    #[cfg(test)]
    pub(super) fn share(&mut self) {
        self.shared = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_share_after_memory_was_full_for_a_while() {
        let (mut room, now) = (ClaimRoom::default(), Instant::now());
        assert!(!room.missing(true, now) && room.is_starved());
        assert_eq!((room.try_again_at(true), room.try_again_at(false)), (Some(now + SHARE_AFTER), None));
        assert!(!room.missing(false, now + SHARE_AFTER), "a single route has nobody to share with");
        assert!(room.missing(true, now + SHARE_AFTER) && room.is_shared());
        assert!(!room.missing(true, now + SHARE_AFTER * 2), "it shares already");
        room.found();
        assert!(!room.is_starved() && room.is_shared());
        room.end_sharing();
        assert!(!room.is_shared());
    }
}
