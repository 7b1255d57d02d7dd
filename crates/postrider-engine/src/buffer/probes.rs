//! Which events a receiver that is down is tried with. It may refuse thousands of events for a reason of their own, and take those behind them.
//!
//! The first few are tried one after the other. From then on each claim looks for one, and three of four begin somewhere else in the backlog: in its
//! middle, then in the middle of each half, and so on. Where an event was taken, the next ones are tried first.

use std::collections::BTreeSet;

use postrider_core::store::Seq;

/// So many events that were tried are known by their numbers.
const TRIED_MAX: usize = 1024;

/// So many are tried one after the other.
const IN_A_ROW: u32 = 8;

/// One claim of so many begins at the first event.
const FROM_FIRST: u32 = 4;

/// Events of one slot that were tried in vain.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// The last ones, by their numbers.
    tried: BTreeSet<Seq>,
    /// How many probes there were since one was taken.
    in_vain: u32,
    /// How often claims have looked for others.
    turns: u32,
    /// The last event that was taken.
    taken: Option<Seq>,
}

impl Probes {
    /// An event was tried in vain, as a probe or with others when its receiver went down.
    pub(super) fn note_tried(&mut self, seq: Seq, probe: bool) {
        if self.tried.len() >= TRIED_MAX {
            self.tried.pop_first();
        }
        self.tried.insert(seq);
        self.in_vain = self.in_vain.saturating_add(u32::from(probe));
        if self.taken.is_some_and(|taken| taken <= seq) {
            self.taken = None;
        }
    }

    /// An event was taken. Others like it may lie behind it.
    pub(super) fn note_taken(&mut self, seq: Seq) {
        (self.in_vain, self.taken) = (0, Some(seq));
    }

    /// Nothing was found elsewhere: the next claim begins at the first event.
    pub(super) fn found_nothing(&mut self) {
        self.taken = None;
        self.turns = self.turns.next_multiple_of(FROM_FIRST).wrapping_sub(1);
    }

    pub(super) fn was_tried(&self, seq: Seq) -> bool {
        self.tried.contains(&seq)
    }

    /// Whether many were tried in vain, so that the next one is looked for somewhere else: what is refused in one place is refused beside it too.
    pub(super) fn look_for_one(&self) -> bool {
        self.in_vain >= IN_A_ROW && self.taken.is_none()
    }

    /// Another claim looks for events to try.
    pub(super) fn take_turn(&mut self) {
        self.turns = self.turns.wrapping_add(1);
    }

    /// Where this claim begins in a lane that has its first event at one place and has been read up to another; none for the first event.
    pub(super) fn begin(&self, first: Seq, read_to: Seq) -> Option<Seq> {
        if let Some(taken) = self.taken {
            return Some(taken);
        }
        if self.in_vain < IN_A_ROW || self.turns.is_multiple_of(FROM_FIRST) {
            return None;
        }
        let others = self.turns - self.turns / FROM_FIRST;
        let part = u128::from(others.reverse_bits());
        let ahead = (u128::from(read_to.saturating_sub(first)) * part) >> u32::BITS;
        Some(first.saturating_add(Seq::try_from(ahead).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_vain() -> Probes {
        let mut probes = Probes::default();
        (1..=Seq::from(IN_A_ROW)).for_each(|seq| probes.note_tried(seq, true));
        probes
    }

    #[test]
    fn the_first_few_are_tried_in_a_row_and_then_most_claims_begin_elsewhere() {
        let mut probes = Probes::default();
        probes.take_turn();
        assert_eq!(probes.begin(0, 1000), None);
        let mut probes = in_vain();
        let mut begins = Vec::new();
        for _ in 0..6 {
            probes.take_turn();
            begins.push(probes.begin(100, 1100));
        }
        assert_eq!(begins, [Some(600), Some(350), Some(850), None, Some(225), Some(725)]);
    }

    #[test]
    fn a_batch_that_was_refused_when_the_receiver_went_down_is_no_probe() {
        let mut probes = Probes::default();
        (1..100).for_each(|seq| probes.note_tried(seq, false));
        probes.take_turn();
        assert_eq!(probes.begin(0, 1000), None);
        assert!(!probes.look_for_one());
    }

    #[test]
    fn good_events_behind_many_bad_ones_are_found_soon() {
        for (first_good, last_good) in [(100_000, 100_100), (50_000, 53_000), (90_000, 100_000)] {
            let mut probes = in_vain();
            let found = (0..10_000).find(|_| {
                probes.take_turn();
                probes.begin(0, 100_000).is_some_and(|seq| (first_good..last_good).contains(&(seq + 100)))
            });
            assert!(found.is_some_and(|claims| claims < 2500), "{found:?}");
        }
    }

    #[test]
    fn where_one_was_taken_the_next_ones_are_tried_first_until_one_is_refused() {
        let mut probes = in_vain();
        probes.note_taken(500);
        assert_eq!(probes.begin(0, 1000), Some(500));
        probes.note_tried(20, true);
        assert_eq!(probes.begin(0, 1000), Some(500), "that one lies elsewhere");
        probes.note_tried(501, true);
        assert_eq!(probes.begin(0, 1000), None);
    }
}
