//! The judge, tried on runs that are wrong in one way each, before it is trusted with a real one.

use super::{Case, Promise, judge};
use crate::{
    incidents::{Incident, Scope},
    ledger::{Arrival, Book, Dead, Event, Ledger, Rejection, Release, TxOutcome},
    owners::{Change, orphaned},
    time::SECOND,
    world::{ATTEMPTS, Destination, Kind},
};

const T0: Destination = Destination(0);

fn arrival(at_s: u64, by: u16) -> Arrival {
    Arrival { at: at_s * SECOND, by, acknowledged: true }
}

/// Two events of one key, committed at one second; `tell` says what became of them.
fn book(tell: impl FnOnce(&Ledger)) -> Book {
    let ledger = Ledger::default();
    for _ in 0..2 {
        ledger.insert(Event::new(7, Kind::HookOrder, T0, false));
    }
    ledger.ended(&[0, 1], TxOutcome::Committed, SECOND);
    tell(&ledger);
    std::mem::take(&mut *ledger.lock())
}

fn incident(what: &'static str, scope: Scope, from_s: u64, to_s: u64) -> Incident {
    Incident { what, scopes: vec![scope], from: from_s * SECOND, to: to_s * SECOND }
}

pub(crate) fn sees_every_kind_of_wrong() -> Result<(), String> {
    let well = |ledger: &Ledger| {
        ledger.arrived(0, arrival(2, 0));
        ledger.arrived(1, arrival(3, 0));
    };
    let again = |ledger: &Ledger| {
        well(ledger);
        ledger.arrived(1, arrival(9, 1));
    };
    let late = |ledger: &Ledger| {
        ledger.arrived(0, arrival(2, 0));
        ledger.arrived(1, arrival(90, 0));
    };
    let died = |ledger: &Ledger, number, error: &str| {
        ledger.dead(Dead { number, at: 5 * SECOND, attempts: ATTEMPTS, error: error.to_owned() });
        ledger.released(number, Release::Redriven, 6 * SECOND);
    };
    let killed = incident("relay killed", Scope::Relay { seat: 0, relay: 0 }, 4, 5);
    let other_killed = incident("relay killed", Scope::Relay { seat: 2, relay: 5 }, 4, 5);
    let down = |scope| incident("webhook answers 503", scope, 4, 50);
    let rejecting = incident("webhook answers 400", Scope::Destination(T0), 4, 50);
    let rejected = |events: u32| {
        move |ledger: &Ledger| {
            well(ledger);
            for number in 2..events + 2 {
                ledger.insert(Event::new(0, Kind::HookOrder, T0, false));
                ledger.ended(&[number], TxOutcome::Committed, SECOND);
                ledger.rejected(Rejection { number, by: 0, at: 5 * SECOND });
                died(ledger, number, "400 Bad Request");
                ledger.arrived(number, arrival(60, 0));
            }
        }
    };

    type Row = (&'static str, Book, Vec<Incident>, Vec<Promise>);
    let cases: Vec<Row> = vec![
        ("all is well", book(well), vec![], vec![]),
        ("one never came", book(|l| l.arrived(0, arrival(2, 0))), vec![], vec![Promise::Lost]),
        (
            "it was rolled back",
            book(|l| {
                well(l);
                l.ended(&[1], TxOutcome::RolledBack, SECOND);
            }),
            vec![],
            vec![Promise::Phantom],
        ),
        (
            "nobody wrote it",
            book(|l| {
                well(l);
                l.arrived(9, arrival(3, 0));
            }),
            vec![],
            vec![Promise::Phantom],
        ),
        (
            "the second came first",
            book(|l| {
                l.arrived(0, arrival(3, 0));
                l.arrived(1, arrival(2, 0));
            }),
            vec![],
            vec![Promise::OutOfOrder],
        ),
        ("it came again", book(again), vec![], vec![Promise::Unexplained]),
        ("it came again, and its relay was killed", book(again), vec![killed], vec![]),
        (
            "it came again, and another relay was killed",
            book(again),
            vec![other_killed],
            vec![Promise::Unexplained],
        ),
        ("it came late", book(late), vec![], vec![Promise::Late]),
        ("it came late, and its receiver was down", book(late), vec![down(Scope::Destination(T0))], vec![]),
        (
            "it came late, and another receiver was down",
            book(late),
            vec![down(Scope::Destination(Destination(1)))],
            vec![Promise::Late],
        ),
        (
            "it came late, and the owner of its lane was killed",
            book(late),
            vec![incident("relay killed", Scope::Relay { seat: 0, relay: 0 }, 20, 25)],
            vec![],
        ),
        (
            "it came late, and another relay was stopped",
            book(late),
            vec![incident("relay stopped past its lease", Scope::Relay { seat: 1, relay: 1 }, 4, 20)],
            vec![Promise::Late],
        ),
        (
            "it came late, and the next one of its key behind it",
            book(|l| {
                l.arrived(0, arrival(90, 0));
                l.arrived(1, arrival(91, 0));
            }),
            vec![],
            vec![Promise::Late, Promise::Late],
        ),
        (
            "it came late behind one that was paused",
            book(|l| {
                l.arrived(0, arrival(90, 0));
                l.arrived(1, arrival(91, 0));
            }),
            vec![down(Scope::Event(0))],
            vec![],
        ),
        (
            "one died that nobody poisoned",
            book(|l| {
                died(l, 0, "500");
                l.arrived(0, arrival(7, 0));
                l.arrived(1, arrival(8, 0));
            }),
            vec![],
            vec![Promise::Dead],
        ),
        ("ten were rejected", book(rejected(10)), vec![rejecting.clone()], vec![]),
        ("eleven were rejected", book(rejected(11)), vec![rejecting], vec![Promise::Dead]),
        (
            "poison lives",
            book(|l| {
                well(l);
                let number = l.insert(Event::new(0, Kind::HookOrder, T0, true));
                l.ended(&[number], TxOutcome::Committed, SECOND);
            }),
            vec![],
            vec![Promise::NotDead],
        ),
    ];
    // The lane of all these events was the first relay's at first, and another one's later.
    let owners = [(0, 0), (35, 1)].map(|(at, owner)| Change { at: at * SECOND, lane: 0, owner: Some(owner) });
    for (what, book, incidents, expected) in cases {
        let orphaned = orphaned(&incidents, &owners);
        let case = Case { book: &book, incidents: &incidents, orphaned: &orphaned, troubles: &[], seats: 3 };
        let found = judge(&case);
        let promises: Vec<Promise> = found.wrong.iter().map(|wrong| wrong.promise).collect();
        if promises != expected {
            return Err(format!("the judge is wrong about {what:?}: {found:?}"));
        }
    }
    Ok(())
}
