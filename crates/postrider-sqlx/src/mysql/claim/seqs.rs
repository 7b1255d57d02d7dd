//! A set of places in the order. They lie close together, so it is made of bits.

use std::collections::BTreeMap;

use postrider_core::store::Seq;

use super::super::statement::LIST_MAX;

/// Words in one page of bits.
const WORDS: usize = 64;

/// Numbers in one page of bits.
pub(super) const PAGE: u64 = 64 * WORDS as u64;

/// Most numbers of a page that are worth to be asked for one by one.
const SPARSE_MAX: usize = 256;

/// So many are enough for one statement.
const ENOUGH: usize = LIST_MAX - SPARSE_MAX;

/// Numbers that are not in a set, as they are best read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unmet {
    /// These alone, and no other one down to the second, which the search goes on below.
    Few(Vec<Seq>, Seq),
    /// Most of what lies after the first and up to the second.
    Most(Seq, Seq),
}

/// The set.
#[derive(Debug, Default)]
pub(super) struct Seqs(BTreeMap<u64, [u64; WORDS]>);

fn place(seq: Seq) -> (u64, usize, u64) {
    let within = seq % PAGE;
    (seq / PAGE, usize::try_from(within / 64).unwrap_or_default(), 1 << (within % 64))
}

impl Seqs {
    pub(super) fn insert(&mut self, seq: Seq) {
        let (page, word, bit) = place(seq);
        if let Some(word) = self.0.entry(page).or_insert([0; WORDS]).get_mut(word) {
            *word |= bit;
        }
    }

    pub(super) fn contains(&self, seq: Seq) -> bool {
        let (page, word, bit) = place(seq);
        self.0.get(&page).and_then(|page| page.get(word)).is_some_and(|word| word & bit != 0)
    }

    /// Forgets what lies on pages below.
    pub(super) fn forget(&mut self, below: Seq) {
        self.0 = self.0.split_off(&(below / PAGE));
    }

    /// The first number after this one that is not in the set.
    pub(super) fn first_missing(&self, after: Seq) -> Seq {
        let mut first = after.saturating_add(1);
        while first < Seq::MAX {
            let Some(page) = self.0.get(&(first / PAGE)) else { return first };
            let mut start = first / PAGE * PAGE;
            for word in page {
                let passed = first.saturating_sub(start).min(64);
                let left = if passed < 64 { !word >> passed << passed } else { 0 };
                if left != 0 {
                    return start.saturating_add(u64::from(left.trailing_zeros()));
                }
                start = start.saturating_add(64);
            }
            first = start;
        }
        first
    }

    /// The last numbers after `after` and up to `to` that are not in the set: one by one if they are few on their pages, and else as far as
    /// they are many.
    pub(super) fn unmet(&self, after: Seq, to: Seq) -> Unmet {
        let (mut few, mut reached) = (Vec::new(), to);
        while reached > after && few.len() < ENOUGH {
            let before_page = (reached / PAGE * PAGE).saturating_sub(1).max(after);
            match self.missing(before_page, reached) {
                Some(missing) => few.extend(missing),
                None if few.is_empty() => {
                    return Unmet::Most(self.start_of_most(after, before_page), reached);
                }
                None => break,
            }
            reached = before_page;
        }
        Unmet::Few(few, reached)
    }

    /// From where on, up to the end of a page, the numbers that are not in the set are many. Visits only pages that have something in them, so
    /// a hole in the numbers costs nothing, however wide it is.
    fn start_of_most(&self, after: Seq, end: Seq) -> Seq {
        if end <= after {
            return after;
        }
        let last_of = |page: u64| (page * PAGE).saturating_add(PAGE - 1).min(end);
        let is_sparse = |page: u64| {
            let before_page = (page * PAGE).saturating_sub(1).max(after);
            self.missing(before_page, last_of(page)).is_some()
        };
        let mut pages =
            self.0.range(after.saturating_add(1) / PAGE..=end / PAGE).rev().map(|(page, _)| *page);
        pages.find(|page| is_sparse(*page)).map_or(after, last_of)
    }

