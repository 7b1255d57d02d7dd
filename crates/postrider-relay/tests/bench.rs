//! The benchmarks as people run them, on a small scale.

mod command;

use command::{Counted, postrider, texts};

#[test]
fn the_backlog_is_measured_and_its_memory_is_within_the_limit() {
    let run = postrider().args(["bench", "--only", "backlog", "--keys", "3000", "--json"]).output().unwrap();
    let counted = Counted::of(&run);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    assert!(counted.number("backlog_rss_mib") > 0.0 && counted.number("backlog_rss_mib") < 256.0);
    assert_eq!(counted.number("backlog_keys"), 3000.0);
    assert_eq!(texts(&run).0.lines().count(), 1);
}
