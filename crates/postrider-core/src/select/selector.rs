//! Takes rows from the lists of a claim by turns.

use std::collections::HashSet;

use super::{
    budget::Budget,
    freed::{FreedKey, RETURNING_OF_A_KEY_MAX, Returning},
    list::{Next, Rows},
    row::{Disposition, Facts, Row, Rules},
    selection::Selection,
};
use crate::store::{Admission, Claim, Lane, Seq};

/// A list that a store can read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Fresh rows, in their order.
    Fresh,
    /// Waiting rows, in the order of their times.
    Waiting,
}

/// Chooses what a claim returns; see the [module](super).
///
/// First [`freed`](Selector::freed) and then [`recheck`](Selector::recheck), if there is anything; then as much of the other lists as the
/// store likes; then [`run`](Selector::run), until it asks for nothing more.
#[derive(Debug)]
pub struct Selector<'a, R, K> {
    rules: Rules<'a>,
    admission: Option<&'a dyn Admission>,
    budget: Budget,
    /// Whether the claim reads up to a place that others have reached.
    is_bounded: bool,
    of_a_key_max: usize,
    /// Rows to check again. No other list returns them.
    rechecked: HashSet<Seq>,
    turns: Option<Turns>,
    recheck: Rows<R>,
    fresh: Rows<R>,
    waiting: Rows<R>,
    returning_rows: Rows<R>,
    returning: Returning<R, K>,
}

impl<'a, R: Row, K> Selector<'a, R, K> {
    /// A selector for this claim at this time.
    pub fn new(claim: &'a Claim, rules: Rules<'a>) -> Self {
        Self {
            rules,
            admission: claim.admission.as_deref(),
            budget: Budget::new(claim.limit, claim.bytes),
            is_bounded: claim.lanes.iter().any(|lane| lane.to < Seq::MAX),
            of_a_key_max: RETURNING_OF_A_KEY_MAX,
            rechecked: HashSet::new(),
            turns: None,
            recheck: Rows::default(),
            fresh: Rows::default(),
            waiting: Rows::default(),
            returning_rows: Rows::default(),
            returning: Returning::default(),
        }
    }

    /// The same, with what another selector has left of the limits.
    pub fn with_budget(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// The same, where at most so many events of one key return.
    pub fn with_returning_of_a_key_max(self, of_a_key_max: usize) -> Self {
        Self { of_a_key_max, ..self }
    }

    /// Keys that are free again, oldest head first; one more than can return, if there are more. `met` says up to where the claims of a lane have
    /// met everything.
    pub fn freed(&mut self, keys: Vec<FreedKey<R, K>>, met: impl Fn(Lane) -> Seq) {
        self.returning = Returning::of(keys, self.of_a_key_max, &self.rules, met);
    }

    /// More may return than the freed keys that were read.
    pub fn more_returns(&mut self) {
        self.returning.more = true;
    }

    /// Rows to check again, in order: all of them, or those beyond a limit would be forgotten.
    pub fn recheck(&mut self, rows: Vec<R>) {
        self.rechecked.extend(rows.iter().map(|row| row.facts().seq));
        let rows: Vec<_> = rows.into_iter().map(|row| (self.decide(&row.facts()), row)).collect();
        self.recheck.extend(rows.into_iter().map(|(disposition, row)| (row, disposition)), true);
    }

    /// The next rows of a list, and whether there are no more of it.
    pub fn extend(&mut self, list: List, rows: Vec<R>, has_all: bool) {
        let decided = rows.into_iter().map(|row| {
            let facts = row.facts();
            let is_rechecked = !self.rechecked.is_empty() && self.rechecked.contains(&facts.seq);
            let disposition = if is_rechecked { Disposition::Ignore } else { self.decide(&facts) };
            (row, disposition)
        });
        let decided: Vec<(R, Disposition)> = decided.collect();
        self.rows(list).extend(decided.into_iter(), has_all);
    }

    /// The store does not read on in this list, though there may be more.
    pub fn stop(&mut self, list: List) {
        self.rows(list).stop();
    }

    fn rows(&mut self, list: List) -> &mut Rows<R> {
        match list {
            List::Fresh => &mut self.fresh,
            List::Waiting => &mut self.waiting,
        }
    }

    /// Takes rows until nothing more fits or every list is at its end. Names a list that ran out: the store reads on and
    /// [`extend`](Selector::extend)s it, or [`stop`](Selector::stop)s it, and runs again.
    pub fn run(&mut self) -> Option<List> {
        if self.turns.is_none() {
            self.let_returning_rows_in();
            if self.fresh.is_unknown() && self.budget.events() > 0 {
                return Some(List::Fresh);
            }
            if self.waiting.is_unknown() && self.budget.events() > 0 {
                return Some(List::Waiting);
            }
        }
        // The older ones go first: with room for one event, that is the one that has waited longest.
        let fresh = self.recheck.oldest().min(self.fresh.oldest());
        let others = self.waiting.oldest().min(self.returning_rows.oldest());
        let mut turns = *self.turns.get_or_insert(Turns::new(fresh < others));
        let asked = 'turns: loop {
            for kind in turns.order() {
                match self.take(kind) {
                    Next::Taken => {
                        turns.took(kind);
                        continue 'turns;
                    }
                    Next::RanOut => break 'turns Some(kind),
                    Next::IsFull | Next::IsAtEnd => {}
                }
            }
            break None;
        };
        self.turns = Some(turns);
        match asked? {
            Kind::Waiting => Some(List::Waiting),
            Kind::Fresh | Kind::Returning => Some(List::Fresh),
        }
    }

