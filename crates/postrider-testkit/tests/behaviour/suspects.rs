//! Suspects, whose attempts are written before they are sent: what is counted for them, and what is none.

use std::sync::Arc;

use postrider::{
    Backoff, EventId, Outcome,
    store::{Change, EventStatus, Settlement},
};

use crate::parts::{Doors, Gate, Receiver, Recorder, Site, eventually, ms, pass, plain, secs};

/// Writes an event, and ends a process while it is being delivered. What lies below the lane's mark is suspect from then on.
async fn crash(site: &Site) -> EventId {
    let (seen, gate) = (Recorder::default(), Arc::new(Gate::shut()));
    let outbox = site.outbox().on("Tested", seen.waits_at(&gate)).start().await.unwrap();
    let id = site.write(&outbox, plain("Tested")).await;
    gate.until_arrivals(1).await;
    outbox.engine().unwrap().abort();
    id
}

/// The database carries out the count of an attempt after its caller gave up, counted again, and took the attempt back.
#[tokio::test(start_paused = true)]
async fn an_attempt_whose_count_comes_late_is_not_counted() {
    let site = Site::memory(1);
    let id = crash(&site).await;
    let doors = Doors::before(site.store.clone());
    let receiver = Receiver::answering(|_| Outcome::retry("nobody knows why")).shared();
    doors.settle.before.close();
    let outbox = site
        .outbox()
        .shared_store(doors.clone())
        .sink("Tested", receiver.clone())
        .retry(Backoff::fixed(secs(1)))
        .max_attempts(1)
        .start()
        .await
        .unwrap();
    doors.settle.before.until_arrivals(2).await;
    doors.settle.before.let_through();
    eventually("its failure is settled", async || {
        matches!(site.status(&id).await, EventStatus::Waiting { error: Some(_), attempts: 0, .. })
    })
    .await;

    let count = Settlement {
        lane: 0,
        seq: 1,
        event_id: id.clone(),
        key: None,
        held: false,
        change: Change::Attempt { attempts: 1 },
    };
    let leases = site.memory_store().leases();
    assert_eq!(site.store.settle(&leases, &[count], secs(60)).await.unwrap().applied, 1);
    receiver.mend();
    eventually("it has its end", async || {
        matches!(site.status(&id).await, EventStatus::Done { .. } | EventStatus::Dead { .. })
    })
    .await;
    assert!(site.is_done(&id).await, "{:?}", site.status(&id).await);
    let attempts: Vec<u32> = receiver.took.lock().unwrap().iter().map(|(_, sent)| sent.attempt).collect();
    assert_eq!(attempts, [1]);
    outbox.shutdown().await;
}

/// It was not committed when its lane was taken, so that it cannot have been under way then.
#[tokio::test(start_paused = true)]
async fn what_is_handed_over_in_memory_is_no_suspect() {
    let site = Site::memory(1);
    crash(&site).await;
    let (doors, seen) = (Doors::before(site.store.clone()), Recorder::default());
    let outbox =
        site.outbox().shared_store(doors.clone()).on("Tested", seen.delivers()).start().await.unwrap();
    site.until_all_done(1).await;
    // The lane is still suspect far beyond what was written.
    doors.settle.before.close();
    let began = tokio::time::Instant::now();
    site.write_hot(&outbox, plain("Tested")).await;
    eventually("it is delivered", async || seen.count() == 2).await;
    assert!(began.elapsed() < ms(100), "it waited for its attempt to be counted: {:?}", began.elapsed());
    doors.settle.before.let_through();
    site.until_all_done(2).await;
    outbox.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_being_counted_when_the_process_is_asked_to_end_is_not_counted() {
    let site = Site::memory(1);
    let id = crash(&site).await;
    let (doors, seen) = (Doors::before(site.store.clone()), Recorder::default());
    doors.settle.after.close();
    let outbox = site.outbox().shared_store(doors.clone()).on("Tested", seen.delivers());
    let outbox = outbox.drain_timeout(ms(100)).start().await.unwrap();
    eventually("the attempt is counted, and nobody has heard of it", async || {
        doors.settle.after.waiting() == 1
    })
    .await;
    let ending = tokio::spawn({
        let outbox = outbox.clone();
        async move { outbox.shutdown().await }
    });
    eventually("nobody waits for that any more", async || doors.settle.after.waiting() == 0).await;
    doors.settle.after.let_through();
    ending.await.unwrap();
    assert_eq!(seen.count(), 0, "it was never sent");
    let next = site.outbox().on("Tested", seen.delivers()).start().await.unwrap();
    site.until_done(&id).await;
    assert_eq!(seen.seen()[0].attempt, 1);
    next.shutdown().await;
}

/// A worker takes the only suspect, and nobody else has anything to do until it has hung for a lease.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_suspect_that_hangs_is_sent_after_a_lease() {
    let site = Site::memory(1);
    crash(&site).await;
    let (doors, seen) = (Doors::before(site.store.clone()), Recorder::default());
    let gate = Arc::new(Gate::shut());
    doors.claim.before.close();
    let outbox = site.outbox().shared_store(doors.clone()).on("Tested", seen.waits_at(&gate));
    let outbox = outbox.start().await.unwrap();
    doors.claim.before.until_arrivals(1).await;
    pass(secs(4)).await;
    // What is written now was not under way then, and comes with the suspect in one claim.
    site.write_untold(&outbox, plain("Tested")).await;
    doors.claim.before.let_through();
    gate.until_arrivals(1).await;
    pass(secs(20)).await;
    assert_eq!(gate.arrivals(), 2, "the second one goes beside the suspect");
    gate.let_through();
    outbox.shutdown().await;
}
