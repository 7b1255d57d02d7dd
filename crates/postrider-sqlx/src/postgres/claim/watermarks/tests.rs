use postrider_core::{
    Timestamp,
    store::{Lease, Token},
};

use super::*;

fn lane(lane: Lane, from: Position) -> LaneClaim {
    let lease = Lease { lane, token: Token { epoch: 1, nonce: 1 } };
    LaneClaim::after(lease, from)
}

fn moment(snapshot: &str) -> Moment {
    let snapshot = Snapshot::parse(snapshot).unwrap();
    let place = Place::of_transactions(snapshot.xmax());
    Moment { now: Timestamp::EPOCH, snapshot, place }
}

/// Everything was met, up to this row.
fn all(last: Seq) -> Reached {
    Reached { late: Seq::MAX, forward: Seq::MAX, last }
}

/// Forward reads have met everything up to here.
fn forward_to(seq: Seq) -> Reached {
    Reached { late: Seq::MAX, forward: seq, last: seq }
}

/// More is late than the claim could take: it has met what is late up to here.
fn late_to(seq: Seq) -> Reached {
    Reached { late: seq, forward: seq, last: seq }
}

/// A claim of these lanes that read at this snapshot and came so far.
fn claim(
    watermarks: &mut Watermarks,
    lanes: &[LaneClaim],
    snapshot: &str,
    reached: Reached,
) -> Vec<LaneClaim> {
    let begun = watermarks.begin(lanes);
    let moment = moment(snapshot);
    assert_eq!(watermarks.notice(&begun, &moment), None);
    let moved = watermarks.ended(&begun, &moment, reached, |_| true);
    let positions: Vec<(Lane, Position)> = moved
        .into_iter()
        .map(|(lane, seq, late)| (lane, Position { seq, met: seq, late, ..Position::START }))
        .collect();
    if !begun.is_bounded() {
        let to = begun.reads_forward().then_some(reached.forward);
        watermarks.note_end(&positions, to, (5, 5), reached.forward < Seq::MAX);
    }
    if let Some(scan) = watermarks.begun_scan(&begun, &positions) {
        watermarks.note_scan(&scan, &[]);
    }
    positions.into_iter().map(|(number, position)| lane(number, position)).collect()
}

/// From where each lane is read, and whether it has a turn.
fn fronts(begun: &Begun<'_>) -> Vec<(Seq, bool)> {
    begun.cursors.iter().map(|cursor| (cursor.front, cursor.forward)).collect()
}

fn since(begun: &Begun<'_>) -> Option<String> {
    match &begun.behind {
        Behind::Since(known) => Some(known.snapshot.text().to_owned()),
        _ => None,
    }
}

#[test]
fn the_first_claim_reads_from_the_bottom_and_the_next_one_what_has_committed_since() {
    let mut watermarks = Watermarks::default();
    let lanes = [lane(1, Position::START), lane(2, Position::START)];
    let begun = watermarks.begin(&lanes);
    assert_eq!((fronts(&begun), since(&begun)), (vec![(0, true), (0, true)], None));
    let lanes = claim(&mut watermarks, &lanes, "10:20:10", forward_to(7));
    let begun = watermarks.begin(&lanes);
    assert_eq!(fronts(&begun), [(7, true), (7, true)]);
    assert_eq!(since(&begun).as_deref(), Some("10:20:10"));
    assert_eq!(begun.since().map(Snapshot::text), Some("10:20:10"));
    assert_eq!(begun.front(), 7);
    // One that met everything has come as far as any lane's last row, or its own front.
    let lanes = claim(&mut watermarks, &lanes, "12:30:12", all(9));
    assert_eq!(fronts(&watermarks.begin(&lanes)), [(9, true), (9, true)]);
    let lanes = claim(&mut watermarks, &lanes, "12:30:12", all(0));
    assert_eq!(fronts(&watermarks.begin(&lanes)), [(9, true), (9, true)]);
}

#[test]
fn a_late_row_comes_once_however_far_its_transaction_and_its_number_lie_apart() {
    let mut watermarks = Watermarks::default();
    let lanes = [lane(1, Position::START)];
    let lanes = claim(&mut watermarks, &lanes, "10:20:10", forward_to(7));
    let begun = watermarks.begin(&lanes);
    let cursor = begun.cursor(1).unwrap();
    // It was in progress, or had no id yet; one that was over was met then.
    assert!(cursor.takes_late(3, 10) && cursor.takes_late(3, 25));
    assert!(!cursor.takes_late(3, 9) && !cursor.takes_late(3, 19));
    // The forward read meets this one.
    assert!(!cursor.takes_late(8, 10));
    let lanes = claim(&mut watermarks, &lanes, "15:30:15", forward_to(8));
    let begun = watermarks.begin(&lanes);
    let cursor = begun.cursor(1).unwrap();
    assert!(!cursor.takes_late(3, 10) && !cursor.takes_late(3, 25) && cursor.takes_late(3, 15));
}

