//! One list of rows that a claim takes from, from its front only.

use super::{
    budget::Budget,
    row::{Disposition, Facts, Row},
    selection::Scanned,
};
use crate::store::{Admission, Seq};

/// What came of asking a list for its next row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Taken,
    /// Its next row does not fit.
    IsFull,
    /// All its rows were met, and there are no more.
    IsAtEnd,
    /// All its rows were met, and the store can read on.
    RanOut,
}

#[derive(Debug)]
pub(super) struct Rows<R> {
    rows: Vec<(R, Disposition)>,
    /// How many of them were met.
    met: usize,
    /// Whether there are no more.
    has_all: bool,
    /// Whether the store does not read on.
    is_stopped: bool,
}

impl<R> Default for Rows<R> {
    fn default() -> Self {
        Self { rows: Vec::new(), met: 0, has_all: true, is_stopped: false }
    }
}

impl<R: Row> Rows<R> {
    pub(super) fn extend(&mut self, rows: impl Iterator<Item = (R, Disposition)>, has_all: bool) {
        self.rows.extend(rows);
        self.has_all = has_all;
    }

    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// The rows that are parked behind a key that returns.
    pub(super) fn parked_behind_returning(&self) -> impl Iterator<Item = Facts> {
        let parked = |row: &&(R, Disposition)| row.1 == Disposition::Park { returning: true };
        self.rows.iter().filter(parked).map(|(row, _)| row.facts())
    }

    /// The place of the next row that can be delivered.
    pub(super) fn oldest(&self) -> Seq {
        let deliverable = |row: &&(R, Disposition)| matches!(row.1, Disposition::Deliver { .. });
        let next = self.rows.iter().skip(self.met).find(deliverable);
        next.map_or(Seq::MAX, |(row, _)| row.facts().seq)
    }

    /// Whether the store has to read on to say what the next row is.
    pub(super) fn is_unknown(&self) -> bool {
        !self.has_all && !self.is_stopped && self.oldest() == Seq::MAX
    }

    /// Goes on to the next row that is wanted, and takes it if it fits.
    pub(super) fn take(&mut self, budget: &mut Budget, admission: Option<&dyn Admission>) -> Next {
        while let Some((row, disposition)) = self.rows.get_mut(self.met) {
            if matches!(disposition, Disposition::Deliver { .. }) {
                let bytes = row.facts().bytes;
                if !budget.fits(bytes) {
                    return Next::IsFull;
                }
                self.met += 1;
                if admission.is_none_or(|admission| admission.admits(&row.summary())) {
                    budget.take(bytes);
                    return Next::Taken;
                }
                *disposition = Disposition::Skip;
            } else {
                self.met += 1;
            }
        }
        match budget.events() {
            _ if self.has_all => Next::IsAtEnd,
            0 => Next::IsFull,
            _ if self.is_stopped => Next::IsFull,
            _ => Next::RanOut,
        }
    }

    pub(super) fn finish(mut self) -> Scanned<R> {
        let is_done = self.has_all && self.met >= self.rows.len();
        let left = self.rows.split_off(self.met.min(self.rows.len()));
        Scanned { met: self.rows, left: left.into_iter().map(|(row, _)| row).collect(), is_done }
    }
}
