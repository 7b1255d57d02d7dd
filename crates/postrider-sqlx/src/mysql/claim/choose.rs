//! Which of the events that are due go into a claim, fairly.

use postrider_core::store::Seq;

use super::scan::{Judge, Met, Verdict};

/// What is left of a claim's limits.
#[derive(Debug)]
pub(super) struct Budget {
    events: usize,
    bytes: usize,
    untouched: bool,
}

impl Budget {
    pub(super) fn new(events: usize, bytes: usize) -> Self {
        Self { events, bytes, untouched: true }
    }

    /// Whether one more event fits. The first fits whatever its size, or it would never come.
    fn fits(&self, bytes: usize) -> bool {
        self.events > 0 && (self.untouched || bytes <= self.bytes)
    }

    fn take(&mut self, bytes: usize) {
        self.events = self.events.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.untouched = false;
    }
}

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
        let mut turn_of_fresh = fresh_oldest < waiting.oldest().min(returning.oldest());
        let mut turn_of_returning = false;
        loop {
            let mut others = |budget: &mut Budget| {
                turn_of_returning = !turn_of_returning;
                match turn_of_returning {
                    true => returning.take(budget, judge) || waiting.take(budget, judge),
                    false => waiting.take(budget, judge) || returning.take(budget, judge),
                }
            };
            // Nothing fresh before what was given back is through: both may be of one key.
            let mut fresh = |budget: &mut Budget| {
                again.take(budget, judge) || (again.is_through() && fresh.take(budget, judge))
            };
            let took = match turn_of_fresh {
                true => fresh(budget) || others(budget),
                false => others(budget) || fresh(budget),
            };
            if !took {
                return;
            }
            turn_of_fresh = !turn_of_fresh;
        }
    }
}

impl Queue {
    fn is_through(&self) -> bool {
        self.gone_through >= self.met.len()
    }
}