    /// What was chosen, and what is left.
    pub fn finish(mut self) -> Selection<R, K> {
        if self.turns.is_none() {
            self.let_returning_rows_in();
        }
        let Returning { empty, more, .. } = self.returning;
        let lists = [self.recheck, self.fresh, self.waiting, self.returning_rows];
        Selection::new(lists.map(Rows::finish), empty, more, self.budget)
    }

    fn decide(&self, facts: &Facts) -> Disposition {
        match (self.rules.decide(facts), facts.hold) {
            // A claim that reads up to a place has unparked this row to return it.
            (Disposition::Park { returning: true }, Some(hold))
                if self.is_bounded && self.returning.comes_after(facts.lane, hold.head, facts.seq) =>
            {
                Disposition::Deliver { held: true }
            }
            (disposition, _) => disposition,
        }
    }

    /// Lets the rows of freed keys in, but for keys that a row is about to be parked behind: it may be the first one that returns.
    fn let_returning_rows_in(&mut self) {
        let parked = self.recheck.parked_behind_returning();
        let keys: HashSet<(Lane, Seq)> =
            parked.filter_map(|facts| Some((facts.lane, facts.hold?.head))).collect();
        self.returning.leave(&keys);
        let rows = self.returning.take_rows();
        self.returning_rows.extend(rows.map(|row| (row, Disposition::Deliver { held: true })), true);
    }

    fn take(&mut self, kind: Kind) -> Next {
        let (budget, admission) = (&mut self.budget, self.admission);
        match kind {
            // Nothing fresh overtakes what is checked again: both may be of one key.
            Kind::Fresh => match self.recheck.take(budget, admission) {
                Next::IsAtEnd => self.fresh.take(budget, admission),
                next => next,
            },
            Kind::Waiting => self.waiting.take(budget, admission),
            Kind::Returning => self.returning_rows.take(budget, admission),
        }
    }
}

/// The kinds of rows that share a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fresh,
    Waiting,
    Returning,
}

/// Whose turn it is: fresh rows and the others take turns, so that neither keeps the other out.
#[derive(Debug, Clone, Copy)]
struct Turns {
    fresh: bool,
    returning: bool,
}

impl Turns {
    fn new(fresh_first: bool) -> Self {
        Self { fresh: fresh_first, returning: true }
    }

    /// Which kinds are asked for the next row, one after the other until one has it.
    fn order(&self) -> [Kind; 3] {
        let others = match self.returning {
            true => (Kind::Returning, Kind::Waiting),
            false => (Kind::Waiting, Kind::Returning),
        };
        match self.fresh {
            true => [Kind::Fresh, others.0, others.1],
            false => [others.0, others.1, Kind::Fresh],
        }
    }

    fn took(&mut self, kind: Kind) {
        self.fresh = !self.fresh;
        self.returning ^= kind != Kind::Fresh;
    }
}
