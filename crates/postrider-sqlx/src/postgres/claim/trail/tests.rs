use postrider_core::{
    Timestamp,
    store::{Lease, Token},
};

use super::*;

fn at(front: Seq) -> Position {
    Position::at(front, Timestamp::EPOCH, 0)
}

fn lane(lane: Lane, from: Position) -> LaneClaim {
    let lease = Lease { lane, token: Token { epoch: 1, nonce: 1 } };
    LaneClaim::after(lease, from)
}

fn trail(trail: Trail) -> Position {
    Position { trail, ..Position::START }
}

fn sight(number: u64, xmin: i64) -> Sight {
    Sight { snapshot: number.to_string(), xmin, ..Sight::default() }
}

/// A claim of one lane that stood there, has met so much, and saw this.
fn claim(looks: &mut Looks, from: Position, met: Met, saw: &Sight) -> Position {
    let lanes = [lane(1, from)];
    let begun = looks.begin(lanes.iter(), Instant::now());
    assert_eq!(looks.notice(&begun, saw), None);
    let number = looks.saw(saw, &begun, false);
    let (seq, trail) = looks.next(&from, met, &begun, number);
    let position = Position { seq, trail, ..from };
    looks.learn([(&from, &position)].into_iter());
    looks.take_turns(&begun, &[(1, position)], met.front > 0);
    position
}

/// All behind the front was met, and the forward read has come so far.
fn all(front: Seq) -> Met {
    Met { front, scanned_to: Seq::MAX }
}

fn draw(looks: &mut Looks, at: &Position, xid: i64) -> bool {
    let after = looks.wants_horizon(&[(1, *at)]);
    after.map(|after| looks.drew_horizon(xid, after)).is_some()
}

#[test]
fn a_claim_goes_on_only_where_all_its_lanes_stand_as_the_last_one_left_them() {
    let mut looks = Looks::default();
    assert_eq!(looks.goes_on([lane(1, at(7))].iter()), None);
    looks.ended(&[(1, at(7)), (2, at(9))], 10, (5, 5), false);
    assert_eq!(looks.goes_on([lane(1, at(7)), lane(2, at(9))].iter()), Some((10, 1)));
    assert_eq!(looks.goes_on([lane(1, at(7))].iter()), Some((10, 1)));
    assert_eq!(looks.goes_on([lane(1, at(0))].iter()), None);
    assert_eq!(looks.goes_on([lane(1, at(7)), lane(3, at(0))].iter()), None);
    // One that was cut short behind the front says nothing of what lies beyond it.
    looks.ended(&[(1, at(7)), (2, at(9))], 3, (5, 5), false);
    assert_eq!(looks.goes_on([lane(1, at(7))].iter()), Some((10, 1)));
    // But what it saw there and left is to be sought by the next one.
    looks.ended(&[(1, at(7)), (2, at(9))], 3, (5, 5), true);
    assert_eq!(looks.goes_on([lane(1, at(7))].iter()), Some((3, 1)));
}

#[test]
fn a_forward_read_is_bound_by_the_last_scan_while_something_lies_behind_it() {
    let mut looks = Looks::default();
    let begun = looks.begin([lane(1, at(0))].iter(), Instant::now());
    let number = looks.saw(&sight(1, 1), &begun, true).number;
    looks.last_near = Some((Instant::now(), Duration::ZERO));
    let behind = Trail { front: 9, near: 5, near_sight: number, far_sight: number, ..Trail::START };
    let bound = |trail| {
        let from = Position { seq: 5, trail, ..Position::START };
        let begun = looks.begin([lane(1, from)].iter(), Instant::now());
        assert_eq!(begun.from, From::Front);
        begun.bound
    };
    assert_eq!(bound(behind).as_deref(), Some("1"));
    assert_eq!(bound(Trail { near: 9, ..behind }), None);
    assert_eq!(bound(Trail { near_sight: 77, ..behind }).as_deref(), Some("1:1:"), "it is forgotten");
}

#[test]
fn what_a_scan_saw_is_known_however_many_claims_go_on_from_the_front() {
    let mut looks = Looks::default();
    let behind = trail(Trail { front: 9, near: 5, near_sight: 0, ..Trail::START });
    let begun = looks.begin([lane(1, behind)].iter(), Instant::now());
    assert_eq!(begun.from, From::Near);
    let number = looks.saw(&Sight::default(), &begun, true).number;
    for _ in 0..1000 {
        let begun = looks.begin([lane(1, at(9))].iter(), Instant::now());
        looks.saw(&Sight::default(), &begun, false);
    }
    let behind = trail(Trail { near_sight: number, ..behind.trail });
    assert!(looks.begin([lane(1, behind)].iter(), Instant::now()).behind.is_some());
}

