//! Remembers the first skipped event of each key.
//!
//! Keys are many and memory is not: each backlog has a table of fixed size, and keys that share a place share
//! its entry. The entry names the first event of all of them, so for one key it names its first event or an
//! earlier one, never a later one.

use std::collections::BTreeMap;

use postrider_core::store::Seq;

use super::backlog_id::BacklogId;

/// Places of all routes together, unless there are very many: 8 MiB.
const PLACES: usize = 1 << 20;

/// Fewest and most places of one backlog.
const LEAST: usize = 1 << 12;
const MOST: usize = 1 << 18;

/// A table is begun anew only if at least this part of it was used.
const WORTH: usize = 8;

/// The first events of all backlogs.
#[derive(Debug)]
pub(super) struct FirstSkipped {
    /// How many routes there are. Their tables are larger than those of other backlogs.
    routes: usize,
    slots: BTreeMap<BacklogId, BacklogFirsts>,
}

/// The first events of one backlog: recent ones, and those from before.
#[derive(Debug)]
struct BacklogFirsts {
    table: FirstTable,
    before: Option<FirstTable>,
    /// How many were recorded recently, the last event of all, and the last one from before.
    noted: usize,
    last: Seq,
    before_to: Seq,
}

impl BacklogFirsts {
    fn new(places: usize) -> Self {
        Self { table: FirstTable::new(places), before: None, noted: 0, last: 0, before_to: 0 }
    }
}

impl Default for FirstSkipped {
    fn default() -> Self {
        Self::new(2)
    }
}

impl FirstSkipped {
    /// For this many route slots.
    pub(super) fn new(routes: usize) -> Self {
        Self { routes, slots: BTreeMap::new() }
    }

    fn places(&self, id: BacklogId) -> usize {
        if id.route().is_none() {
            return LEAST;
        }
        (PLACES / self.routes.next_power_of_two()).clamp(LEAST, MOST)
    }

    /// Records a skipped event.
    pub(super) fn note(&mut self, id: BacklogId, key: u64, seq: Seq) {
        let places = self.places(id);
        let of_slot = self.slots.entry(id).or_insert_with(|| BacklogFirsts::new(places));
        of_slot.table.note(key, seq);
        of_slot.noted = of_slot.noted.saturating_add(1);
        of_slot.last = of_slot.last.max(seq);
    }

    /// Returns the first skipped event of a key, or an earlier event; none if no event of it was skipped.
    pub(super) fn least(&self, id: BacklogId, key: u64) -> Option<Seq> {
        let of_slot = self.slots.get(&id)?;
        let before = of_slot.before.as_ref().and_then(|before| before.least(key));
        of_slot.table.least(key).into_iter().chain(before).min()
    }

    /// Records that nothing up to this event is skipped any more. Old entries are dropped from time to time, or
    /// a backlog that never empties would know no first event any more.
    pub(super) fn is_over(&mut self, id: BacklogId, to: Seq) {
        let places = self.places(id);
        let Some(of_slot) = self.slots.get_mut(&id) else { return };
        if to >= of_slot.before_to && of_slot.noted >= places / WORTH {
            of_slot.before = Some(std::mem::replace(&mut of_slot.table, FirstTable::new(places)));
            (of_slot.before_to, of_slot.noted) = (of_slot.last, 0);
        }
    }

    /// Forgets all other backlogs.
    pub(super) fn retain(&mut self, keep: impl Fn(BacklogId) -> bool) {
        self.slots.retain(|id, _| keep(*id));
    }
}

/// The complement of the first event in each place. Zero stands for none, so untouched memory is not used.
#[derive(Debug)]
struct FirstTable(Box<[Seq]>);

impl FirstTable {
    fn new(places: usize) -> Self {
        Self(vec![0; places].into_boxed_slice())
    }

    /// The numbers of short keys differ little.
    fn place(&self, key: u64) -> usize {
        let mixed = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 32) as usize % self.0.len().max(1)
    }

    fn note(&mut self, key: u64, seq: Seq) {
        let place = self.place(key);
        self.0.get_mut(place).into_iter().for_each(|first| *first = (*first).max(!seq));
    }

    fn least(&self, key: u64) -> Option<Seq> {
        self.0.get(self.place(key)).filter(|first| **first > 0).map(|first| !first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{hash, slots::RouteSlot};

    const A: BacklogId = BacklogId::Route(RouteSlot::at(1));

    #[test]
    fn the_first_event_of_most_keys_is_known_and_none_is_taken_for_the_first_that_is_not() {
        for keys in [1000, 100_000, 1_000_000] {
            let mut firsts = FirstSkipped::new(2);
            let number = |n: u64| hash::of_key(&format!("tenant-{n}"));
            for round in 0..2 {
                (0..keys).for_each(|n| firsts.note(A, number(n), 1 + round * keys + n));
            }
            let known = (0..keys).filter(|n| firsts.least(A, number(*n)) == Some(1 + n)).count();
            assert!(known as u64 > keys / 50, "{known} of {keys}");
            assert!(keys > 1000 || known > 990, "{known} of {keys}");
            assert!((0..keys).all(|n| firsts.least(A, number(n)).is_some_and(|first| first <= 1 + n)));
        }
    }

    #[test]
    fn an_event_that_comes_late_is_known_to_be_the_first() {
        let mut firsts = FirstSkipped::default();
        assert_eq!(firsts.least(A, 7), None);
        firsts.note(A, 7, 9);
        firsts.note(A, 7, 5);
        firsts.note(A, 7, 12);
        assert_eq!((firsts.least(A, 7), firsts.least(BacklogId::Pause(0), 7)), (Some(5), None));
        firsts.retain(|id| id != A);
        assert_eq!(firsts.least(A, 7), None);
    }

    #[test]
    fn what_is_no_longer_skipped_is_forgotten_for_a_backlog_that_never_empties() {
        let (mut firsts, mut seq, keys) = (FirstSkipped::default(), 0, 2 * MOST as u64 / WORTH as u64);
        for _ in 0..5 {
            let before = seq;
            for n in 0..keys {
                seq += 1;
                firsts.note(A, hash::of_seq(n), seq);
            }
            firsts.is_over(A, before);
        }
        let is_known = |n: &u64| firsts.least(A, hash::of_seq(*n)) == Some(seq - keys + 1 + n);
        let known = (0..keys).filter(is_known).count() as u64;
        assert!(known > keys / 2, "{known} of {keys}");
    }
}
