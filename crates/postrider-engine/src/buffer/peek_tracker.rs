//! Owns the numbers that peeks found, and counts how many of their events have come.

use postrider_core::store::Seq;

/// What a peek shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeekResult {
    /// No number was drawn since the last peek.
    Unchanged,
    /// The events of all drawn numbers have been in memory.
    Known,
    /// There may be an event that no claim has brought.
    Unseen,
}

#[derive(Debug, Default)]
pub(super) struct PeekTracker {
    /// The last number that a peek found, or that came from beyond it.
    last: Option<Seq>,
    /// How many events came from beyond it, and the largest number of them.
    ahead: u64,
    ahead_to: Seq,
    /// How many of the numbers that the last peek added have not come.
    missing: u64,
    /// Whether the last peek was answered.
    answered: bool,
}

impl PeekTracker {
    /// Records that an event came into memory, by a claim or from its writer.
    pub(super) fn came(&mut self, seq: Seq) {
        if self.last.is_none_or(|last| seq > last) {
            self.ahead += 1;
            self.ahead_to = self.ahead_to.max(seq);
        } else {
            self.missing = self.missing.saturating_sub(1);
        }
    }

    /// Records the last number that a peek found.
    ///
    /// A missing event may never come: it may be rolled back, delayed, or another instance's. It counts against
    /// this peek only, and the next one starts anew.
    pub(super) fn peeked(&mut self, last: Seq) -> PeekResult {
        self.answered = true;
        let beyond = last.max(self.ahead_to);
        let (before, came) = match self.last {
            Some(before) if last < before && self.ahead == 0 => {
                // The database went back in time, or its sequence was reset.
                *self = Self { last: Some(last), missing: 1, answered: true, ..Self::default() };
                return PeekResult::Unseen;
            }
            Some(before) => (before, self.ahead),
            // Running claims find what was there before the first peek. Only the last number is new, unless it
            // came.
            None => (beyond.saturating_sub(1), u64::from(self.ahead_to == beyond)),
        };
        if beyond <= before {
            return PeekResult::Unchanged;
        }
        self.last = Some(beyond);
        self.ahead = 0;
        self.missing = (beyond - before).saturating_sub(came);
        if self.missing > 0 { PeekResult::Unseen } else { PeekResult::Known }
    }

    /// Returns the last number that is known; none before the first peek.
    pub(super) fn known(&self) -> Option<Seq> {
        self.last.map(|last| if self.ahead > 0 { last.max(self.ahead_to) } else { last })
    }

    /// Records that a peek was not answered.
    pub(super) fn not_answered(&mut self) {
        self.answered = false;
    }

    /// Whether peeks find new events.
    pub(super) fn is_answered(&self) -> bool {
        self.answered
    }

    /// Whether an event of a drawn number may still come.
    pub(super) fn misses(&self) -> bool {
        self.missing > 0
    }
}

#[cfg(test)]
mod tests {
    use super::{PeekResult::*, *};

    /// A tracker that has seen this number, with nothing missing.
    fn at(last: Seq) -> PeekTracker {
        PeekTracker { last: Some(last), ..PeekTracker::default() }
    }

    #[test]
    fn a_number_that_nobody_brought_is_news_once_and_missed_until_it_comes() {
        let mut peeks = at(10);
        assert_eq!((peeks.peeked(10), peeks.misses()), (Unchanged, false));
        assert_eq!((peeks.peeked(11), peeks.misses()), (Unseen, true));
        assert_eq!((peeks.peeked(11), peeks.misses()), (Unchanged, true));
        peeks.came(11);
        assert_eq!((peeks.peeked(11), peeks.misses()), (Unchanged, false));
    }

    #[test]
    fn what_came_before_the_peek_is_no_news() {
        let mut peeks = at(10);
        (11..=13).for_each(|seq| peeks.came(seq));
        assert_eq!((peeks.peeked(13), peeks.misses()), (Known, false));
        // A peek that was answered before the claim began.
        peeks.came(14);
        assert_eq!(peeks.peeked(13), Known);
        assert_eq!(peeks.peeked(14), Unchanged);
    }

    #[test]
    fn one_that_commits_behind_another_is_missed() {
        let mut peeks = at(10);
        peeks.came(12);
        assert_eq!((peeks.peeked(12), peeks.misses()), (Unseen, true));
        peeks.came(11);
        assert!(!peeks.misses());
    }

    #[test]
    fn what_never_comes_is_forgotten_with_the_next_move() {
        let mut peeks = at(10);
        assert_eq!(peeks.peeked(20), Unseen);
        peeks.came(21);
        assert_eq!((peeks.peeked(21), peeks.misses()), (Known, false));
    }

    #[test]
    fn the_first_peek_asks_for_a_claim_unless_one_has_brought_the_last_event() {
        let mut fresh = PeekTracker::default();
        assert_eq!(fresh.peeked(0), Unchanged);
        assert_eq!(fresh.peeked(1), Unseen);
        assert_eq!(PeekTracker::default().peeked(1000), Unseen);
        let mut claimed = PeekTracker::default();
        (990..=1000).for_each(|seq| claimed.came(seq));
        assert_eq!(claimed.peeked(1000), Known);
    }

    #[test]
    fn the_first_peek_finds_an_event_that_was_written_since_others_came() {
        let mut peeks = PeekTracker::default();
        (1..=3).for_each(|seq| peeks.came(seq));
        assert_eq!((peeks.peeked(4), peeks.misses()), (Unseen, true));
        peeks.came(4);
        assert_eq!((peeks.peeked(4), peeks.misses()), (Unchanged, false));
    }

    #[test]
    fn what_came_is_known_as_well_as_what_a_peek_found() {
        let mut peeks = PeekTracker::default();
        assert_eq!(peeks.known(), None);
        peeks.peeked(10);
        assert_eq!(peeks.known(), Some(10));
        peeks.came(12);
        assert_eq!(peeks.known(), Some(12));
        peeks.peeked(13);
        assert_eq!(peeks.known(), Some(13));
    }

    #[test]
    fn numbers_that_go_back_are_news_and_are_counted_from_there() {
        let mut peeks = at(400);
        assert_eq!(peeks.peeked(330), Unseen);
        assert_eq!(peeks.peeked(330), Unchanged);
        assert_eq!(peeks.peeked(331), Unseen);
    }
}