#[test]
fn lanes_that_saw_different_snapshots_are_read_since_the_oldest_and_skip_what_they_met() {
    let mut watermarks = Watermarks::default();
    let one = claim(&mut watermarks, &[lane(1, Position::START)], "10:20:10", forward_to(7));
    let two = claim(&mut watermarks, &[lane(2, Position::START)], "15:30:15", forward_to(9));
    let lanes = [one, two].concat();
    let begun = watermarks.begin(&lanes);
    assert_eq!(since(&begun).as_deref(), Some("10:20:10"));
    assert!(begun.since().is_none(), "not the same for all");
    assert!(begun.cursor(1).unwrap().takes_late(3, 10));
    assert!(!begun.cursor(2).unwrap().takes_late(3, 10));
}

#[test]
fn a_lane_whose_snapshot_is_forgotten_is_read_from_the_bottom_and_the_others_are_not() {
    let mut watermarks = Watermarks::default();
    let old = claim(&mut watermarks, &[lane(1, Position::START)], "10:20:10", forward_to(7));
    let mut other = vec![lane(2, Position::START)];
    for _ in 0..SNAPSHOTS_MAX {
        other = claim(&mut watermarks, &other, "10:20:10", forward_to(8));
    }
    let lanes = [old, other].concat();
    assert_eq!(fronts(&watermarks.begin(&lanes)), [(0, true), (8, true)]);
}

#[test]
fn a_scan_of_several_claims_is_told_by_its_transactions_and_ends_where_it_began() {
    let mut watermarks = Watermarks::default();
    let lanes = [lane(1, Position::START), lane(2, Position::START)];
    let lanes = claim(&mut watermarks, &lanes, "10:20:10,11", forward_to(100));
    let lanes = claim(&mut watermarks, &lanes, "11:30:11", late_to(40));
    let begun = watermarks.begin(&lanes);
    // Nothing is read in front of it meanwhile.
    assert_eq!(fronts(&begun), [(100, false), (100, false)]);
    let Behind::Rest { transactions, reached } = &begun.behind else { panic!("{:?}", begun.behind) };
    assert_eq!((&transactions[..], *reached), (&[10][..], 40));
    assert!(begun.cursor(1).unwrap().takes_late(41, 10));
    assert!(!begun.cursor(1).unwrap().takes_late(40, 10), "it was met");
    let lanes = claim(&mut watermarks, &lanes, "12:40:12", late_to(70));
    assert!(!watermarks.begin(&lanes).cursor(1).unwrap().takes_late(70, 10));
    // What became visible while it ran is late for the next claim.
    let lanes = claim(&mut watermarks, &lanes, "12:50:12", all(0));
    let begun = watermarks.begin(&lanes);
    assert_eq!(fronts(&begun), [(100, true), (100, true)]);
    assert_eq!(since(&begun).as_deref(), Some("11:30:11"));
    assert!(begun.cursor(1).unwrap().takes_late(50, 11));
}

#[test]
fn a_lane_that_is_not_in_the_scan_waits_and_a_later_scan_does_not_take_its_place() {
    let mut watermarks = Watermarks::default();
    let both = [lane(1, Position::START), lane(2, Position::START)];
    let both = claim(&mut watermarks, &both, "10:20:10", forward_to(100));
    let scanning = claim(&mut watermarks, &both[..1], "11:30:11", late_to(40));
    let lanes = [&scanning[..], &both[1..]].concat();
    let begun = watermarks.begin(&lanes);
    assert_eq!(fronts(&begun), [(100, false), (100, false)]);
    assert!(!begun.cursor(2).unwrap().takes_late(50, 10), "it began without this lane");
    let after = claim(&mut watermarks, &lanes, "11:30:11", all(0));
    assert_eq!(since(&watermarks.begin(&after)).as_deref(), Some("10:20:10"));
    // Another claim of the second lane begins a scan. The first one's is forgotten, and its lane is read from the bottom.
    claim(&mut watermarks, &both[1..], "11:30:11", late_to(60));
    assert_eq!(fronts(&watermarks.begin(&scanning)), [(0, true)]);
}

#[test]
fn a_scan_of_too_many_transactions_or_of_unknown_ones_is_read_from_the_bottom() {
    let many: Vec<String> = (10..10 + TRANSACTIONS_MAX as i64 + 1).map(|id| id.to_string()).collect();
    let end = 20 + TRANSACTIONS_MAX;
    let mut watermarks = Watermarks::default();
    let lanes = [lane(1, Position::START)];
    let stands = claim(&mut watermarks, &lanes, &format!("10:{end}:{}", many.join(",")), forward_to(100));
    let scanning = claim(&mut watermarks, &stands, &format!("{end}:{end}:"), late_to(40));
    assert_eq!(fronts(&watermarks.begin(&scanning)), [(0, true)]);

    let mut watermarks = Watermarks::default();
    let stands = claim(&mut watermarks, &lanes, "10:20:10", forward_to(100));
    let scanning = claim(&mut watermarks, &stands, "20:20:", late_to(40));
    assert_eq!(fronts(&watermarks.begin(&scanning)), [(100, false)]);
    watermarks.drop_scan();
    assert_eq!(fronts(&watermarks.begin(&scanning)), [(0, true)]);
}

