//! Rows that a claim has seen, taken one after the other as far as the budget goes.

use postrider_core::store::{Admission, Glance, Seq};

use super::look::{Seen, State};
use crate::choose::Budget;

/// What became of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Taken,
    /// It is not wanted, and was passed over.
    Refused,
    /// It could not come.
    Passed,
}

/// Rows in their order. Only ever taken from the front: what is behind one that does not fit must not overtake it.
#[derive(Debug)]
pub(super) struct Stream {
    rows: Vec<Seen>,
    /// What became of the rows that were met; the rest was not.
    fates: Vec<Fate>,
    stopped: bool,
}

impl Stream {
    pub(super) fn new(rows: Vec<Seen>) -> Self {
        let fates = Vec::with_capacity(rows.len());
        let mut stream = Self { rows, fates, stopped: false };
        stream.pass();
        stream
    }

    /// Passes what cannot come.
    fn pass(&mut self) {
        while self.rows.get(self.fates.len()).is_some_and(|seen| seen.state != State::Due) {
            self.fates.push(Fate::Passed);
        }
    }

    /// Takes the next row that is wanted, if it fits. The rows in front of it that are not wanted are passed over.
    pub(super) fn take(&mut self, budget: &mut Budget, admission: Option<&dyn Admission>) -> bool {
        while let Some(seen) = self.rows.get(self.fates.len()).filter(|_| !self.stopped) {
            if !budget.fits(seen.weight) {
                return false;
            }
            let wanted = admission.is_none_or(|admission| admission.admits(&seen.glance()));
            if wanted {
                budget.take(seen.weight);
            }
            self.fates.push(if wanted { Fate::Taken } else { Fate::Refused });
            self.pass();
            if wanted {
                return true;
            }
        }
        false
    }

    /// Nothing more may be taken: something that comes first was not.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Whether all rows were met.
    pub(super) fn is_done(&self) -> bool {
        self.fates.len() >= self.rows.len()
    }

    /// The place of the next row that could come.
    pub(super) fn oldest(&self) -> Seq {
        self.rows.get(self.fates.len()).map_or(Seq::MAX, |seen| seen.seq)
    }

    pub(super) fn met(&self) -> impl DoubleEndedIterator<Item = &Seen> {
        self.rows.iter().take(self.fates.len())
    }

    pub(super) fn left(&self) -> impl Iterator<Item = &Seen> {
        self.rows.iter().skip(self.fates.len())
    }

    pub(super) fn taken(&self) -> impl Iterator<Item = &Seen> {
        self.with(Fate::Taken)
    }

    pub(super) fn refused(&self) -> impl Iterator<Item = &Seen> {
        self.with(Fate::Refused)
    }

    fn with(&self, fate: Fate) -> impl Iterator<Item = &Seen> {
        self.rows.iter().zip(&self.fates).filter(move |(_, known)| **known == fate).map(|(seen, _)| seen)
    }
}

impl Seen {
    fn glance(&self) -> Glance<'_> {
        let words = self.words.as_ref();
        Glance {
            lane: self.lane,
            seq: self.seq,
            event_type: words.map_or("", |words| &words.event_type),
            aggregate_type: words.map_or("", |words| &words.aggregate_type),
            key: words.and_then(|words| words.key.as_deref()),
            due_at: self.waits.then_some(self.available_at),
        }
    }
}
