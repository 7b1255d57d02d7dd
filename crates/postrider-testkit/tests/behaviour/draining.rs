//! Draining by an instance that stands by: it sees only the table, and others deliver from it.

use std::sync::Arc;

use postrider::{Backoff, Outbox, Outcome, store::EventStatus};
use tokio::task::JoinHandle;

use crate::parts::{Doors, Recorder, Site, Tally, eventually, pass, plain, secs};

/// Long enough for what is to be retried, and for a drain to have looked at the table again and again.
const A_WHILE: std::time::Duration = secs(20);

/// An instance that holds the only lane and fails every first attempt, the doors of its store, and one that stands by.
async fn holder_and_standby(site: &Site, seen: &Recorder) -> (Outbox, Arc<Doors>, Arc<Outbox>) {
    let doors = Doors::before(site.store.clone());
    let fails_once = seen.answers(|delivery| match (delivery.attempt, delivery.event.event_type()) {
        (1, "FailsOnce") => Outcome::retry("not yet"),
        _ => Outcome::Delivered,
    });
    let builder = site.outbox().shared_store(doors.clone()).otherwise(fails_once);
    let holder = builder.retry(Backoff::fixed(secs(5))).start().await.unwrap();
    let first = site.write(&holder, plain("A")).await;
    site.until_done(&first).await;
    let standby = site.outbox().otherwise(async |_: postrider::Delivery| ()).start().await.unwrap();
    (holder, doors, Arc::new(standby))
}

fn drain(outbox: &Arc<Outbox>) -> JoinHandle<postrider::Result<()>> {
    let outbox = outbox.clone();
    tokio::spawn(async move { outbox.drain().await })
}

#[tokio::test(start_paused = true)]
async fn a_stand_by_that_drains_waits_for_a_retry_that_is_due() {
    let (site, seen) = (Site::memory(1), Recorder::default());
    let (holder, doors, standby) = holder_and_standby(&site, &seen).await;
    let id = site.write(&holder, plain("FailsOnce")).await;
    eventually("it failed once", async || matches!(site.status(&id).await, EventStatus::Waiting { .. }))
        .await;
    drain(&standby).await.unwrap().unwrap();
    assert!(!site.is_done(&id).await, "a retry whose time has not come was waited for");

    doors.claim.before.close();
    pass(A_WHILE).await;
    let draining = drain(&standby);
    pass(A_WHILE).await;
    assert!(!draining.is_finished(), "drained, with a retry that is due: {:?}", site.status(&id).await);
    doors.claim.before.let_through();
    draining.await.unwrap().unwrap();
    assert!(site.is_done(&id).await);
}

#[tokio::test(start_paused = true)]
async fn a_stand_by_that_drains_waits_for_parked_events_that_are_coming_back() {
    let (site, seen) = (Site::memory(1), Recorder::default());
    let (holder, doors, standby) = holder_and_standby(&site, &seen).await;
    let head = site.write(&holder, plain("FailsOnce").key("k")).await;
    eventually("it failed once", async || matches!(site.status(&head).await, EventStatus::Waiting { .. }))
        .await;
    let follower = site.write(&holder, plain("A").key("k")).await;
    eventually("its follower waits", async || site.status(&follower).await == EventStatus::Parked).await;
    // The retry is claimed, and delivered when nothing is claimed any more.
    doors.settle.before.close();
    doors.settle.before.until_arrivals(doors.settle.before.arrivals() + 1).await;
    doors.claim.before.close();
    doors.settle.before.let_through();
    site.until_done(&head).await;
    assert_eq!(site.status(&follower).await, EventStatus::Parked);

    let draining = drain(&standby);
    pass(A_WHILE).await;
    assert!(!draining.is_finished(), "drained, with an event that is parked behind nothing");
    doors.claim.before.let_through();
    draining.await.unwrap().unwrap();
    assert!(site.is_done(&follower).await);
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_lanes_whose_owner_left_without_a_word() {
    let (site, seen) = (Site::memory(8), Recorder::default());
    let gone = site.outbox().otherwise(seen.delivers()).start().await.unwrap();
    let tally = Tally::default();
    let second = site.outbox().otherwise(seen.delivers()).metrics(tally.metrics()).start().await.unwrap();
    let second = Arc::new(second);
    eventually("both have lanes", async || tally.now().lanes_owned == 4).await;
    // As after SIGKILL: its lanes stay its own until their leases end.
    gone.engine().unwrap().abort();
    let ids = site.write_all(&second, (0..40).map(|n| plain("A").key(format!("k{n}")))).await;
    drain(&second).await.unwrap().unwrap();
    for id in &ids {
        assert!(site.is_done(id).await, "drained, with {:?}", site.status(id).await);
    }
}
