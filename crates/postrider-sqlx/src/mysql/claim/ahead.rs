//! Which fresh rows ahead of the lanes a claim may return. Does no I/O.
//!
//! A row may be returned only if everything that could be seen behind it, when it could be seen, was met. Of two rows of one transaction, or where the
//! first was committed before the second was inserted, the first can be seen whenever the second can. So there are two ways to know:
//! every number behind a row was met, or a back scan that began after the row was seen has ended.

use std::sync::Arc;

use postrider_core::store::{Lane, Seq};

/// Fresh rows that could be seen at one moment, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Ahead(Arc<[Seq]>);

impl Ahead {
    pub(super) fn of(rows: impl IntoIterator<Item = Seq>) -> Self {
        let mut seqs: Vec<Seq> = rows.into_iter().collect();
        seqs.sort_unstable();
        Self(seqs.into())
    }

    pub(super) fn contains(&self, seq: Seq) -> bool {
        self.0.binary_search(&seq).is_ok()
    }

    /// The first of them that is not among these, which are in order.
    pub(super) fn first_other(&self, than: &[Seq]) -> Option<Seq> {
        self.0.iter().copied().find(|seq| than.binary_search(seq).is_err())
    }

    /// Whether half of them lie behind this place, or more.
    pub(super) fn is_half_behind(&self, seq: Seq) -> bool {
        self.0.partition_point(|ahead| *ahead <= seq) * 2 >= self.0.len()
    }

    /// The last of them.
    pub(super) fn last(&self) -> Seq {
        self.0.last().copied().unwrap_or_default()
    }
}

/// The last place up to which these rows, in order, may be returned: those before the first number that was not met, and those that were
/// `seen` before what is behind them was read.
pub(super) fn end(rows: &[(Lane, Seq)], first_unmet: Seq, seen: impl Fn(Lane, Seq) -> bool) -> Seq {
    let first = rows.iter().find(|(lane, seq)| *seq > first_unmet && !seen(*lane, *seq));
    first.map_or(Seq::MAX, |(_, seq)| seq.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_returned_up_to_the_first_that_stands_behind_an_unmet_number_and_was_not_seen_in_time() {
        let rows = [(0, 5), (1, 6), (0, 8), (1, 9), (0, 12)];
        let seen = |lane, seq| lane == 0 || seq == 9;
        assert_eq!(end(&rows, Seq::MAX, |_, _| false), Seq::MAX);
        assert_eq!(end(&rows, 7, |_, _| false), 7);
        assert_eq!(end(&rows, 7, seen), Seq::MAX);
        assert_eq!(end(&rows, 4, seen), 5);
    }

    #[test]
    fn what_was_seen_at_a_moment_is_known_by_its_number() {
        let ahead = Ahead::of([70_000, 3, 9]);
        assert_eq!([3, 4, 9, 70_000].map(|seq| ahead.contains(seq)), [true, false, true, true]);
        assert_eq!((ahead.last(), Ahead::default().last()), (70_000, 0));
        assert_eq!([3, 8, 9].map(|seq| ahead.is_half_behind(seq)), [false, false, true]);
        assert_eq!(ahead.first_other(&[1, 3, 9]), Some(70_000));
        assert_eq!((ahead.first_other(&[9]), ahead.first_other(&[3, 9, 70_000])), (Some(3), None));
    }
}
