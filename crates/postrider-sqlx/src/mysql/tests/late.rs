use std::time::Duration;

use postrider_core::{
    CallerTx, Store,
    store::{Claim, Claimed, LaneClaim, Lease, Position, Seq},
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
    // Older than the step of the clock that is allowed for.
    execute(&store, "UPDATE postrider_event SET created_at = created_at - INTERVAL 10 SECOND").await;

    let mut stopped = store.pool().begin().await.unwrap();
    sqlx::query("SELECT lane FROM postrider_lane FOR UPDATE").fetch_all(&mut *stopped).await.unwrap();
    let (from, x) = (passed.positions[0].1, passed.events[0].seq);
    let claiming = tokio::spawn({
        let store = store.clone();
        async move { claim(&store, lease, from, vec![x]).await }
    });
    let session = loop {
        match number(&store, WAITING).await {
            0 => tokio::task::yield_now().await,
            session => break session,
        }
    };
    on_server(format!("KILL {session}")).await;
    stopped.rollback().await.unwrap();
    assert_eq!(ids(&claiming.await.unwrap()), ["a", "b"]);
}

/// What was passed over while a receiver is down stays where it was, however much it is; a late event may lie behind all of it.
#[tokio::test]
async fn a_look_back_reads_more_than_one_statement_does() {
    let database = Database::new().await;
    let store = database.store().await.with_lanes(1).unwrap();
    store.migrate().await.unwrap();
    let lease = lease(&store, Duration::from_secs(60)).await[0];
    execute(
        &store,
        "CREATE TABLE digit (d INT) SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4
             UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9;
         INSERT INTO postrider_event (event_type, payload)
             SELECT 'Tested', '{}' FROM digit AS a, digit AS b, digit AS c, digit AS d, digit AS e WHERE e.d < 6",
    )
    .await;
    let tip = number(&store, "SELECT CAST(MAX(seq) AS SIGNED) FROM postrider_event").await.unsigned_abs();
    let passed = Position { met: tip, ..Position::START };
    let claimed = claim(&store, lease, passed, Vec::new()).await;
    // None was met, so all are late: some come, and the others are to be looked at again.
    assert_eq!(claimed.events.len() + claimed.again.len(), 60_000);
}
