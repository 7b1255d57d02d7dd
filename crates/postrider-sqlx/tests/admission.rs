//! What a claim does with rows that are not wanted, where SQLite has its own ways: pages, bounds, and what is read at all.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy takes functions beside the tests for no tests"
)]

mod support;

use std::sync::{Arc, Mutex};

use postrider_core::{
    Store,
    store::{Admission, Claim, Claimed, Position, RowSummary, Seq},
};
use support::{Instance, event, execute, in_memory, number, seqs, write};

/// Wants nothing of one type, and notes what it was asked about.
#[derive(Debug, Default)]
struct ButForRefused(Mutex<Vec<Seq>>);

impl Admission for ButForRefused {
    fn admits(&self, row: &RowSummary<'_>) -> bool {
        self.0.lock().unwrap().push(row.seq);
        row.event_type != "Refused"
    }
}

impl ButForRefused {
    fn asked(&self) -> Vec<Seq> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// More rows than one walk meets.
const MANY: &str = "
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000)
    INSERT INTO postrider_event (event_type, payload, available_at) SELECT 'Refused', '{}', ";

const FRESH: &str = "0 FROM n";
const WAITING: &str = "1000000 + i / 3000 FROM n; UPDATE postrider_event SET status = 2";

async fn claim(instance: &mut Instance, limit: usize, admission: &Arc<ButForRefused>) -> Claimed {
    let admission: Option<Arc<dyn Admission>> = Some(Arc::clone(admission) as _);
    let plan = Claim { admission, ..instance.plan(limit) };
    let claimed = instance.store.claim(&plan).await.unwrap();
    instance.from = claimed.positions[0].1;
    claimed
}

/// Walks over `MANY` rows of one kind, and a wanted one behind them.
async fn walked(rows: String) {
    let store = in_memory().await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(rows)).execute(store.pool()).await.unwrap();
    let mut instance = Instance::new(&store).await;
    let admission = Arc::new(ButForRefused::default());
    let (mut asked, mut claims) = (Vec::new(), 0);
    while claim(&mut instance, 10, &admission).await.more {
        let met = admission.asked();
        assert!(!met.is_empty() && met.len() <= 10_000, "a walk goes on, and is bounded");
        asked.extend(met);
        claims += 1;
    }
    asked.extend(admission.asked());
    assert!(claims > 0);
    assert_eq!(asked, (1..=12_000).collect::<Vec<_>>(), "each was asked about once, in order");

    write(&store, [event("wanted")]).await;
    assert_eq!(seqs(&claim(&mut instance, 10, &admission).await), [12_001]);
    assert_eq!(admission.asked(), [12_001]);
}

#[tokio::test]
async fn a_walk_over_fresh_rows_is_bounded_and_meets_each_once() {
    walked(format!("{MANY}{FRESH}")).await;
}

#[tokio::test]
async fn a_walk_over_waiting_rows_is_bounded_and_meets_each_once_also_where_many_have_one_time() {
    walked(format!("{MANY}{WAITING}")).await;
}

#[tokio::test]
async fn wanted_rows_are_found_between_pages_of_others_and_the_position_stays_before_what_did_not_fit() {
    let store = in_memory().await;
    for _ in 0..5 {
        execute(
            &store,
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 700)
             INSERT INTO postrider_event (event_type, payload) SELECT iif(i = 700, 'Wanted', 'Refused'), '{}' FROM n",
        )
        .await;
    }
    let mut instance = Instance::new(&store).await;
    let admission = Arc::new(ButForRefused::default());
    let first = claim(&mut instance, 2, &admission).await;
    assert_eq!((seqs(&first), first.more), (vec![700, 1400], true));
    let second = claim(&mut instance, 2, &admission).await;
    assert_eq!((seqs(&second), second.more), (vec![2100, 2800], true));
    let third = claim(&mut instance, 2, &admission).await;
    assert_eq!((seqs(&third), third.more), (vec![3500], false));
    assert_eq!(admission.asked(), (1..=3500).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_refused_row_is_unparked_and_its_hold_stays_while_others_are_parked() {
    let store = in_memory().await;
    execute(
        &store,
        "INSERT INTO postrider_event (event_type, ordering_key, payload) VALUES
             ('Refused', 'k', '{}'), ('Wanted', 'k', '{}');
         UPDATE postrider_event SET parked = 1;
         INSERT INTO postrider_hold VALUES (0, 'k', 99, NULL, 'returning')",
    )
    .await;
    let mut instance = Instance::new(&store).await;
    instance.from = Position { met: Seq::MAX, ..Position::START };
    let admission = Arc::new(ButForRefused::default());
    let claimed = claim(&mut instance, 10, &admission).await;
    assert_eq!(seqs(&claimed), [2]);
    assert_eq!(number(&store, "SELECT seq FROM postrider_event WHERE parked = 0").await, 1);
    assert_eq!(number(&store, "SELECT count(*) FROM postrider_hold").await, 1);
}

#[tokio::test]
async fn names_that_no_event_has_are_shown_cut() {
    let store = in_memory().await;
    execute(
        &store,
        "PRAGMA ignore_check_constraints = on;
         INSERT INTO postrider_event (event_type, payload) VALUES (hex(zeroblob(100000)), '{}'), (CAST(x'ff' AS TEXT), '{}')",
    )
    .await;
    #[derive(Debug)]
    struct Short;
    impl Admission for Short {
        fn admits(&self, row: &RowSummary<'_>) -> bool {
            assert!(row.event_type.len() < 1000);
            true
        }
    }
    let instance = Instance::new(&store).await;
    let plan = Claim { admission: Some(Arc::new(Short)), ..instance.plan(10) };
    let claimed = store.claim(&plan).await.unwrap();
    assert_eq!(claimed.events.iter().filter(|claimed| claimed.event.is_err()).count(), 2);
}
