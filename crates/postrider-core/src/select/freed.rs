//! Keys that are free again, and which of their parked rows return.

use std::collections::{HashMap, HashSet};

use super::row::{Row, Rules};
use crate::store::{Lane, Seq};

/// Most keys that return in one claim.
pub const RETURNING_KEYS_MAX: usize = 256;

/// Most events of one key that return in one claim.
pub const RETURNING_OF_A_KEY_MAX: usize = 16;

/// A key that is free again, with the first rows that are parked behind it.
#[derive(Debug)]
pub struct FreedKey<R, K> {
    /// Its lane.
    pub lane: Lane,
    /// The event that it waited for.
    pub head: Seq,
    /// What the store calls it.
    pub key: K,
    /// Its parked rows in order. One more than may return, if there are more.
    pub parked: Vec<R>,
}

/// What the freed keys of a claim come to.
#[derive(Debug)]
pub(super) struct Returning<R, K> {
    /// With the heads of their keys; in the order of these, and within a key in order.
    rows: Vec<(Seq, R)>,
    /// Keys that nothing is parked behind.
    pub(super) empty: Vec<(Lane, K)>,
    /// Whether there is more than this claim can return.
    pub(super) more: bool,
    /// By key, the first parked row that the engine does not have; none if it has all of them.
    first_parked: HashMap<(Lane, Seq), Option<Seq>>,
}

impl<R, K> Default for Returning<R, K> {
    fn default() -> Self {
        Self { rows: Vec::new(), empty: Vec::new(), more: false, first_parked: HashMap::new() }
    }
}

impl<R: Row, K> Returning<R, K> {
    /// Reads the freed keys, oldest head first. `met` says up to where the claims of a lane have met everything: beyond it an unparked event of the key
    /// may come first, so nothing returns from there.
    pub(super) fn of(
        keys: Vec<FreedKey<R, K>>,
        of_a_key_max: usize,
        rules: &Rules<'_>,
        met: impl Fn(Lane) -> Seq,
    ) -> Self {
        let mut returning = Self::default();
        let more_keys = keys.len() > RETURNING_KEYS_MAX;
        for FreedKey { lane, head, key, mut parked } in keys.into_iter().take(RETURNING_KEYS_MAX) {
            if parked.is_empty() {
                returning.empty.push((lane, key));
            }
            let is_longer = parked.len() > of_a_key_max;
            let first = parked.iter().map(|row| row.facts().seq).find(|seq| !rules.is_in_flight(*seq));
            // If the engine has all rows that were read, more may be parked behind them.
            if first.is_some() || !is_longer {
                returning.first_parked.insert((lane, head), first);
            }
            let before = returning.rows.len();
            parked.truncate(of_a_key_max);
            let is_due = |seq: Seq| seq <= met(lane) && !rules.is_in_flight(seq);
            let due = parked.into_iter().filter(|row| is_due(row.facts().seq));
            returning.rows.extend(due.map(|row| (head, row)));
            // What stands behind events that are all in memory is not due: the next settle makes it so.
            returning.more |= is_longer && returning.rows.len() > before;
        }
        returning.more |= more_keys && !returning.rows.is_empty();
        returning
    }

    /// Leaves the rows of these keys, named by their heads, to the next claim.
    pub(super) fn leave(&mut self, keys: &HashSet<(Lane, Seq)>) {
        if keys.is_empty() {
            return;
        }
        let before = self.rows.len();
        self.rows.retain(|(head, row)| !keys.contains(&(row.facts().lane, *head)));
        self.more |= self.rows.len() < before;
    }

    /// Takes out the rows that return.
    pub(super) fn take_rows(&mut self) -> impl Iterator<Item = R> + use<R, K> {
        std::mem::take(&mut self.rows).into_iter().map(|(_, row)| row)
    }

    /// Whether everything of a returning key that is parked and not in memory comes after this row.
    pub(super) fn comes_after(&self, lane: Lane, head: Seq, seq: Seq) -> bool {
        let first = self.first_parked.get(&(lane, head));
        first.is_some_and(|first| first.is_none_or(|first| seq < first))
    }
}