#[test]
fn the_near_mark_moves_once_an_id_that_was_drawn_after_the_claim_is_over() {
    let mut looks = Looks::default();
    // The last transaction that is over is 9. One that runs has 10, which is where snapshots end and, as nothing else runs, begin.
    let mut position = claim(&mut looks, Position::START, all(50), &sight(1, 10));
    for micros in 2..9 {
        position = claim(&mut looks, position, all(0), &sight(micros, 10));
        assert_eq!(near(&position), 0, "the end of a snapshot is no bound");
    }
    assert!(draw(&mut looks, &position, 11));
    assert!(!draw(&mut looks, &position, 12), "one is enough");
    position = claim(&mut looks, position, all(0), &sight(9, 10));
    assert_eq!(near(&position), 0);
    position = claim(&mut looks, position, all(60), &sight(10, 12));
    assert_eq!((near(&position), position.trail.near_next), (50, 60));
    assert_eq!(far(&position), 0);
}

#[test]
fn a_lane_that_is_read_from_the_start_again_has_nothing_to_wait_for_below_the_marks() {
    let mut looks = Looks::default();
    let mut position = claim(&mut looks, Position::START, all(50), &sight(1, 10));
    assert!(draw(&mut looks, &position, 11));
    position = claim(&mut looks, position, all(80), &sight(2, 12));
    assert_eq!(near(&position), 50);
    let again = claim(&mut looks, Position::START, all(70), &sight(3, 12));
    assert_eq!((near(&again), front(&again), far(&again)), (50, 70, 0));
    let little = claim(&mut looks, Position::START, all(20), &sight(4, 12));
    assert_eq!((near(&little), front(&little)), (20, 20), "what was not read yet is not behind");
}

#[test]
fn a_scan_goes_on_where_it_ended_and_counts_from_where_it_began() {
    let mut looks = Looks::default();
    let mut position = claim(&mut looks, Position::START, all(5000), &sight(1, 10));
    assert!(draw(&mut looks, &position, 11));
    // It meets more than one claim can take, and all that was open is over by then.
    position = claim(&mut looks, position, Met { front: 0, scanned_to: 1000 }, &sight(2, 12));
    let began = position.trail.rescan.began;
    assert_eq!((position.trail.rescan.reached, near(&position)), (1000, 0));
    // The forward read has its turn, may go no further than the last scan that is over, and has nothing to do.
    let begun = looks.begin([lane(1, position)].iter(), Instant::now());
    assert_eq!((begun.from, begun.bound.as_deref()), (From::Front, Some("1")));
    position = claim(&mut looks, position, all(0), &sight(3, 12));
    assert_eq!(position.trail.rescan.reached, 1000);
    // So the scan has all turns. What it sees last may be newer than what it saw first.
    for reached in [2000, 3000] {
        let begun = looks.begin([lane(1, position)].iter(), Instant::now());
        assert_eq!((begun.from, begun.scans_from(&position)), (From::Near, reached - 1000));
        assert_eq!(begun.bound.as_deref(), Some("2"), "it meets what its first claim could see");
        position = claim(&mut looks, position, Met { front: 0, scanned_to: reached }, &sight(4, 12));
        assert_eq!((position.trail.rescan.reached, position.trail.near_sight < began), (reached, true));
    }
    position = claim(&mut looks, position, all(0), &sight(5, 12));
    assert_eq!((position.trail.rescan, position.trail.near_sight), (Rescan::NONE, began));
    assert_eq!(near(&position), 5000);
}

#[test]
fn a_scan_whose_beginning_is_forgotten_begins_anew() {
    let looks = Looks::default();
    let rescan = Rescan { reached: 70, began: 3, is_far: false };
    let from = trail(Trail { front: 90, near: 5, rescan, ..Trail::START });
    let begun = looks.begin([lane(1, from)].iter(), Instant::now());
    assert_eq!((begun.from, begun.under_way, begun.scans_from(&from)), (From::Near, false, 5));
}

