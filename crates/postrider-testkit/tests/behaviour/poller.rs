//! Claims: when they happen, and what they survive.

use std::sync::Arc;

use postrider::{Backoff, Outcome, store::EventStatus};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use tokio::time::Instant;
use tracing::Level;

use crate::parts::{
    Doors, Folder, Gate, Log, Recorder, Site, TIMEOUT, eventually, keyed, ms, on_every_store, plain, secs,
    settle_down,
};

on_every_store![
    without_a_poller_only_hot_events_are_delivered_until_somebody_polls,
    an_event_whose_commit_nobody_told_is_delivered_by_the_next_poll,
    a_poll_on_demand_delivers_without_a_timer,
    a_poll_after_shutdown_claims_nothing,
];

async fn without_a_poller_only_hot_events_are_delivered_until_somebody_polls(site: Site) {
    // S0-15.1b
    let seen = Recorder::default();
    let outbox = site.outbox().on("A", seen.delivers()).poller(false).start().await.unwrap();
    let cold = site.write(&outbox, plain("A")).await;
    let keyed = site.write_hot(&outbox, plain("A").key("k")).await;
    let hot = site.write_hot(&outbox, plain("A")).await;
    site.until_done(&hot).await;
    assert_eq!(seen.ids(), std::slice::from_ref(&hot));
    assert_eq!(site.status(&cold).await, EventStatus::New);
    assert_eq!(site.status(&keyed).await, EventStatus::New);

    assert_eq!(outbox.poll_once().await.unwrap(), 2);
    site.until_all_done(3).await;
    assert_eq!(seen.count(), 3);
}

async fn an_event_whose_commit_nobody_told_is_delivered_by_the_next_poll(site: Site) {
    // S3-1.5
    let seen = Recorder::default();
    let outbox = site.outbox().on("A", seen.delivers()).poll(ms(20), ms(200)).start().await.unwrap();
    let id = site.write_untold(&outbox, plain("A")).await;
    site.until_done(&id).await;
    assert_eq!(seen.ids(), [id]);
}

async fn a_poll_on_demand_delivers_without_a_timer(site: Site) {
    // S3-11.2
    let seen = Recorder::default();
    let outbox = site.outbox().on("A", seen.delivers()).poller(false).start().await.unwrap();
    assert_eq!(outbox.poll_once().await.unwrap(), 0);
    let ids = site.write_all_untold(&outbox, [plain("A"), plain("A"), plain("A")]).await;
    assert_eq!(outbox.poll_once().await.unwrap(), 3);
    for id in &ids {
        site.until_done(id).await;
    }
    assert_eq!(outbox.poll_once().await.unwrap(), 0);
}

