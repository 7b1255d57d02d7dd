use postrider_core::store::{Lease, Token};

use super::*;

fn at(front: Seq) -> Position {
    Position::at(front, Timestamp::EPOCH, 0)
}

fn lane(lane: Lane, front: Seq) -> LaneClaim {
    let lease = Lease { lane, token: Token { epoch: 1, nonce: 1 } };
    LaneClaim::after(lease, at(front))
}

#[test]
fn a_claim_goes_on_only_where_all_its_lanes_stand_as_the_last_one_left_them() {
    let mut looks = Looks::default();
    assert_eq!(looks.goes_on([lane(1, 7)].iter()), None);
    looks.ended(&[(1, at(7)), (2, at(9))], 10, (5, 5));
    assert_eq!(looks.goes_on([lane(1, 7), lane(2, 9)].iter()), Some((10, 1)));
    assert_eq!(looks.goes_on([lane(1, 7)].iter()), Some((10, 1)));
    assert_eq!(looks.goes_on([lane(1, 0)].iter()), None);
    assert_eq!(looks.goes_on([lane(1, 7), lane(3, 0)].iter()), None);
}

#[test]
fn what_was_inserted_since_the_last_look_demands_another() {
    let mut looks = Looks::default();
    let at = |micros| Sight { at: Timestamp::from_micros(micros), ..Sight::default() };
    let (number, _) = looks.saw(&at(100), From::Near, Instant::now(), true);
    let trail = Trail { front: 9, near: 5, near_sight: number, ..Trail::START };
    let position = [Position { trail, ..Position::START }];
    assert!(!looks.must_look(position.iter(), Timestamp::from_micros(99)));
    assert!(looks.must_look(position.iter(), Timestamp::from_micros(100)));
    let nothing_behind = [Position { trail: Trail { near: 9, ..trail }, ..Position::START }];
    assert!(!looks.must_look(nothing_behind.iter(), Timestamp::from_micros(100)));
}

#[test]
fn what_a_look_saw_is_known_however_many_claims_go_on_from_the_front() {
    let mut looks = Looks::default();
    let (number, _) = looks.saw(&Sight::default(), From::Near, Instant::now(), true);
    for _ in 0..1000 {
        looks.saw(&Sight::default(), From::Front, Instant::now(), true);
    }
    let trail = Trail { front: 9, near: 5, near_sight: number, ..Trail::START };
    assert!(looks.behind([Position { trail, ..Position::START }].iter(), From::Near).is_some());
}

#[test]
fn transactions_that_were_over_once_stay_so_while_others_run() {
    let mut looks = Looks::default();
    let at =
        |micros, xmin, xmax| Sight { at: Timestamp::from_micros(micros), xmin, xmax, ..Sight::default() };
    let mut over_at = |sight| looks.saw(&sight, From::Front, Instant::now(), true).1.as_micros();
    assert_eq!(over_at(at(100, 10, 11)), 0);
    // That of the first is over, and another one runs, which is the one that the next sight waits for.
    assert_eq!(over_at(at(200, 11, 12)), 100);
    assert_eq!(over_at(at(300, 11, 13)), 100);
    assert_eq!(over_at(at(400, 13, 14)), 200);
    // One that looked earlier and answers later does not know that.
    assert_eq!(over_at(at(150, 10, 11)), 0);
}

#[test]
fn a_look_gets_wider_where_little_is_to_be_seen_and_narrow_again() {
    let mut looks = Looks::default();
    let mut wide = |reached, met| {
        looks.ended(&[], reached, (met, 100));
        looks.wide
    };
    assert_eq!([wide(1, 50), wide(2, 50), wide(3, 50), wide(4, 50)], [2, 4, 8, 8]);
    assert_eq!([wide(5, 100), wide(6, 200), wide(7, 200)], [8, 4, 2]);
    assert_eq!(wide(Seq::MAX, 0), 1);
}
