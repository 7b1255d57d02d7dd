//! The rules of a claim, on lists in memory.

use std::sync::{Arc, Mutex};

use super::{
    row::tests::{NOW, fresh, held_by, waiting},
    *,
};
use crate::{
    Timestamp,
    store::{Admission, Claim, Lease, Position, RowSummary, Seq, Token},
};

fn claim(limit: usize) -> Claim {
    let token = Token { epoch: 1, nonce: 1 };
    let lane = crate::store::LaneClaim::after(Lease { lane: 0, token }, Position::START);
    Claim::new(vec![lane], limit)
}

fn rules() -> Rules<'static> {
    Rules { now: NOW, in_flight: &[] }
}

fn parked(seq: Seq, head: Seq) -> Facts {
    held_by(head, true, waiting(seq))
}

fn freed(head: Seq, parked_seqs: &[Seq]) -> FreedKey<Facts, Seq> {
    let parked = parked_seqs.iter().map(|seq| parked(*seq, head)).collect();
    FreedKey { lane: 0, head, key: head, parked }
}

fn chosen(selection: &Selection<Facts, Seq>) -> Vec<Seq> {
    selection.chosen().map(|facts| facts.seq).collect()
}

/// How many of each list come if there are so many of them.
fn shares(first_fresh: Seq, [fresh_rows, waiting_rows, returning]: [u64; 3], limit: usize) -> [usize; 3] {
    let claim = claim(limit);
    let mut selector: Selector<'_, Facts, Seq> = Selector::new(&claim, rules());
    // One key each, so that no limit of a key is met.
    let keys = (0..returning).map(|n| freed(2000 + n, &[3000 + n])).collect();
    selector.freed(keys, |_| Seq::MAX);
    selector.extend(List::Fresh, (0..fresh_rows).map(|n| fresh(first_fresh + n)).collect(), true);
    selector.extend(List::Waiting, (0..waiting_rows).map(|n| waiting(1000 + n)).collect(), true);
    assert_eq!(selector.run(), None);
    let Selection { fresh, waiting, returning, .. } = selector.finish();
    [fresh, waiting, returning].map(|list| list.met.len())
}

#[test]
fn fresh_rows_and_the_others_have_half_of_a_claim_each() {
    assert_eq!(shares(9000, [100, 100, 100], 40), [20, 10, 10]);
    assert_eq!(shares(9000, [100, 100, 0], 40), [20, 20, 0]);
}

#[test]
fn what_one_list_leaves_goes_to_the_others() {
    assert_eq!(shares(9000, [100, 3, 0], 40), [37, 3, 0]);
    assert_eq!(shares(1, [3, 0, 100], 40), [3, 0, 37]);
    assert_eq!(shares(1, [3, 3, 3], 40), [3, 3, 3]);
}

#[test]
fn with_room_for_one_the_older_one_comes() {
    assert_eq!(shares(1, [5, 5, 0], 1), [1, 0, 0]);
    assert_eq!(shares(9000, [5, 0, 5], 1), [0, 0, 1]);
}

#[test]
fn nothing_overtakes_a_row_that_does_not_fit() {
    let claim = Claim { bytes: 10, ..claim(10) };
    let mut selector: Selector<'_, Facts, Seq> = Selector::new(&claim, rules());
    let rows = vec![fresh(1), Facts { bytes: 100, ..fresh(2) }, fresh(3)];
    selector.extend(List::Fresh, rows, true);
    assert_eq!(selector.run(), None);
    let selection = selector.finish();
    assert_eq!(chosen(&selection), [1]);
    assert_eq!(selection.fresh.left.iter().map(|facts| facts.seq).collect::<Vec<_>>(), [2, 3]);
    assert!(selection.more && !selection.fresh.is_done);
}

#[test]
fn nothing_fresh_comes_before_all_that_is_checked_again() {
    let claim = Claim { bytes: 10, ..claim(10) };
    let mut selector: Selector<'_, Facts, Seq> = Selector::new(&claim, rules());
    selector.recheck(vec![fresh(1), Facts { bytes: 100, ..fresh(2) }]);
    selector.extend(List::Fresh, vec![fresh(2), fresh(3)], true);
    assert_eq!(selector.run(), None);
    let selection = selector.finish();
    assert_eq!(chosen(&selection), [1]);
    assert_eq!(selection.recheck_left().collect::<Vec<_>>(), [(0, 2)]);
}

#[test]
fn a_list_that_runs_out_is_read_on_before_another_has_its_turn() {
    let claim = claim(4);
    let mut selector: Selector<'_, Facts, Seq> = Selector::new(&claim, rules());
    selector.extend(List::Fresh, vec![held_by(9, false, fresh(1))], false);
    selector.extend(List::Waiting, (10..20).map(waiting).collect(), true);
    assert_eq!(selector.run(), Some(List::Fresh), "nothing is known of what is fresh");
    selector.extend(List::Fresh, vec![fresh(2)], false);
    assert_eq!(selector.run(), Some(List::Fresh));
    selector.extend(List::Fresh, vec![fresh(3), fresh(4)], false);
    assert_eq!(selector.run(), None);
    let mut selection = selector.finish();
    assert_eq!(chosen(&selection), [2, 3, 10, 11]);
    assert_eq!(selection.write_back().park, [(0, 1)]);
}

