//! Draining by an instance that stands by: it sees only the table, and others deliver from it.

use std::sync::Arc;

use postrider::{Backoff, Drained, Outbox, Outcome, store::EventStatus};
use tokio::task::JoinHandle;

use crate::parts::{Doors, Gate, Recorder, Site, Tally, eventually, keyed, pass, plain, secs};

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

/// Drains for at most ten minutes, and says what that came to.
async fn drained(outbox: &Outbox) -> Drained {
    let limit = secs(600);
    tokio::time::timeout(limit, outbox.drain_available()).await.expect("the drain ends").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_where_only_outcomes_that_cannot_be_written_are_left() {
    let (site, seen) = (Site::memory(4), Recorder::default());
    let outbox = site.outbox().otherwise(seen.delivers()).start().await.unwrap();
    let store = site.memory_store();
    let events = ["locked", "refused"].map(|key| keyed(key, 0).build().unwrap());
    let [locked, refused] = [0, 1].map(|n| events[n].id().clone());
    store.lock_row(&locked);
    let bad = refused.clone();
    store.refuse_settles(move |settlement| settlement.event_id == bad);
    site.write_all(&outbox, events).await;
    // What follows them waits in the table.
    site.write_all(&outbox, [keyed("locked", 1), keyed("refused", 1)]).await;
    let good = site.write(&outbox, keyed("good", 0)).await;
    assert_eq!(drained(&outbox).await, Drained::AllButUnsettled { locked: 1, refused: 1, failing: 0 });
    assert!(site.is_done(&good).await);
    store.accept_settles();
    assert_eq!(drained(&outbox).await, Drained::AllButUnsettled { locked: 1, refused: 0, failing: 0 });
    store.unlock_row(&locked);
    assert_eq!(drained(&outbox).await, Drained::Everything);
    assert_eq!((seen.numbers_of("locked"), seen.numbers_of("refused")), (vec![0, 1], vec![0, 1]));
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_what_is_being_sent_beside_an_outcome_that_cannot_be_written() {
    let (site, seen, gate) = (Site::memory(4), Recorder::default(), Arc::new(Gate::shut()));
    let slow = Recorder::default();
    let builder = site.outbox().on("Slow", slow.waits_at(&gate)).otherwise(seen.delivers());
    let outbox = Arc::new(builder.start().await.unwrap());
    let event = keyed("locked", 0).build().unwrap();
    site.memory_store().lock_row(event.id());
    site.write(&outbox, event).await;
    let sent = site.write(&outbox, plain("Slow")).await;
    let draining = tokio::spawn({
        let outbox = outbox.clone();
        async move { drained(&outbox).await }
    });
    pass(secs(200)).await;
    assert!(!draining.is_finished(), "something is still being sent");
    gate.let_through();
    assert_eq!(draining.await.unwrap(), Drained::AllButUnsettled { locked: 1, refused: 0, failing: 0 });
    assert!(site.is_done(&sent).await);
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_where_no_settle_gets_through() {
    let (site, seen) = (Site::memory(4), Recorder::default());
    let doors = Doors::before(site.store.clone());
    let builder = site.outbox().shared_store(doors.clone()).otherwise(seen.delivers());
    let outbox = builder.start().await.unwrap();
    doors.settle.fail(true);
    let ids = site.write_all(&outbox, [keyed("a", 0), keyed("b", 0)]).await;
    assert_eq!(drained(&outbox).await, Drained::AllButUnsettled { locked: 0, refused: 0, failing: 2 });
    doors.settle.fail(false);
    assert_eq!(drained(&outbox).await, Drained::Everything);
    for id in &ids {
        assert!(site.is_done(id).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_can_have_no_lane_because_all_are_locked_ends_and_says_so() {
    let (site, seen) = (Site::memory(4), Recorder::default());
    let lock_all = |locked| (0..4).for_each(|lane| site.memory_store().lock_lane(lane, locked));
    lock_all(true);
    let outbox = site.outbox().otherwise(seen.delivers()).start().await.unwrap();
    assert_eq!(drained(&outbox).await, Drained::Everything, "nothing is due");
    let ids = site.write_all(&outbox, (0..16).map(|n| keyed(&format!("k{n}"), n))).await;
    assert_eq!(drained(&outbox).await, Drained::AllButLockedLanes { locked: 4, owned: 0 });
    (0..3).for_each(|lane| site.memory_store().lock_lane(lane, false));
    eventually("it has the others", async || site.memory_store().leases().len() == 3).await;
    assert_eq!(drained(&outbox).await, Drained::AllButLockedLanes { locked: 1, owned: 3 });
    lock_all(false);
    eventually("it has all", async || site.memory_store().leases().len() == 4).await;
    assert_eq!(drained(&outbox).await, Drained::Everything);
    for id in &ids {
        assert!(site.is_done(id).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_reads_a_lane_that_came_while_it_claimed_from_the_others() {
    let (site, seen) = (Site::memory(2), Recorder::default());
    let doors = Doors::before(site.store.clone());
    site.memory_store().lock_lane(1, true);
    let builder = site.outbox().shared_store(doors.clone()).otherwise(seen.delivers());
    let outbox = Arc::new(builder.poll(secs(60), secs(60)).start().await.unwrap());
    eventually("it has the other lane", async || site.memory_store().leases().len() == 1).await;
    site.write_all(&outbox, (0..16).map(|n| keyed(&format!("k{n}"), n))).await;
    // The poller rests from here on.
    eventually("what is in its lane is delivered", async || {
        let stats = outbox.stats().await.unwrap();
        stats.pending > 0 && stats.pending < 16 && seen.count() as u64 == 16 - stats.pending
    })
    .await;

    doors.claim.after.close();
    let draining = tokio::spawn({
        let outbox = outbox.clone();
        async move { (drained(&outbox).await, outbox.stats().await.unwrap().pending) }
    });
    doors.claim.after.until_arrivals(doors.claim.after.arrivals() + 1).await;
    site.memory_store().lock_lane(1, false);
    eventually("it has both", async || site.memory_store().leases().len() == 2).await;
    doors.claim.after.let_through();
    assert_eq!(draining.await.unwrap(), (Drained::Everything, 0));
}

#[tokio::test(start_paused = true)]
async fn a_drain_by_a_stand_by_waits_for_a_live_instance_however_long_that_takes() {
    let (site, seen) = (Site::memory(1), Recorder::default());
    let (holder, doors, standby) = holder_and_standby(&site, &seen).await;
    doors.claim.before.close();
    let id = site.write(&holder, plain("A")).await;
    let draining = tokio::spawn(async move { drained(&standby).await });
    pass(secs(300)).await;
    assert!(!draining.is_finished(), "it ended without the other's events");
    doors.claim.before.let_through();
    assert_eq!(draining.await.unwrap(), Drained::Everything);
    assert!(site.is_done(&id).await);
}
