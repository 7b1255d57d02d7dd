//! What is to become of a row that a claim meets.

use postrider_core::{Timestamp, store::Seq};

use super::glance::Glanced;

/// What is to become of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is due and nothing is in front of it.
    Return { held: bool },
    /// Its key waits for another event, or for those that are coming back.
    Park { returning: bool },
    /// It is not due and was never tried: it waits for its time, without holding its key.
    Turn,
    /// It waits already, or the engine has it.
    Pass,
}

/// What decides about a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    pub(super) seq: Seq,
    pub(super) is_new: bool,
    pub(super) available_at: Timestamp,
    pub(super) created_at: Timestamp,
    /// The event that its key is held by.
    pub(super) head: Option<Seq>,
    /// Whether its key is free again, and its followers are on their way.
    pub(super) coming_back: bool,
}

impl From<&Glanced> for Facts {
    fn from(row: &Glanced) -> Self {
        Self {
            seq: row.seq,
            is_new: row.status == 0,
            available_at: row.available_at,
            created_at: row.created_at,
            head: row.head,
            coming_back: row.coming_back,
        }
    }
}

impl Facts {
    /// Judges a row that the engine does not have.
    pub(super) fn judge(&self, now: Timestamp) -> Verdict {
        if self.is_early(now) {
            // Time comes before the key: what is parked is due.
            if self.is_new { Verdict::Turn } else { Verdict::Pass }
        } else if self.head.is_some_and(|head| head != self.seq) {
            Verdict::Park { returning: self.coming_back }
        } else {
            Verdict::Return { held: self.head.is_some() }
        }
    }

    /// Whether a row's time has not come. One that was written to be delivered at once is never early, also if the clock
    /// was set back since: taken for a delayed one, it would let later events of its key pass.
    fn is_early(&self, now: Timestamp) -> bool {
        let was_delayed = !self.is_new || self.available_at > self.created_at;
        self.available_at > now && was_delayed
    }
}