#[test]
fn a_list_that_is_not_read_on_leaves_its_turns_to_the_others() {
    let claim = claim(4);
    let mut selector: Selector<'_, Facts, Seq> = Selector::new(&claim, rules());
    selector.extend(List::Fresh, vec![fresh(1)], false);
    selector.stop(List::Fresh);
    selector.extend(List::Waiting, (10..20).map(waiting).collect(), true);
    assert_eq!(selector.run(), None);
    let selection = selector.finish();
    assert_eq!(chosen(&selection), [1, 10, 11, 12]);
    assert!(selection.more && !selection.fresh.is_done);
}

#[derive(Debug, Default)]
struct Odd(Mutex<Vec<Seq>>);

impl Admission for Odd {
    fn admits(&self, row: &RowSummary<'_>) -> bool {
        self.0.lock().unwrap().push(row.seq);
        row.seq % 2 == 1
    }
}

#[test]
fn an_admission_is_asked_once_about_what_fits_and_the_unwanted_is_skipped() {
    let odd = Arc::new(Odd::default());
    let claim = Claim { admission: Some(odd.clone()), ..claim(2) };
    let mut selector: Selector<'_, Facts, Seq> = Selector::new(&claim, rules());
    selector.freed(vec![freed(1, &[2, 3])], |_| Seq::MAX);
    selector.extend(List::Fresh, (10..20).map(fresh).collect(), true);
    assert_eq!(selector.run(), None);
    let mut selection = selector.finish();
    assert_eq!(chosen(&selection), [11, 3]);
    assert_eq!(selection.skipped(), 2);
    // What returned and is not wanted lies among the others from then on.
    assert_eq!(selection.write_back().unpark, [(0, 2)]);
    assert_eq!(*odd.0.lock().unwrap(), [2, 3, 10, 11]);
}

#[test]
fn a_key_that_something_is_about_to_be_parked_behind_returns_nothing_yet() {
    let claim = claim(9);
    let mut selector: Selector<'_, Facts, Seq> = Selector::new(&claim, rules());
    selector.freed(vec![freed(1, &[5]), freed(2, &[6])], |_| Seq::MAX);
    selector.recheck(vec![held_by(1, true, fresh(4))]);
    assert_eq!(selector.run(), None);
    let mut selection = selector.finish();
    assert_eq!(chosen(&selection), [6]);
    assert!(selection.more, "it returns with the next claim");
    assert_eq!(selection.write_back().park, [(0, 4)]);
}

#[test]
fn nothing_returns_from_beyond_what_was_met_and_an_empty_key_is_freed() {
    let claim = claim(9);
    let mut selector: Selector<'_, Facts, Seq> = Selector::new(&claim, rules());
    selector.freed(vec![freed(1, &[4, 50]), freed(2, &[])], |_| 10);
    assert_eq!(selector.run(), None);
    let mut selection = selector.finish();
    assert_eq!(chosen(&selection), [4]);
    assert!(!selection.more);
    assert_eq!(selection.write_back().free, [(0, 2)]);
}

#[test]
fn a_long_key_returns_a_few_at_a_time() {
    let claim = claim(100);
    let mut selector: Selector<'_, Facts, Seq> = Selector::new(&claim, rules());
    let all: Vec<Seq> = (10..).take(RETURNING_OF_A_KEY_MAX + 1).collect();
    selector.freed(vec![freed(1, &all)], |_| Seq::MAX);
    assert_eq!(selector.run(), None);
    let selection = selector.finish();
    assert_eq!(chosen(&selection), all[..RETURNING_OF_A_KEY_MAX]);
    assert!(selection.more);
}

#[test]
fn a_claim_up_to_a_place_returns_what_was_unparked_for_it() {
    let mut claim = claim(9);
    claim.lanes[0].to = 100;
    let chosen_of = |first_parked: &[Seq]| {
        let mut selector: Selector<'_, Facts, Seq> = Selector::new(&claim, rules());
        selector.freed(vec![freed(1, first_parked)], |_| 0);
        selector.extend(List::Fresh, vec![held_by(1, true, fresh(5))], true);
        assert_eq!(selector.run(), None);
        chosen(&selector.finish())
    };
    assert_eq!(chosen_of(&[7]), [5], "what is parked comes after it");
    assert_eq!(chosen_of(&[3]), [] as [Seq; 0], "what is parked comes before it");
}

#[test]
fn delayed_rows_wait_and_the_first_of_them_says_when() {
    let claim = claim(9);
    let mut selector: Selector<'_, Facts, Seq> = Selector::new(&claim, rules());
    let later = |seq, micros| Facts { due_at: Some(Timestamp::from_micros(micros)), ..fresh(seq) };
    selector.extend(List::Fresh, vec![later(1, 3000), later(2, 2000), fresh(3)], true);
    assert_eq!(selector.run(), None);
    let mut selection = selector.finish();
    assert_eq!(selection.next_due, Some(Timestamp::from_micros(2000)));
    assert_eq!(selection.write_back().delay, [(0, 1), (0, 2)]);
    assert!(!selection.more);
}

#[test]
fn a_lane_starts_over_among_what_waits_when_all_lanes_are_through() {
    let claim = claim(2);
    let mut selector: Selector<'_, Facts, Seq> = Selector::new(&claim, rules());
    selector.extend(List::Waiting, (1..5).map(waiting).collect(), true);
    assert_eq!(selector.run(), None);
    let selection = selector.finish();
    assert_eq!(selection.waiting_from(0, Position::START, true), (NOW, 2));
    assert_eq!(selection.waiting_from(1, Position::START, true), (Timestamp::EPOCH, 0));
}
