//! What a claim has chosen, and what it has to write back.

use std::collections::BTreeSet;

use super::{
    budget::Budget,
    row::{Disposition, Facts, Row},
};
use crate::{
    Timestamp,
    store::{Lane, Position, Seq},
};

/// A list as a claim has left it.
#[derive(Debug)]
pub struct Scanned<R> {
    /// The rows that the claim has met, and what becomes of each.
    pub met: Vec<(R, Disposition)>,
    /// The rows that were read and are left to the next claim.
    pub left: Vec<R>,
    /// Whether all that there is was met.
    pub is_done: bool,
}

impl<R: Row> Scanned<R> {
    /// The last row that was met.
    pub fn last(&self) -> Option<&R> {
        self.met.last().map(|(row, _)| row)
    }

    fn chosen(&self) -> impl Iterator<Item = &R> {
        let is_chosen = |met: &&(R, Disposition)| matches!(met.1, Disposition::Deliver { .. });
        self.met.iter().filter(is_chosen).map(|(row, _)| row)
    }

    fn skipped(&self) -> impl Iterator<Item = &R> {
        self.met.iter().filter(|(_, disposition)| *disposition == Disposition::Skip).map(|(row, _)| row)
    }
}

/// What a claim has chosen, and what is left.
#[derive(Debug)]
pub struct Selection<R, K> {
    /// Rows that were checked again.
    pub recheck: Scanned<R>,
    /// Fresh rows.
    pub fresh: Scanned<R>,
    /// Waiting rows.
    pub waiting: Scanned<R>,
    /// Rows of freed keys.
    pub returning: Scanned<R>,
    /// Freed keys that nothing is parked behind.
    pub empty_keys: Vec<(Lane, K)>,
    /// Whether the next claim finds more, as far as the lists tell.
    pub more: bool,
    /// When the first of the rows is due that are to wait from now on.
    pub next_due: Option<Timestamp>,
    /// What is left of the limits.
    pub budget: Budget,
}

/// What a claim has to write. Each statement asks again for its reason, which may be over by then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteBack<K> {
    /// Followers, to be parked behind the heads of their keys.
    pub park: Vec<(Lane, Seq)>,
    /// Rows that are to wait for their time.
    pub delay: Vec<(Lane, Seq)>,
    /// Rows that returned and are not wanted: they are unparked, so that they are found among the others. Those of a key are in order.
    pub unpark: Vec<(Lane, Seq)>,
    /// Keys that nothing is parked behind: they are no longer held.
    pub free: Vec<(Lane, K)>,
}

impl<K> Default for WriteBack<K> {
    fn default() -> Self {
        Self { park: Vec::new(), delay: Vec::new(), unpark: Vec::new(), free: Vec::new() }
    }
}

impl<K> WriteBack<K> {
    /// The lanes that are written to.
    pub fn lanes(&self) -> BTreeSet<Lane> {
        let rows = self.park.iter().chain(&self.delay).chain(&self.unpark).map(|(lane, _)| *lane);
        rows.chain(self.free.iter().map(|(lane, _)| *lane)).collect()
    }

    /// What has to be checked again if it cannot be written. Parked rows and empty keys are met again by themselves.
    pub fn to_recheck(&self) -> impl Iterator<Item = (Lane, Seq)> {
        self.park.iter().chain(&self.delay).copied()
    }
}

impl<R: Row, K> Selection<R, K> {
    pub(super) fn new(
        [recheck, fresh, waiting, returning]: [Scanned<R>; 4],
        empty_keys: Vec<(Lane, K)>,
        more_return: bool,
        budget: Budget,
    ) -> Self {
        let mut selection = Self {
            recheck,
            fresh,
            waiting,
            returning,
            empty_keys,
            more: more_return,
            next_due: None,
            budget,
        };
        // What is parked behind a key that is free already is due as soon as it is parked.
        let parked = Disposition::Park { returning: true };
        let parks_behind_returning = selection.met().any(|(_, disposition)| *disposition == parked);
        selection.more |= parks_behind_returning || !selection.is_done();
        let delayed = selection.met().filter(|(_, disposition)| *disposition == Disposition::Delay);
        selection.next_due = delayed.filter_map(|(row, _)| row.facts().due_at).min();
        selection
    }

    /// Whether all rows of all lists were met.
    fn is_done(&self) -> bool {
        let Self { recheck, fresh, waiting, returning, .. } = self;
        recheck.is_done && fresh.is_done && waiting.is_done && returning.is_done
    }

    /// The rows that were met, but for those that returned.
    fn met(&self) -> impl Iterator<Item = &(R, Disposition)> {
        self.recheck.met.iter().chain(&self.fresh.met).chain(&self.waiting.met)
    }

    /// The rows that were chosen, list by list.
    pub fn chosen(&self) -> impl Iterator<Item = &R> {
        let Self { recheck, fresh, waiting, returning, .. } = self;
        recheck.chosen().chain(fresh.chosen()).chain(waiting.chosen()).chain(returning.chosen())
    }

    /// The rows that were chosen, list by list, and whether their keys are held.
    pub fn into_chosen(self) -> impl Iterator<Item = (R, bool)> {
        let lists = [self.recheck, self.fresh, self.waiting, self.returning].into_iter();
        lists.flat_map(|list| list.met).filter_map(|(row, disposition)| match disposition {
            Disposition::Deliver { held } => Some((row, held)),
            _ => None,
        })
    }

    /// How many rows could be delivered and were not wanted.
    pub fn skipped(&self) -> usize {
        let Self { recheck, fresh, waiting, returning, .. } = self;
        [recheck, fresh, waiting, returning].into_iter().map(|list| list.skipped().count()).sum()
    }

    /// The rows that returned and were not wanted.
    pub fn unwanted(&self) -> impl Iterator<Item = &R> {
        self.returning.skipped()
    }

    /// What has to be checked again by the next claim.
    pub fn recheck_left(&self) -> impl Iterator<Item = (Lane, Seq)> {
        self.recheck.left.iter().map(|row| row.facts()).map(|facts| (facts.lane, facts.seq))
    }

    /// Where a lane goes on among its waiting rows: behind the last one that was met. At the end of what is due it goes back to the start, once all lanes
    /// are through (one that went back alone would return its rows over and over before those of longer lanes), unless rows may have been
    /// skipped.
    pub fn waiting_from(&self, lane: Lane, from: Position, starts_over: bool) -> (Timestamp, Seq) {
        if starts_over && self.waiting.is_done {
            return (Position::START.due_at, Position::START.due_seq);
        }
        let of_lane = self.waiting.met.iter().rev().map(|(row, _)| row.facts());
        let last = of_lane.into_iter().find(|facts| facts.lane == lane);
        last.map_or((from.due_at, from.due_seq), |facts| (facts.due_at.unwrap_or_default(), facts.seq))
    }

    /// What has to be written.
    pub fn write_back(&mut self) -> WriteBack<K> {
        let place = |facts: Facts| (facts.lane, facts.seq);
        let mut write_back = WriteBack { free: std::mem::take(&mut self.empty_keys), ..WriteBack::default() };
        for (row, disposition) in self.met() {
            match disposition {
                Disposition::Park { .. } => write_back.park.push(place(row.facts())),
                Disposition::Delay => write_back.delay.push(place(row.facts())),
                Disposition::Deliver { .. } | Disposition::Ignore | Disposition::Skip => {}
            }
        }
        write_back.unpark = self.unwanted().map(|row| place(row.facts())).collect();
        write_back
    }
}