#[test]
fn a_claim_goes_on_only_where_all_its_lanes_stand_as_the_last_one_left_them() {
    let mut watermarks = Watermarks::default();
    let lanes = [lane(1, Position::START), lane(2, Position::START)];
    assert_eq!(watermarks.begin(&lanes).goes_on, None);
    let lanes = claim(&mut watermarks, &lanes, "10:20:10", forward_to(7));
    assert_eq!(watermarks.begin(&lanes).goes_on, Some((7, 1)));
    assert_eq!(watermarks.begin(&lanes[..1]).goes_on, Some((7, 1)));
    assert_eq!(watermarks.begin(&[lane(1, Position::START)]).goes_on, None);
    assert_eq!(watermarks.begin(&[lanes[0].clone(), lane(3, Position::START)]).goes_on, None);
    // While a scan goes on each lane has to be sought.
    let scanning = claim(&mut watermarks, &lanes, "20:20:", late_to(3));
    let ended = claim(&mut watermarks, &scanning, "20:20:", all(0));
    assert_eq!(watermarks.begin(&ended).goes_on, None);
}

#[test]
fn a_claim_reads_wider_where_few_rows_are_met_and_as_usual_again_where_many_are() {
    let mut watermarks = Watermarks::default();
    let lanes = claim(&mut watermarks, &[lane(1, Position::START)], "10:20:10", forward_to(7));
    let stands = [(1, lanes[0].from)];
    let wide = |watermarks: &Watermarks| watermarks.begin(&lanes).goes_on.unwrap().1;
    for expected in [2, 4, 8, 8] {
        watermarks.note_end(&stands, Some(7), (1, 10), true);
        assert_eq!(wide(&watermarks), expected);
    }
    watermarks.note_end(&stands, Some(7), (16, 10), true);
    assert_eq!(wide(&watermarks), 4);
    watermarks.note_end(&stands, Some(7), (12, 10), true);
    assert_eq!(wide(&watermarks), 4);
    watermarks.note_end(&stands, Some(Seq::MAX), (1, 10), false);
    assert_eq!((wide(&watermarks), watermarks.is_flood()), (1, false));
}

#[test]
fn a_claim_up_to_a_place_leaves_the_lanes_own_reading_as_it_is() {
    let mut watermarks = Watermarks::default();
    let stands = claim(&mut watermarks, &[lane(1, Position::START)], "10:20:10", forward_to(100));
    let bounded = [LaneClaim { to: 50, from: Position { seq: 5, ..stands[0].from }, ..stands[0].clone() }];
    let begun = watermarks.begin(&bounded);
    assert!(begun.is_bounded() && begun.goes_on.is_none());
    assert!(matches!(begun.behind, Behind::Nothing));
    // What the lane's own claims have met was skipped by them and comes; what they have not met is left to them.
    let cursor = begun.cursor(1).unwrap();
    assert!(!cursor.leaves_out(7, 9) && cursor.leaves_out(7, 10) && cursor.leaves_out(7, 20));
    let ended = claim(&mut watermarks, &bounded, "30:30:", forward_to(80));
    assert_eq!((ended[0].from.seq, ended[0].from.late), (50, stands[0].from.late));
    assert!(watermarks.begin(&stands).cursor(1).unwrap().takes_late(7, 10));
}

#[test]
fn a_database_that_went_back_is_noticed_once_and_everything_begins_anew() {
    let mut watermarks = Watermarks::default();
    let stands = claim(&mut watermarks, &[lane(1, Position::START)], "10:20:10", forward_to(100));
    let begun = watermarks.begin(&stands);
    assert!(watermarks.notice(&begun, &moment("10:15:10")).is_some());
    let begun = watermarks.begin(&stands);
    assert_eq!(fronts(&begun), [(0, true)]);
    assert_eq!(watermarks.notice(&begun, &moment("10:16:10")), None);
    // A position from before finds no snapshot of later ones.
    claim(&mut watermarks, &[lane(1, Position::START)], "10:17:10", forward_to(3));
    assert_eq!(fronts(&watermarks.begin(&stands)), [(0, true)]);
}

#[test]
fn a_scan_that_runs_out_of_time_is_given_up_and_a_fresh_snapshot_is_not() {
    let mut watermarks = Watermarks::default();
    let lanes = [lane(1, Position::START)];
    let stands = claim(&mut watermarks, &lanes, "10:20:10", forward_to(100));
    let begun = watermarks.begin(&stands);
    watermarks.ran_out_of_time(&begun);
    assert_eq!(fronts(&watermarks.begin(&stands)), [(100, true)], "the snapshot is not old");
    let scanning = claim(&mut watermarks, &stands, "20:20:", late_to(40));
    let begun = watermarks.begin(&scanning);
    watermarks.ran_out_of_time(&begun);
    assert_eq!(fronts(&watermarks.begin(&scanning)), [(0, true)]);
}
