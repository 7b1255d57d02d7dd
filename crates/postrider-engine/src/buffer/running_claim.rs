//! Owns what settles have to know of the claim that runs beside them, which may not see what they write.

use std::collections::HashSet;

use super::LaneKey;
use crate::hash::QuickState;

/// The claim that runs now, and how many claims that skip rows have ended.
#[derive(Debug, Default)]
pub(super) struct RunningClaim {
    runs: bool,
    /// It skips rows.
    skips: bool,
    /// How many claims that skip rows have ended, and how many had when the running settle began.
    skipping_ended: u64,
    skipping_ended_at_settle: u64,
    /// Keys that were held since it began.
    held_keys: HashSet<LaneKey, QuickState>,
}

impl RunningClaim {
    pub(super) fn begin(&mut self, skips: bool) {
        (self.runs, self.skips) = (true, skips);
    }

    pub(super) fn end(&mut self) {
        self.runs = false;
        self.skipping_ended += u64::from(std::mem::take(&mut self.skips));
        self.held_keys.clear();
    }

    /// Whether a claim runs.
    pub(super) fn runs(&self) -> bool {
        self.runs
    }

    /// Records that a settle begins.
    pub(super) fn settle_begins(&mut self) {
        self.skipping_ended_at_settle = self.skipping_ended;
    }

    /// Whether a claim that skips rows ran at any time since the settle began.
    pub(super) fn skipped_beside_settle(&self) -> bool {
        self.skips || self.skipping_ended != self.skipping_ended_at_settle
    }

    /// Records that events of this key went back to the table. What the running claim brings of it would
    /// overtake them.
    pub(super) fn note_held(&mut self, key: LaneKey) {
        if self.runs {
            self.held_keys.insert(key);
        }
    }

    /// Whether events of this key went back to the table since the claim began.
    pub(super) fn was_held(&self, key: Option<&LaneKey>) -> bool {
        !self.held_keys.is_empty() && key.is_some_and(|key| self.held_keys.contains(key))
    }

    pub(super) fn forget_held(&mut self) {
        self.held_keys.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> LaneKey {
        LaneKey { lane: 0, key: "key".into(), number: 1 }
    }

    #[test]
    fn a_key_is_remembered_only_while_a_claim_runs() {
        let mut claim = RunningClaim::default();
        claim.note_held(key());
        assert!(!claim.was_held(Some(&key())));
        claim.begin(false);
        claim.note_held(key());
        assert!(claim.was_held(Some(&key())) && !claim.was_held(None));
        claim.end();
        assert!(!claim.was_held(Some(&key())) && !claim.runs());
    }

    #[test]
    fn a_settle_knows_of_each_claim_that_skipped_rows_beside_it() {
        let mut claim = RunningClaim::default();
        claim.settle_begins();
        claim.begin(false);
        claim.end();
        assert!(!claim.skipped_beside_settle());
        claim.begin(true);
        assert!(claim.skipped_beside_settle(), "it runs");
        claim.end();
        assert!(claim.skipped_beside_settle(), "it has ended meanwhile");
        claim.settle_begins();
        assert!(!claim.skipped_beside_settle());
    }
}
