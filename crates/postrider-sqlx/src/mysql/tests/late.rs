use std::{sync::Arc, time::Duration};

use postrider_core::{
    CallerTx, Store,
    store::{Admission, Claim, Claimed, LaneClaim, Lease, Position, RowSummary, Seq},
    tx::OnDuplicate,
};

use super::{Database, event, execute, lease, number, on_server, write};
use crate::MysqlStore;

/// Sessions that wait for the row of a lane.
const WAITING: &str = "SELECT CAST(COALESCE(MAX(id), 0) AS SIGNED) FROM information_schema.processlist
                       WHERE db = DATABASE() AND info LIKE '%FOR UPDATE%' AND id <> CONNECTION_ID()";

async fn claim(store: &MysqlStore, lease: Lease, from: Position, in_flight: Vec<Seq>) -> Claimed {
    let mut claim = Claim::new(vec![LaneClaim::after(lease, from)], 10);
    claim.in_flight = in_flight;
    store.claim(&claim).await.unwrap()
}

fn ids(claimed: &Claimed) -> Vec<&str> {
    claimed.events.iter().map(|event| event.event.as_ref().unwrap().id().as_str()).collect()
}

/// The first try looks back, finds `a` and fails; that it has looked must not count for the second.
#[tokio::test]
async fn a_claim_that_is_tried_again_finds_the_late_event_again() {
    let database = Database::new().await;
    let store = database.store().await.with_lanes(1).unwrap();
    store.migrate().await.unwrap();
    let lease = lease(&store, Duration::from_secs(60)).await[0];
    let mut open = store.pool().begin().await.unwrap();
    (&mut open).insert(store.target(), &[event("a")], OnDuplicate::Fail).await.unwrap();
    write(&store, &[event("x").to_builder().key("other").build().unwrap()]).await;
    let passed = claim(&store, lease, Position::START, Vec::new()).await;
    assert_eq!(ids(&passed), ["x"]);
    open.commit().await.unwrap();
    // An event of a later time is to be written down by the claim that meets it, and so has it wait for the lane.
    let delayed = event("d").to_builder().deliver_after(Duration::from_secs(600)).build().unwrap();
    write(&store, &[event("b"), delayed]).await;

    let mut stopped = store.pool().begin().await.unwrap();
    sqlx::query("SELECT lane FROM postrider_lane FOR UPDATE").fetch_all(&mut *stopped).await.unwrap();
    // What a session ran last may still be told of it.
    let own: i64 =
        sqlx::query_scalar("SELECT CAST(CONNECTION_ID() AS SIGNED)").fetch_one(&mut *stopped).await.unwrap();
    let waiting = format!("{WAITING} AND id <> {own}");
    let (from, x) = (passed.positions[0].1, passed.events[0].seq);
    let claiming = tokio::spawn({
        let store = store.clone();
        async move { claim(&store, lease, from, vec![x]).await }
    });
    let session = loop {
        match number(&store, &waiting).await {
            0 => tokio::task::yield_now().await,
            session => break session,
        }
    };
    on_server(format!("KILL {session}")).await;
    stopped.rollback().await.unwrap();
    assert_eq!(ids(&claiming.await.unwrap()), ["a", "b"]);
}

/// Sixty thousand rows that nobody has met: as many as one transaction may write that commits late.
const SIXTY_THOUSAND: &str =
    "CREATE TABLE digit (d INT) SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4
         UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9;
     INSERT INTO postrider_event (event_type, payload)
         SELECT 'Tested', '{}' FROM digit AS a, digit AS b, digit AS c, digit AS d, digit AS e WHERE e.d < 6";

/// How many index entries and rows a session has read, all statements together.
const READ: &str = "SELECT CAST(SUM(variable_value) AS SIGNED) FROM information_schema.session_status
                    WHERE variable_name LIKE 'Handler\\_read\\_%'";
const READ_MYSQL: &str = "SELECT CAST(SUM(variable_value) AS SIGNED) FROM performance_schema.session_status
                          WHERE variable_name LIKE 'Handler\\_read\\_%'";