async fn a_poll_after_shutdown_claims_nothing(site: Site) {
    // S3-11.2
    let doors = Doors::before(site.store.clone());
    let seen = Recorder::default();
    let outbox = site.outbox().shared_store(doors.clone()).on("A", seen.delivers()).start().await.unwrap();
    outbox.shutdown().await;
    let claims = doors.claim.calls();
    let id = site.write(&outbox, plain("A")).await;
    assert_eq!(outbox.poll_once().await.unwrap(), 0);
    assert_eq!(doors.claim.calls(), claims);
    assert_eq!(site.status(&id).await, EventStatus::New);
    assert_eq!(seen.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn telling_of_a_commit_wakes_the_poller_before_any_pause_has_passed() {
    // S3-1.2: keyed events and foreign transactions are read at once.
    let site = Site::memory(8);
    let seen = Recorder::default();
    let outbox = site.outbox().on("A", seen.delivers()).start().await.unwrap();
    // Long enough that the poller has come to its longest pause.
    crate::parts::pass(secs(30) + ms(7)).await;
    let written = Instant::now();
    site.write(&outbox, plain("A").key("k")).await;
    seen.reaches(1).await;
    assert_eq!(Instant::now(), written, "a pause passed before the event was read");
    site.write_hot(&outbox, plain("A").key("k")).await;
    seen.reaches(2).await;
    assert!(
        written.elapsed() < ms(20),
        "a keyed event of an owned transaction waited for {:?}",
        written.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn many_commits_are_read_by_few_claims() {
    let site = Site::memory(8);
    let (doors, seen) = (Doors::before(site.store.clone()), Recorder::default());
    let outbox = site.outbox().shared_store(doors.clone()).on("A", seen.delivers()).start().await.unwrap();
    crate::parts::pass(secs(30)).await;
    let before = doors.claim.calls();
    for number in 0..100 {
        site.write(&outbox, plain("A").key(format!("key {number}"))).await;
        crate::parts::pass(ms(1)).await;
    }
    seen.reaches(100).await;
    let claims = doors.claim.calls() - before;
    assert!((15..=30).contains(&claims), "{claims} claims for 100 commits in 100 ms");
}

#[tokio::test(start_paused = true)]
async fn what_may_be_under_way_is_marked_once_for_many_claims_of_a_backlog() {
    let site = Site::memory(32);
    let (doors, seen) = (Doors::before(site.store.clone()), Recorder::default());
    let writer = site.outbox().write_only().await.unwrap();
    let events = (0..5000).map(|number| plain("A").key(format!("key {}", number % 500)));
    site.write_all_untold(&writer, events.collect::<Vec<_>>()).await;
    let builder = site.outbox().shared_store(doors.clone()).on("A", seen.delivers());
    let _outbox = builder.claim_batch(100).cold_queue(1000).start().await.unwrap();
    seen.reaches(5000).await;
    let (claims, marks) = (doors.claim.calls(), doors.mark.calls());
    assert!(claims >= 50, "{claims}");
    assert!(
        (5..=10).contains(&marks),
        "{marks} marks of a thousand places, for {claims} claims of 5000 events"
    );
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_fails_while_a_claim_runs_is_made_before_anything_is_sent() {
    let site = Site::memory(4);
    let (doors, seen) = (Doors::before(site.store.clone()), Recorder::default());
    let writer = site.outbox().write_only().await.unwrap();
    let events = (0..1000).map(|number| plain("A").key(format!("key {number}")));
    site.write_all_untold(&writer, events.collect::<Vec<_>>()).await;
    doors.mark.fail(true);
    let builder = site.outbox().shared_store(doors.clone()).on("A", seen.delivers());
    let _outbox = builder.claim_batch(50).cold_queue(100).start().await.unwrap();
    crate::parts::pass(secs(30)).await;
    assert_eq!(seen.count(), 0, "sent without a mark");
    doors.mark.fail(false);
    seen.reaches(1000).await;
}

#[tokio::test(start_paused = true)]
async fn the_pause_grows_from_poll_min_to_poll_max_and_begins_anew_with_an_event() {
    // S0-15.1, S3-11.1
    let site = Site::memory(1);
    let doors = Doors::before(site.store.clone());
    let seen = Recorder::default();
    let outbox = site
        .outbox()
        .shared_store(doors.clone())
        .on("A", seen.delivers())
        .poll(ms(20), ms(5000))
        .start()
        .await
        .unwrap();
    // Timers have the grain of a millisecond.
    let are_near = |gaps: &[u128], expected: &[u128]| {
        gaps.iter().zip(expected).all(|(gap, expected)| gap.abs_diff(*expected) <= 1)
    };
    let expected = [20, 40, 80, 160, 320, 640, 1280, 2560, 5000, 5000];
    for round in 1..=2 {
        crate::parts::pass(secs(30)).await;
        site.write_untold(&outbox, plain("A")).await;
        seen.reaches(round).await;
        // Its delivery is no reason to look again.
        let before = doors.claim.calls();
        eventually("ten more claims", async || doors.claim.calls() == before + expected.len()).await;
        let gaps = doors.claim.gaps_ms(expected.len());
        assert!(are_near(&gaps, &expected), "{gaps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_tried_when_it_is_due_and_not_at_the_next_poll() {
    // S3-13.1: the delay is the policy's, whatever the poller does.
    let site = Site::memory(1);
    let seen = Recorder::default();
    let outbox = site
        .outbox()
        .on(
            "A",
            seen.answers(
                |delivery| if delivery.attempt == 1 { Outcome::retry("once") } else { Outcome::Delivered },
            ),
        )
        .retry(Backoff::fixed(ms(200)))
        .start()
        .await
        .unwrap();
    for hot in [true, false] {
        // Long enough that the poller has come to its longest pause.
        crate::parts::pass(secs(31)).await;
        let before = seen.count();
        if hot {
            site.write_hot(&outbox, plain("A")).await
        } else {
            site.write(&outbox, plain("A")).await
        };
        seen.reaches(before + 2).await;
        let times = seen.times();
        let gap = times[before + 1] - times[before];
        assert!(gap >= ms(200) && gap < ms(230), "hot: {hot}; a retry of 200 ms came after {gap:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_a_slow_handler_is_tried_when_it_is_due() {
    let site = Site::memory(1);
    let seen = Recorder::default();
    let handler = seen.clone();
    let outbox = site
        .outbox()
        .on("A", move |delivery: postrider::Delivery| {
            handler.note(&delivery);
            async move {
                // Slower than all pauses of the poller: it sleeps for poll_max when the outcome comes.
                crate::parts::pass(secs(42)).await;
                if delivery.attempt == 1 { Err("once") } else { Ok(()) }
            }
        })
        .retry(Backoff::fixed(ms(200)))
        .start()
        .await
        .unwrap();
    site.write(&outbox, plain("A")).await;
    seen.reaches(2).await;
    let gap = seen.times()[1] - seen.times()[0];
    assert!(gap >= secs(42) + ms(200) && gap < secs(42) + ms(230), "it came after {gap:?}");
}

#[tokio::test(start_paused = true)]
async fn followers_of_a_freed_key_come_back_at_once_and_not_at_the_next_poll() {
    let site = Site::memory(1);
    let (seen, gate) = (Recorder::default(), Arc::new(Gate::open()));
    let (handler, wait) = (seen.clone(), gate.clone());
    let outbox = site
        .outbox()
        .on("Tested", move |delivery: postrider::Delivery| {
            handler.note(&delivery);
            let wait = wait.clone();
            async move {
                wait.pass().await;
                if delivery.attempt == 1 && delivery.payload().as_text() == Some("0") {
                    Err("once")
                } else {
                    Ok(())
                }
            }
        })
        .retry(Backoff::fixed(ms(200)))
        .start()
        .await
        .unwrap();
    site.write_all(&outbox, (0..3).map(|n| keyed("k", n))).await;
    seen.reaches(1).await;
    settle_down().await;
    gate.close();
    seen.reaches(2).await;
    // The second attempt of the head takes long; its followers are parked, and the poller rests.
    crate::parts::pass(secs(31)).await;
    let freed = Instant::now();
    gate.let_through();
    seen.reaches(4).await;
    assert_eq!(seen.numbers(), [0, 0, 1, 2]);
    assert!(freed.elapsed() < ms(100), "followers came back after {:?}", freed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_loops_survive_a_database_that_is_away_for_30_seconds_and_say_so() {
    // S3-16.2, S3-14.3
    let (log, _guard) = Log::listen();
    let site = Site::memory(8);
    let doors = Doors::before(site.store.clone());
    let seen = Recorder::default();
    let outbox = site.outbox().shared_store(doors.clone()).on("A", seen.delivers()).start().await.unwrap();
    let first = site.write(&outbox, plain("A")).await;
    site.until_done(&first).await;

    doors.settle.before.close();
    let sent = site.write_hot(&outbox, plain("A")).await;
    seen.reaches(2).await;
    doors.settle.before.until_arrivals(2).await;
    doors.fail(true);
    doors.settle.before.let_through();
    let waiting = site.write(&outbox, plain("A")).await;
    crate::parts::pass(secs(30)).await;
    assert!(log.count(Level::ERROR, "claim failed") > 3, "claims that fail are logged");
    assert!(log.count(Level::ERROR, "settle failed") > 3, "settles that fail are logged");
    assert!(log.count(Level::WARN, "lease") > 3, "renewals that fail are logged");
    assert_eq!(seen.count(), 2);

    doors.fail(false);
    site.until_done(&waiting).await;
    site.until_done(&sent).await;
    assert_eq!(site.store.stats().await.unwrap().pending, 0);
}

#[tokio::test]
async fn no_connection_is_held_while_a_handler_runs() {
    // S3-4.2: a pool of one connection, and a handler that waits.
    let folder = Folder::new();
    let options = SqliteConnectOptions::new().filename(folder.file()).create_if_missing(true);
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .acquire_timeout(TIMEOUT)
        .connect_with(options)
        .await
        .unwrap();
    let store = postrider::sqlite::SqliteStore::new(pool.clone());
    let (seen, gate) = (Recorder::default(), Arc::new(Gate::shut()));
    let outbox =
        postrider::Outbox::builder().store(store).on("A", seen.waits_at(&gate)).start().await.unwrap();
    for keyed in [false, true] {
        let event = if keyed { plain("A").key("k") } else { plain("A") };
        outbox.transaction(&pool, async |tx| tx.write(event).await).await.unwrap();
    }
    gate.until_arrivals(2).await;
    // Both handlers wait now; the only connection is to be had.
    let one: i64 = sqlx::query_scalar("SELECT 1").fetch_one(&pool).await.unwrap();
    assert_eq!(one, 1);
    gate.let_through();
    eventually("both are done", async || outbox.stats().await.unwrap().done == 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_is_due_at_once_is_never_taken_for_a_delayed_one() {
    // A claim that looks at the clock before it looks at the table finds events that are not due yet, and a delayed event
    // does not hold its key.
    let site = Site::sqlite().await;
    let (seen, gate) = (Recorder::default(), Arc::new(Gate::shut()));
    let outbox = site
        .outbox()
        .on("A", seen.waits_at(&gate))
        .cold_queue(2000)
        .poll(ms(1), ms(1))
        .start()
        .await
        .unwrap();
    for _ in 0..300 {
        site.write(&outbox, plain("A")).await;
    }
    assert_eq!(site.store.stats().await.unwrap().waiting, 0);
    gate.let_through();
    site.until_all_done(300).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_what_a_settle_made_due_behind_the_back_of_its_claim() {
    let site = Site::memory(1);
    let (doors, seen) = (Doors::before(site.store.clone()), Recorder::default());
    let fails_once = seen.answers(|delivery| match delivery.attempt {
        1 => Outcome::retry("not yet"),
        _ => Outcome::Delivered,
    });
    let builder = site.outbox().shared_store(doors.clone()).on("A", fails_once).poller(false);
    let outbox = Arc::new(builder.retry(Backoff::fixed(ms(0))).start().await.unwrap());
    doors.settle.before.close();
    let id = site.write(&outbox, plain("A").key("k")).await;
    let draining = tokio::spawn({
        let outbox = outbox.clone();
        async move { outbox.drain().await }
    });
    doors.settle.before.until_arrivals(1).await;
    let claims = doors.claim.after.arrivals();
    doors.claim.after.close();
    doors.claim.after.until_arrivals(claims + 1).await;
    doors.settle.before.let_through();
    eventually("the failure is settled", async || {
        matches!(site.status(&id).await, EventStatus::Waiting { attempts: 1, .. })
    })
    .await;
    // The outcome has left memory too before the claim returns.
    settle_down().await;
    doors.claim.after.let_through();
    draining.await.unwrap().unwrap();
    assert!(matches!(site.status(&id).await, EventStatus::Done { .. }), "{:?}", site.status(&id).await);
}
