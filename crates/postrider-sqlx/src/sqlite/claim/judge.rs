//! What is to become of a row that a claim meets.

use postrider_core::{Timestamp, store::Seq};

use super::{super::row::HeldBy, glance::Glanced};

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
    /// When it is due; none if it was written to be delivered at once. Such a one is never early, also if the clock was set back
    /// since: taken for a delayed one, it would let later events of its key pass.
    pub(super) due: Option<Timestamp>,
    pub(super) held_by: Option<HeldBy>,
}

impl From<&Glanced> for Facts {
    fn from(row: &Glanced) -> Self {
        Self { seq: row.seq, is_new: row.is_new, due: row.due, held_by: row.held_by }
    }
}

impl Facts {
    /// Judges a row that the engine does not have.
    pub(super) fn judge(&self, now: Timestamp) -> Verdict {
        match self.held_by {
            // Time comes before the key: what is parked is due.
            _ if self.due.is_some_and(|due| due > now) => {
                if self.is_new {
                    Verdict::Turn
                } else {
                    Verdict::Pass
                }
            }
            Some(hold) if hold.head != self.seq => Verdict::Park { returning: hold.returning },
            held_by => Verdict::Return { held: held_by.is_some() },
        }
    }
}
