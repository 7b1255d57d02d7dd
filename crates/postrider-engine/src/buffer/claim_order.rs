//! Owns the order of claims: whose turn it is, and what is known of what the next one finds.

use postrider_core::store::Seq;
use tokio::time::Instant;

use super::backlog_id::BacklogId;
use crate::slots::RouteSlot;

/// The lanes' own positions and the backlogs are read in turn.
#[derive(Debug)]
pub(super) struct ClaimOrder {
    /// The backlog that was read last.
    last_backlog: BacklogId,
    /// It is the turn of the lanes' own positions: at first, and after a backlog.
    lanes_turn: bool,
    /// The last claim of the lanes' own positions skipped rows.
    skipped: bool,
    /// The first and the last event of the last claim of the lanes' own positions, if it left something.
    left_more: Option<(Seq, Seq)>,
    /// A held key was freed: what is parked behind it can come back.
    returning: bool,
    /// When the next waiting event is due, as far as is known.
    due_at: Option<Instant>,
}

impl Default for ClaimOrder {
    fn default() -> Self {
        let (last_backlog, lanes_turn) = (BacklogId::Route(RouteSlot::default()), true);
        Self { last_backlog, lanes_turn, skipped: false, left_more: None, returning: false, due_at: None }
    }
}

impl ClaimOrder {
    /// Replaces the due moment before a claim is planned. Settles that commit from now on may name an earlier
    /// one than the claim.
    pub(super) fn forget_due(&mut self, due_at: Option<Instant>) {
        self.due_at = due_at;
    }

    /// Whether the lanes' own positions have their turn, and no backlog.
    pub(super) fn is_lanes_turn(&self) -> bool {
        self.lanes_turn
    }

    /// Records what the planned claim reads.
    pub(super) fn planned(&mut self, backlog: Option<BacklogId>) {
        self.lanes_turn = backlog.is_some();
    }

    /// Begins the planned claim.
    pub(super) fn begins(&mut self, backlog: Option<BacklogId>) {
        self.last_backlog = backlog.unwrap_or(self.last_backlog);
        self.returning &= backlog.is_some();
    }

    /// The backlog that was read last.
    pub(super) fn last_backlog(&self) -> BacklogId {
        self.last_backlog
    }

    /// Records whether a claim of the lanes' own positions skips rows. Returns whether it is the first in a row
    /// that does.
    pub(super) fn begins_to_skip(&mut self, skips: bool) -> bool {
        let skipped = std::mem::replace(&mut self.skipped, skips);
        skips && !skipped
    }

    /// Records what a claim of the lanes' own positions returned, if it left something.
    pub(super) fn returned(&mut self, left_more: Option<(Seq, Seq)>) {
        self.left_more = left_more;
    }

    /// The first and the last event of the last claim of the lanes' own positions, if it left something.
    pub(super) fn left_more(&self) -> Option<(Seq, Seq)> {
        self.left_more
    }

    /// Records that a held key was freed.
    pub(super) fn key_returns(&mut self) {
        self.returning = true;
    }

    /// Whether the parked events of a freed key can come back.
    pub(super) fn is_returning(&self) -> bool {
        self.returning
    }

    /// Records that a waiting event is due. Returns whether none was known to be due earlier.
    pub(super) fn due(&mut self, at: Instant) -> bool {
        let earlier = self.due_at.is_none_or(|known| at < known);
        if earlier {
            self.due_at = Some(at);
        }
        earlier
    }

    /// When the next waiting event is due, as far as is known.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.due_at
    }

    /// Forgets what was known of the table, after the database went back in time.
    pub(super) fn rewind(&mut self) {
        (self.returning, self.left_more, self.due_at) = (false, None, None);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lanes_and_backlogs_take_turns() {
        let backlog = BacklogId::Pause(3);
        let mut order = ClaimOrder::default();
        assert!(order.is_lanes_turn());
        order.planned(None);
        assert!(!order.is_lanes_turn());
        order.planned(Some(backlog));
        order.begins(Some(backlog));
        assert_eq!((order.is_lanes_turn(), order.last_backlog()), (true, backlog));
        order.planned(None);
        order.begins(None);
        assert_eq!((order.is_lanes_turn(), order.last_backlog()), (false, backlog));
    }

    #[test]
    fn a_key_that_was_freed_returns_with_the_next_claim_of_the_lanes() {
        let mut order = ClaimOrder::default();
        order.key_returns();
        order.begins(Some(BacklogId::Pause(1)));
        assert!(order.is_returning());
        order.begins(None);
        assert!(!order.is_returning());
    }

    #[test]
    fn the_first_of_several_claims_that_skip_is_known() {
        let mut order = ClaimOrder::default();
        let begins: Vec<bool> =
            [false, true, true, false, true].map(|skips| order.begins_to_skip(skips)).into();
        assert_eq!(begins, [false, true, false, false, true]);
    }

    #[test]
    fn the_earliest_due_moment_is_kept() {
        let (mut order, now) = (ClaimOrder::default(), Instant::now());
        assert!(order.due(now + Duration::from_secs(2)));
        assert!(!order.due(now + Duration::from_secs(3)) && order.due(now + Duration::from_secs(1)));
        assert_eq!(order.due_at(), Some(now + Duration::from_secs(1)));
    }
}
