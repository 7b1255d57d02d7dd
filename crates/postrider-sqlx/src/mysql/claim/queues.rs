//! Which of the events that are due go into a claim, fairly.

use postrider_core::store::Seq;

use super::scan::{Judge, Met, Verdict};
use crate::choose::{Budget, Kind, Turns};

/// Rows in the order of their keys, and how many of them were gone through. Only ever from the front.
#[derive(Debug, Default)]
pub(super) struct Queue {
    met: Vec<Met>,
    gone_through: usize,
}

impl Queue {
    pub(super) fn new(met: Vec<Met>) -> Self {
        Self { met, gone_through: 0 }
    }

    fn oldest(&self) -> Seq {
        self.met.iter().find(|met| met.is_candidate()).map_or(Seq::MAX, |met| met.row.seq)
    }

    /// Goes on to the next row that is wanted, and takes it if it fits. What is not wanted is passed over.
    fn take(&mut self, budget: &mut Budget, judge: &Judge<'_>) -> bool {
        while let Some(met) = self.met.get_mut(self.gone_through) {
            if met.is_candidate() {
                let bytes = met.row.stored.bytes;
                if !budget.fits(bytes) {
                    return false;
                }
                if judge.admits(met) {
                    budget.take(bytes);
                    self.gone_through += 1;
                    return true;
                }
                met.verdict = Verdict::PassOver;
            }
            self.gone_through += 1;
        }
        false
    }

    /// Cuts off what was not gone through, which begins with a row that did not fit; and gives what was.
    pub(super) fn cut(self) -> (Vec<Met>, Vec<Met>) {
        let Self { met: mut gone_through, gone_through: end } = self;
        let rest = gone_through.split_off(end.min(gone_through.len()));
        (gone_through, rest)
    }
}

/// The lists that a claim chooses from.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Looked at once more; they lie below the fresh ones, so one after the other they are in order.
    pub(super) again: Queue,
    pub(super) fresh: Queue,
    pub(super) waiting: Queue,
    pub(super) returning: Queue,
}

impl Queues {
    /// Takes from the fresh ones and from the others by turns, so that neither keeps the other out: each has half of the
    /// limit, and what it does not use goes to the other.
    pub(super) fn choose(&mut self, budget: &mut Budget, judge: &Judge<'_>) {
        let Self { again, fresh, waiting, returning } = self;
        // Whoever is older goes first; with room for a single event that is the one that has waited longest.
        let fresh_oldest = again.oldest().min(fresh.oldest());
        let others_oldest = waiting.oldest().min(returning.oldest());
        let mut turns = Turns::new(fresh_oldest < others_oldest);
        loop {
            let took = turns.order().into_iter().find(|kind| match kind {
                // Nothing fresh before what was given back is through: both may be of one key.
                Kind::Fresh => again.take(budget, judge) || (again.is_through() && fresh.take(budget, judge)),
                Kind::Waiting => waiting.take(budget, judge),
                Kind::Returning => returning.take(budget, judge),
            });
            let Some(kind) = took else { return };
            turns.took(kind);
        }
    }
}

impl Queue {
    fn is_through(&self) -> bool {
        self.gone_through >= self.met.len()
    }
}
