//! One row of a claim: what decides about it, and what becomes of it.

use crate::{
    Timestamp,
    store::{Lane, RowSummary, Seq},
};

/// A row as a store has read it, without its payload.
pub trait Row {
    /// What decides about it.
    fn facts(&self) -> Facts;

    /// What an admission is asked about. Only asked for where the claim has an admission.
    fn summary(&self) -> RowSummary<'_>;
}

/// What decides about a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Its lane.
    pub lane: Lane,
    /// Its place in the order.
    pub seq: Seq,
    /// Whether it is fresh: neither tried nor delayed yet.
    pub is_fresh: bool,
    /// When it is due; none for a fresh row that was written to be delivered at once. Such a row is never early, even if the clock was set
    /// back since: taken for a delayed one, it would let later events of its key pass.
    pub due_at: Option<Timestamp>,
    /// What its key is held by.
    pub hold: Option<Hold>,
    /// Its size, payload and headers included.
    pub bytes: usize,
    /// Whether another claim is to return it.
    pub is_for_another_claim: bool,
}

/// Why a key is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// The event that the key waits for. No two keys wait for the same one.
    pub head: Seq,
    /// Whether the key is free again and its parked events return first.
    pub is_returning: bool,
}

/// What becomes of a row that a claim met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// It is due and nothing comes before it.
    Deliver {
        /// Whether its key is held.
        held: bool,
    },
    /// Its key waits for another event, or for those that return: it is parked behind them.
    Park {
        /// Whether the key is free again.
        returning: bool,
    },
    /// It is not due and was never tried: it waits for its time, without holding its key.
    Delay,
    /// It waits already, or the engine has it, or another claim is to return it.
    Ignore,
    /// It could be delivered and is not wanted now.
    Skip,
}

/// Decides about rows.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// The time of the claim, on the clock that rows are due by.
    pub now: Timestamp,
    /// Events that the engine has in memory, sorted.
    pub in_flight: &'a [Seq],
}

impl Rules<'_> {
    /// Whether the engine has this event in memory.
    pub fn is_in_flight(&self, seq: Seq) -> bool {
        self.in_flight.binary_search(&seq).is_ok()
    }

    /// What becomes of a row, as far as the row itself tells.
    pub fn decide(&self, row: &Facts) -> Disposition {
        let is_early = row.due_at.is_some_and(|due_at| due_at > self.now);
        match row.hold {
            _ if row.is_for_another_claim || self.is_in_flight(row.seq) => Disposition::Ignore,
            _ if is_early && row.is_fresh => Disposition::Delay,
            _ if is_early => Disposition::Ignore,
            Some(hold) if hold.head != row.seq => Disposition::Park { returning: hold.is_returning },
            hold => Disposition::Deliver { held: hold.is_some() },
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const NOW: Timestamp = Timestamp::from_micros(1_000);

    /// A fresh row of lane 0 without a key that is due at once.
    pub(in super::super) fn fresh(seq: Seq) -> Facts {
        let (due_at, hold) = (None, None);
        Facts { lane: 0, seq, is_fresh: true, due_at, hold, bytes: 1, is_for_another_claim: false }
    }

    /// A row that waited and is due.
    pub(in super::super) fn waiting(seq: Seq) -> Facts {
        Facts { is_fresh: false, due_at: Some(NOW), ..fresh(seq) }
    }

    pub(in super::super) fn held_by(head: Seq, is_returning: bool, row: Facts) -> Facts {
        Facts { hold: Some(Hold { head, is_returning }), ..row }
    }

    impl Row for Facts {
        fn facts(&self) -> Facts {
            *self
        }

        fn summary(&self) -> RowSummary<'_> {
            RowSummary {
                lane: self.lane,
                seq: self.seq,
                event_type: "",
                aggregate_type: "",
                key: None,
                due_at: self.due_at,
            }
        }
    }

    fn decide(row: Facts) -> Disposition {
        Rules { now: NOW, in_flight: &[7] }.decide(&row)
    }

    #[test]
    fn a_row_is_due_if_its_key_is_free_or_waits_for_it() {
        assert_eq!(decide(fresh(1)), Disposition::Deliver { held: false });
        assert_eq!(decide(held_by(1, false, fresh(1))), Disposition::Deliver { held: true });
    }

    #[test]
    fn a_follower_is_parked() {
        assert_eq!(decide(held_by(1, false, fresh(2))), Disposition::Park { returning: false });
        assert_eq!(decide(held_by(1, true, waiting(2))), Disposition::Park { returning: true });
    }

    #[test]
    fn time_comes_before_the_key() {
        let later = Some(Timestamp::from_micros(NOW.as_micros() + 1));
        assert_eq!(decide(held_by(1, false, Facts { due_at: later, ..fresh(2) })), Disposition::Delay);
        assert_eq!(decide(Facts { due_at: later, ..waiting(2) }), Disposition::Ignore);
        assert_eq!(decide(Facts { due_at: Some(NOW), ..fresh(2) }), Disposition::Deliver { held: false });
    }

    #[test]
    fn what_the_engine_has_or_another_claim_returns_is_ignored() {
        assert_eq!(decide(fresh(7)), Disposition::Ignore);
        assert_eq!(decide(Facts { is_for_another_claim: true, ..fresh(1) }), Disposition::Ignore);
    }
}