    /// The numbers of a part of a page that are not in the set; none if they are many.
    fn missing(&self, after: Seq, to: Seq) -> Option<Vec<Seq>> {
        let first = after.saturating_add(1);
        let page = self.0.get(&(first / PAGE)).unwrap_or(&[0; WORDS]);
        let mut missing = Vec::new();
        let mut start = first / PAGE * PAGE;
        for word in page {
            let mut left = !word;
            while left != 0 && missing.len() <= SPARSE_MAX {
                let seq = start.saturating_add(u64::from(left.trailing_zeros()));
                left &= left - 1;
                missing.extend((first..=to).contains(&seq).then_some(seq));
            }
            start = start.saturating_add(64);
        }
        (missing.len() <= SPARSE_MAX).then_some(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_inserted_is_there_until_it_is_forgotten() {
        let mut seqs = Seqs::default();
        [1, 63, 64, PAGE, 10 * PAGE].into_iter().for_each(|seq| seqs.insert(seq));
        let there = |seqs: &Seqs| [1, 2, 63, 64, 65, PAGE, PAGE + 1, 10 * PAGE].map(|seq| seqs.contains(seq));
        assert_eq!(there(&seqs), [true, false, true, true, false, true, false, true]);
        seqs.forget(5 * PAGE);
        assert_eq!(there(&seqs), [false, false, false, false, false, false, false, true]);
    }

    #[test]
    fn few_that_are_missing_are_named_and_many_are_a_range() {
        let mut seqs = Seqs::default();
        (1..10 * PAGE).filter(|seq| seq % 1000 != 0).for_each(|seq| seqs.insert(seq));
        assert_eq!(sorted(seqs.unmet(10, 4500)), Unmet::Few(vec![1000, 2000, 3000, 4000], 10));
        assert_eq!(seqs.unmet(1000, 1999), Unmet::Few(vec![], 1000));
        // Nothing was met beyond the tenth page.
        let to = 30 * PAGE - 1;
        assert_eq!(seqs.unmet(10, to), Unmet::Most(10 * PAGE - 1, to));
        let Unmet::Few(few, reached) = seqs.unmet(10, 10 * PAGE - 1) else { panic!() };
        assert_eq!((few.len() as u64, reached), ((10 * PAGE - 1) / 1000, 10));
        // Ranges begin where few are missing no more.
        (20 * PAGE..21 * PAGE).for_each(|seq| seqs.insert(seq));
        assert_eq!(seqs.unmet(10, to), Unmet::Most(21 * PAGE - 1, to));
        assert_eq!(seqs.unmet(10, 21 * PAGE - 1), Unmet::Most(10 * PAGE - 1, 20 * PAGE - 1));
        assert_eq!(seqs.unmet(20 * PAGE - 1, 21 * PAGE - 1), Unmet::Few(vec![], 20 * PAGE - 1));
        assert_eq!(seqs.unmet(10, 20 * PAGE - 1), Unmet::Most(10 * PAGE - 1, 20 * PAGE - 1));
    }

    #[test]
    fn the_first_that_is_missing_is_found_on_any_page() {
        let mut seqs = Seqs::default();
        (1..3 * PAGE)
            .filter(|seq| ![64, 65, 2 * PAGE, 3 * PAGE - 1].contains(seq))
            .for_each(|seq| seqs.insert(seq));
        let (mut after, mut found) = (0, Vec::new());
        while found.len() < 6 {
            after = seqs.first_missing(after);
            found.push(after);
        }
        assert_eq!(found, [64, 65, 2 * PAGE, 3 * PAGE - 1, 3 * PAGE, 3 * PAGE + 1]);
        seqs.insert(Seq::MAX);
        assert_eq!((seqs.first_missing(Seq::MAX - 1), seqs.first_missing(Seq::MAX)), (Seq::MAX, Seq::MAX));
    }

    #[test]
    fn a_range_may_end_with_the_last_number_of_the_page_that_it_begins_in() {
        let mut seqs = Seqs::default();
        seqs.insert(1);
        for to in [PAGE - 2, PAGE - 1] {
            assert_eq!(seqs.unmet(0, to), Unmet::Most(0, to));
        }
        assert_eq!(seqs.unmet(0, PAGE), Unmet::Few(vec![PAGE], PAGE - 1));
        seqs.insert(Seq::MAX);
        assert_eq!(seqs.unmet(Seq::MAX - 1000, Seq::MAX), Unmet::Most(Seq::MAX - 1000, Seq::MAX));
    }

    /// Walking this hole page by page would take hours.
    #[test]
    fn a_hole_is_one_range_however_wide_it_is() {
        for far in [1_000_000_000_000, i64::MAX.unsigned_abs(), Seq::MAX - 10] {
            let mut seqs = Seqs::default();
            (1..=PAGE).for_each(|seq| seqs.insert(seq));
            (far..=far.saturating_add(5)).for_each(|seq| seqs.insert(seq));
            let start = (far - 1) / PAGE * PAGE - 1;
            assert_eq!(seqs.unmet(0, start), Unmet::Most(PAGE - 1, start));
            assert_eq!(
                sorted(seqs.unmet(far - 1, far + 8)),
                Unmet::Few(vec![far + 6, far + 7, far + 8], far - 1)
            );
        }
    }

    #[test]
    fn a_range_begins_behind_a_page_before_the_hole_that_few_are_missing_of() {
        let mut seqs = Seqs::default();
        let far = 1_000_000 * PAGE;
        (7 * PAGE..8 * PAGE).for_each(|seq| seqs.insert(seq));
        assert_eq!(seqs.unmet(5, far - 1), Unmet::Most(8 * PAGE - 1, far - 1));
        assert_eq!(seqs.unmet(7 * PAGE + 9, far - 1), Unmet::Most(8 * PAGE - 1, far - 1));
        assert_eq!(seqs.unmet(5, 7 * PAGE - 1), Unmet::Most(5, 7 * PAGE - 1));
    }

    fn sorted(unmet: Unmet) -> Unmet {
        match unmet {
            Unmet::Few(mut seqs, reached) => {
                seqs.sort_unstable();
                Unmet::Few(seqs, reached)
            }
            most => most,
        }
    }
}