/// What a claim reads of the database, on a connection of its own.
async fn claim_counted(store: &MysqlStore, claim: &Claim) -> (Claimed, i64) {
    let mut conn = store.0.verbs.pool().acquire().await.unwrap();
    let mariadb = sqlx::query_scalar::<_, String>("SELECT VERSION()").fetch_one(&mut *conn).await.unwrap();
    let read = if mariadb.contains("MariaDB") { READ } else { READ_MYSQL };
    let before: i64 = sqlx::query_scalar(read).fetch_one(&mut *conn).await.unwrap();
    let super::super::Inner { claim: sql, lease, hold, late, locked_lanes, typical, .. } = &*store.0;
    let claiming = super::super::claim::Claiming { sql, lease, hold, late, locked_lanes, typical, lanes: 1 };
    let claimed = claiming.claim(&mut conn, claim).await.unwrap();
    let after: i64 = sqlx::query_scalar(read).fetch_one(&mut *conn).await.unwrap();
    (claimed, after - before)
}

/// What committed late comes claim by claim. Each of them reads a bounded number of index entries, and no entry is read again by the next.
#[tokio::test]
async fn sixty_thousand_late_rows_are_read_page_by_page() {
    let database = Database::new().await;
    let store = database.store().await.with_lanes(1).unwrap();
    store.migrate().await.unwrap();
    let lease = lease(&store, Duration::from_secs(60)).await[0];
    execute(&store, SIXTY_THOUSAND).await;
    let tip = number(&store, "SELECT CAST(MAX(seq) AS SIGNED) FROM postrider_event").await.unsigned_abs();
    let mut from = Position { met: tip, ..Position::START };
    let (mut came, mut scans): (Vec<Seq>, usize) = (Vec::new(), 0);
    while came.len() < 60_000 {
        let claim = Claim::new(vec![LaneClaim::after(lease, from)], 500);
        let (claimed, read) = claim_counted(&store, &claim).await;
        assert!(claimed.events.len() <= 500 && claimed.again.is_empty(), "{}", claimed.events.len());
        // A scan reads eight pages at most, and the claim that ends it returns the first of what it has found.
        let is_of_scan = came.is_empty();
        scans += usize::from(is_of_scan);
        assert!(read < if is_of_scan { 80_000 } else { 8000 }, "{read} reads after {}", came.len());
        assert!(scans <= 3 && (is_of_scan || !claimed.events.is_empty()), "{scans} claims of a scan");
        came.extend(claimed.events.iter().map(|event| event.seq));
        from = claimed.positions[0].1;
    }
    assert!(came.is_sorted() && came.len() == 60_000, "{}", came.len());
    came.dedup();
    assert_eq!(came.len(), 60_000);
}

/// Wants nothing.
#[derive(Debug)]
struct Nothing;

impl Admission for Nothing {
    fn admits(&self, _: &RowSummary<'_>) -> bool {
        false
    }
}

/// What is skipped, because its receiver is down, stays among the fresh rows: claims that follow do not read it again.
#[tokio::test]
async fn what_was_skipped_is_not_read_again_by_the_claims_that_follow() {
    let database = Database::new().await;
    let store = database.store().await.with_lanes(1).unwrap();
    store.migrate().await.unwrap();
    let lease = lease(&store, Duration::from_secs(60)).await[0];
    execute(&store, SIXTY_THOUSAND).await;
    let mut from = Position::START;
    loop {
        let mut claim = Claim::new(vec![LaneClaim::after(lease, from)], 500);
        claim.admission = Some(Arc::new(Nothing));
        let claimed = store.claim(&claim).await.unwrap();
        assert!(claimed.events.is_empty());
        from = claimed.positions[0].1;
        if !claimed.more {
            break;
        }
    }
    for n in 0..5 {
        write(&store, &[event(&format!("new {n}"))]).await;
        let claim = Claim::new(vec![LaneClaim::after(lease, from)], 500);
        let (claimed, read) = claim_counted(&store, &claim).await;
        assert_eq!(ids(&claimed), [format!("new {n}")]);
        // The status itself is a thousand reads; the numbers that the bulk insert drew and did not use end on a page of skipped rows.
        assert!(read < 8000, "{read} reads");
        from = claimed.positions[0].1;
    }
}