#[test]
fn a_lane_that_has_come_to_its_front_takes_no_part_in_the_rest_of_a_scan() {
    let mut looks = Looks::default();
    let behind = |front| trail(Trail { front, near: 5, ..Trail::START });
    let lanes = [lane(1, behind(100)), lane(2, behind(9000))];
    let begun = looks.begin(lanes.iter(), Instant::now());
    let number = looks.saw(&sight(1, 1), &begun, true);
    let met = Met { front: 0, scanned_to: 4000 };
    let [one, two] = [0, 1].map(|n| looks.next(&lanes[n].from, met, &begun, number).1);
    assert_eq!((one.rescan, two.rescan.reached), (Rescan::NONE, 4000));
    let lanes = [lane(1, trail(one)), lane(2, trail(two))];
    let begun = Begun { from: From::Near, ..looks.begin(lanes.iter(), Instant::now()) };
    assert_eq!(lanes.map(|lane| begun.scans_from(&lane.from)), [100, 4000]);
}

#[test]
fn forward_reads_and_a_long_scan_take_turns_while_both_have_something_to_do() {
    let mut looks = Looks::default();
    let mut position = claim(&mut looks, Position::START, all(5000), &sight(1, 10));
    let mut turns = Vec::new();
    for step in 1..7 {
        let from = looks.begin([lane(1, position)].iter(), Instant::now()).from;
        let met =
            if from == From::Front { all(5000 + step) } else { Met { front: 0, scanned_to: step * 100 } };
        position = claim(&mut looks, position, met, &sight(2, 10));
        turns.push(from == From::Front);
    }
    assert_eq!(turns, [false, true, false, true, false, true]);
}

#[test]
fn a_database_that_went_back_is_noticed_once_and_nothing_is_remembered_of_it() {
    let mut looks = Looks::default();
    let position = claim(&mut looks, Position::START, all(50), &sight(1, 10));
    let place = |xmax| Sight { place: Place::of_transactions(xmax), ..Sight::default() };
    let lanes = [lane(1, position)];
    let first = looks.begin(lanes.iter(), Instant::now());
    assert_eq!(looks.notice(&first, &place(100)), None);
    let second = looks.begin(lanes.iter(), Instant::now());
    // A claim that began before the last one had ended says nothing by an answer that is older.
    assert_eq!(looks.notice(&first, &place(90)), None);
    assert!(looks.notice(&second, &place(90)).is_some());
    assert!(looks.find(position.trail.near_sight).is_none() && looks.last_number > 0);
    let third = looks.begin(lanes.iter(), Instant::now());
    assert_eq!(looks.notice(&third, &place(91)), None);
}

#[test]
fn a_look_gets_wider_where_little_is_to_be_seen_and_narrow_again() {
    let mut looks = Looks::default();
    let mut wide = |reached, met| {
        looks.ended(&[], reached, (met, 100), false);
        looks.wide
    };
    assert_eq!([wide(1, 50), wide(2, 50), wide(3, 50), wide(4, 50)], [2, 4, 8, 8]);
    assert_eq!([wide(5, 100), wide(6, 200), wide(7, 200)], [8, 4, 2]);
    assert_eq!(wide(Seq::MAX, 0), 1);
}

#[test]
fn after_a_scan_that_was_cut_off_the_forward_reads_have_a_turn() {
    let behind = |front, rescan| trail(Trail { front, near: 5, rescan, ..Trail::START });
    let mut looks = Looks::default();
    // One that begins, and one that goes on in several claims.
    let begins = claim(&mut looks, Position::START, all(5000), &sight(1, 10));
    let under_way = claim(&mut looks, begins, Met { front: 0, scanned_to: 1000 }, &sight(2, 10));
    looks.forward_turn = false;
    for from in [behind(9, Rescan::NONE), under_way] {
        let lanes = [lane(1, from)];
        let begun = looks.begin(lanes.iter(), Instant::now());
        assert_eq!(begun.from, From::Near);
        looks.cut_off(&begun);
        assert_eq!(looks.begin(lanes.iter(), Instant::now()).from, From::Front);
        claim(&mut looks, from, all(0), &sight(3, 10));
        assert_eq!(looks.begin(lanes.iter(), Instant::now()).from, From::Near);
    }
}

#[test]
fn a_wide_scan_that_was_cut_off_is_not_made_again_for_ten_times_as_long_as_it_took() {
    let mut looks = Looks::default();
    let wide = Position { seq: 5, ..trail(Trail { front: 90_000, near: 5, ..Trail::START }) };
    let lanes = [lane(1, wide)];
    let now = Instant::now();
    let took = Duration::from_secs(4);
    let begun = looks.begin(lanes.iter(), now.checked_sub(took).unwrap_or(now));
    assert_eq!(begun.from, From::Near);
    looks.cut_off(&begun);
    claim(&mut looks, wide, all(0), &sight(1, 10));
    assert_eq!(looks.begin(lanes.iter(), now + 9 * took).from, From::Front);
    assert_eq!(looks.begin(lanes.iter(), now + 12 * took).from, From::Near);
}
