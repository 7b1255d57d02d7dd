//! The demo as people run it: a process, its exit status, and its last line.

mod command;

use command::{Counted, demo, fresh, postrider};

#[test]
fn a_demo_on_a_temporary_file_ends_well_and_shows_every_kind() {
    let run = demo(["--events", "300", "--exit", "--json", "--seed", "7"]);
    let counted = Counted::of(&run);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    counted.assert_well();
    assert_eq!((counted.get("committed"), counted.get("pending")), (300, 0));
    for name in ["rolled_back", "delivered", "dead", "held"] {
        assert!(counted.get(name) > 0, "no {name}: {counted:?}");
    }
    assert_eq!(counted.get("duplicates"), 0);
}

#[test]
fn with_json_one_line_on_stdout_is_all_that_is_said() {
    let run = demo(["--events", "20", "--exit", "--json"]);
    let (stdout, stderr) = command::texts(&run);
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    assert_eq!(stderr, "");
}

#[test]
fn without_json_the_conclusion_is_on_stdout_and_has_no_colour_in_a_pipe() {
    // With this seed an event dies, which the demo tells of itself.
    let run = demo(["--events", "20", "--exit", "--seed", "1368820752"]);
    let (stdout, stderr) = command::texts(&run);
    assert_eq!(run.status.code(), Some(0));
    assert!(stdout.lines().last().is_some_and(|line| line.starts_with("Good: ")), "{stdout}");
    assert!(!stdout.contains('\x1b') && stderr.is_empty(), "{stdout}{stderr}");
}

#[test]
fn a_second_start_goes_on_with_the_file_and_counts_all_of_it() {
    let db = fresh("second-start");
    for expected in [120, 240] {
        let run = demo(["--events", "120", "--exit", "--json", "--seed", "3", "--db", &db]);
        let counted = Counted::of(&run);
        counted.assert_well();
        assert_eq!(counted.get("committed"), expected);
    }
    let run = demo(["--events", "0", "--exit", "--json", "--db", &db]);
    assert_eq!(Counted::of(&run).get("committed"), 240);
}

#[test]
fn a_file_that_was_tampered_with_gets_a_bad_conclusion_and_exit_status_1() {
    let db = fresh("tampered");
    demo(["--events", "50", "--exit", "--json", "--seed", "5", "--db", &db]);
    // One delivery is forgotten, one is made up, and one is moved before that of an earlier event of its key.
    command::sql(
        &db,
        "DELETE FROM shop_delivered WHERE event_id =
             (SELECT event_id FROM shop_written WHERE event_key IS NULL LIMIT 1);
         INSERT INTO shop_delivered (event_id, attempt, path) VALUES ('never-written', 1, 'hot');
         UPDATE shop_delivered SET n = -1 WHERE event_id =
             (SELECT event_id FROM shop_written WHERE number = 2 AND event_type = 'OrderPaid' LIMIT 1);",
    );
    let run = demo(["--events", "0", "--exit", "--json", "--db", &db]);
    let counted = Counted::of(&run);
    assert_eq!(run.status.code(), Some(1));
    assert_eq!(["lost", "out_of_order", "phantom"].map(|name| counted.get(name)), [1; 3], "{counted:?}");
    counted.assert_sum();
    let (told, _) = command::texts(&demo(["--events", "0", "--exit", "--db", &db]));
    assert!(told.contains("Bad: 1 lost, 1 out of order, 1 delivered though not committed."), "{told}");
}

#[test]
fn two_at_once_on_one_file_share_it_and_both_end_well() {
    let db = fresh("two-at-once");
    let start = || postrider().args(["demo", "--events", "200", "--exit", "--json", "--db", &db]).output();
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(start);
        (start().unwrap(), first.join().unwrap().unwrap())
    });
    for run in [first, second] {
        assert_eq!(run.status.code(), Some(0), "{run:?}");
        Counted::of(&run).assert_well();
    }
    assert_eq!(Counted::of(&demo(["--events", "0", "--exit", "--json", "--db", &db])).get("committed"), 400);
}
