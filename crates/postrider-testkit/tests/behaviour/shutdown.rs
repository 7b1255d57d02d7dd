//! How an engine ends.

use std::sync::Arc;

use postrider::{Backoff, Outcome, ShutdownReport, Source, store::EventStatus};
use tokio::time::Instant;

use crate::parts::{
    Doors, Gate, Recorder, Site, Tally, eventually, fails, keyed, ms, on_every_store, plain, secs,
    settle_down,
};

on_every_store![
    a_shutdown_delivers_what_is_in_memory,
    after_a_shutdown_nothing_is_handed_over_and_the_next_engine_delivers,
    a_second_shutdown_returns_what_the_first_one_said,
    a_dropped_outbox_delivers_no_more,
    shutting_down_an_outbox_that_only_writes_does_nothing,
];

async fn a_shutdown_delivers_what_is_in_memory(site: Site) {
    // S3-10.7
    let (seen, gate) = (Recorder::default(), Arc::new(Gate::shut()));
    let outbox = site.outbox().on("Tested", seen.waits_at(&gate)).start().await.unwrap();
    // Unkeyed ones, and a key whose followers wait in memory behind their head.
    site.write_all(&outbox, (0..20).map(|n| postrider::Event::json_text("Tested", n.to_string()))).await;
    site.write_all(&outbox, (0..5).map(|n| keyed("k", n))).await;
    for n in 0..5 {
        site.write_hot(&outbox, postrider::Event::json_text("Tested", n.to_string())).await;
    }
    gate.until_arrivals(4).await;
    eventually("all are in memory", async || outbox.poll_once().await.unwrap() == 0).await;
    let ending = tokio::spawn({
        let outbox = outbox.clone();
        async move { outbox.shutdown().await }
    });
    settle_down().await;
    gate.let_through();
    let report = ending.await.unwrap();
    assert_eq!((report.given_back, report.interrupted, report.released), (0, 0, true));
    assert_eq!(seen.count(), 30);
    assert_eq!(seen.numbers_of("k"), [0, 1, 2, 3, 4]);
    assert_eq!(site.store.stats().await.unwrap().done, 30);
}

async fn after_a_shutdown_nothing_is_handed_over_and_the_next_engine_delivers(site: Site) {
    // S3-10.2
    let (first, second, tally) = (Recorder::default(), Recorder::default(), Tally::default());
    let outbox = site.outbox().on("A", first.delivers()).metrics(tally.metrics()).start().await.unwrap();
    assert!(outbox.shutdown().await.released);
    let hot = site.write_hot(&outbox, plain("A")).await;
    let cold = site.write(&outbox, plain("A").key("k")).await;
    crate::parts::pass(ms(50)).await;
    assert_eq!(site.status(&hot).await, EventStatus::New);
    assert_eq!(site.status(&cold).await, EventStatus::New);
    assert_eq!((first.count(), tally.now().hot_enqueued, tally.now().hot_dropped), (0, 0, 0));

    let next = site.outbox().on("A", second.delivers()).start().await.unwrap();
    site.until_done(&hot).await;
    site.until_done(&cold).await;
    assert_eq!((first.count(), second.count()), (0, 2));
    next.shutdown().await;
}

async fn a_second_shutdown_returns_what_the_first_one_said(site: Site) {
    let gate = Arc::new(Gate::shut());
    let seen = Recorder::default();
    let outbox =
        site.outbox().on("A", seen.waits_at(&gate)).workers(1).drain_timeout(ms(50)).start().await.unwrap();
    site.write_all(&outbox, (0..3).map(|_| plain("A"))).await;
    gate.until_arrivals(1).await;
    eventually("all are in memory", async || outbox.poll_once().await.unwrap() == 0).await;
    let (first, second) = tokio::join!(outbox.shutdown(), outbox.shutdown());
    assert_eq!((first.given_back, first.interrupted, first.released), (2, 1, false));
    assert_eq!(first, second);
    assert_eq!(outbox.clone().shutdown().await, first);
}

async fn a_dropped_outbox_delivers_no_more(site: Site) {
    let (seen, tally) = (Recorder::default(), Tally::default());
    let writer = site.outbox().write_only().await.unwrap();
    let outbox = site
        .outbox()
        .on("A", seen.delivers())
        .poll(ms(5), ms(20))
        .metrics(tally.metrics())
        .start()
        .await
        .unwrap();
    let first = site.write(&outbox, plain("A")).await;
    site.until_done(&first).await;
    drop(outbox);
    crate::parts::pass(ms(10)).await;
    let claims = tally.now().claims;
    let id = site.write(&writer, plain("A")).await;
    crate::parts::pass(ms(200)).await;
    assert_eq!(site.status(&id).await, EventStatus::New);
    assert_eq!((seen.count(), tally.now().claims), (1, claims));
}

async fn shutting_down_an_outbox_that_only_writes_does_nothing(site: Site) {
    let outbox = site.outbox().write_only().await.unwrap();
    assert_eq!(outbox.shutdown().await, ShutdownReport::default());
    let id = site.write_hot(&outbox, plain("A")).await;
    assert_eq!(site.status(&id).await, EventStatus::New);
    assert_eq!(outbox.poll_once().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hung_handler_is_left_at_the_drain_timeout_and_no_attempt_is_counted() {
    // S3-10.7
    for hot in [true, false] {
        let site = Site::memory(1);
        let (seen, gate, tally) = (Recorder::default(), Arc::new(Gate::shut()), Tally::default());
        let outbox = site
            .outbox()
            .on("A", seen.waits_at(&gate))
            .workers(2)
            .metrics(tally.metrics())
            .start()
            .await
            .unwrap();
        let mut ids = Vec::new();
        for _ in 0..5 {
            ids.push(if hot {
                site.write_hot(&outbox, plain("A")).await
            } else {
                site.write(&outbox, plain("A")).await
            });
        }
        gate.until_arrivals(2).await;
        crate::parts::pass(secs(1)).await;
        let began = Instant::now();
        let report = outbox.shutdown().await;
        assert!(began.elapsed() >= secs(5) && began.elapsed() < secs(5) + ms(10), "{:?}", began.elapsed());
        assert_eq!((report.given_back, report.interrupted, report.released), (3, 2, false));
        assert_eq!(tally.now().given_back, 3);
        for row in site.memory_store().rows() {
            assert_eq!((row.status, row.attempts), (0, 0));
        }
        assert_eq!(gate.waiting(), 0, "a handler still runs");

        // The lease of the one that is gone runs out, and the next delivers all of them, the same ids.
        let again = Recorder::default();
        let _next = site.outbox().on("A", again.delivers()).start().await.unwrap();
        again.reaches(5).await;
        let (mut before, mut after) = (ids, again.ids());
        before.sort();
        after.sort();
        assert_eq!(before, after);
        assert!(again.seen().iter().all(|delivery| delivery.attempt == 1 && delivery.source == Source::Cold));
    }
}

#[tokio::test(start_paused = true)]
async fn once_a_shutdown_has_begun_nothing_is_handed_over() {
    // S3-10.2
    let site = Site::memory(1);
    let (seen, gate, tally) = (Recorder::default(), Arc::new(Gate::shut()), Tally::default());
    let outbox = site.outbox().on("A", seen.waits_at(&gate)).metrics(tally.metrics()).start().await.unwrap();
    let sent = site.write_hot(&outbox, plain("A")).await;
    gate.until_arrivals(1).await;
    let ending = tokio::spawn({
        let outbox = outbox.clone();
        async move { outbox.shutdown().await }
    });
    settle_down().await;
    let late = site.write_hot(&outbox, plain("A")).await;
    let told = site.write(&outbox, plain("A")).await;
    crate::parts::pass(secs(1)).await;
    assert_eq!((seen.count(), tally.now().hot_enqueued, tally.now().hot_dropped), (1, 1, 0));
    gate.let_through();
    let report = ending.await.unwrap();
    assert_eq!((report.given_back, report.interrupted, report.released), (0, 0, true));
    assert!(site.is_done(&sent).await);
    for id in [late, told] {
        assert_eq!(site.status(&id).await, EventStatus::New);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_retries_that_are_due_later() {
    let site = Site::memory(1);
    let seen = Recorder::default();
    let outbox =
        site.outbox().on("A", seen.answers(fails)).retry(Backoff::fixed(secs(3))).start().await.unwrap();
    let id = site.write(&outbox, plain("A")).await;
    seen.reaches(1).await;
    let began = Instant::now();
    let report = outbox.shutdown().await;
    assert!(report.released && began.elapsed() < ms(100), "{report:?} after {:?}", began.elapsed());
    assert!(
        matches!(site.status(&id).await, EventStatus::Waiting { attempts: 1, .. }),
        "its outcome was not written"
    );
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_a_receiver_that_is_down() {
    let site = Site::memory(1);
    let seen = Recorder::default();
    let outbox =
        site.outbox().on("A", seen.answers(|_| Outcome::unavailable("refused"))).start().await.unwrap();
    site.write_all(&outbox, (0..10).map(|_| plain("A"))).await;
    seen.reaches(4).await;
    let began = Instant::now();
    let report = outbox.shutdown().await;
    assert!(report.released && began.elapsed() < secs(1), "{report:?} after {:?}", began.elapsed());
    assert!(site.memory_store().rows().iter().all(|row| row.attempts == 0));
    assert_eq!(site.store.stats().await.unwrap().pending, 10);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_while_the_database_is_away_ends_and_loses_nothing() {
    let site = Site::memory(1);
    let (seen, doors) = (Recorder::default(), Doors::before(site.store.clone()));
    let outbox = site.outbox().shared_store(doors.clone()).on("A", seen.delivers()).start().await.unwrap();
    doors.fail(true);
    let id = site.write_hot(&outbox, plain("A")).await;
    seen.reaches(1).await;
    let began = Instant::now();
    let report = outbox.shutdown().await;
    assert!(began.elapsed() < secs(7), "{:?}", began.elapsed());
    assert!(!report.released, "an outcome was not written and the lane was given back");
    assert_eq!(site.status(&id).await, EventStatus::New);
    doors.fail(false);

    // S3-1.6: the second delivery has the same id.
    let again = Recorder::default();
    let _next = site.outbox().on("A", again.delivers()).start().await.unwrap();
    again.reaches(1).await;
    assert_eq!(again.ids(), seen.ids());
}

#[tokio::test(start_paused = true)]
async fn a_claim_under_way_does_not_keep_a_shutdown_waiting_and_brings_nothing_any_more() {
    let site = Site::memory(1);
    let (seen, doors) = (Recorder::default(), Doors::before(site.store.clone()));
    let outbox = site.outbox().shared_store(doors.clone()).on("A", seen.delivers()).start().await.unwrap();
    settle_down().await;
    doors.claim.after.close();
    let arrivals = doors.claim.after.arrivals();
    let id = site.write(&outbox, plain("A")).await;
    doors.claim.after.until_arrivals(arrivals + 1).await;
    let began = Instant::now();
    let report = outbox.shutdown().await;
    assert!(report.released && began.elapsed() < secs(1), "{report:?} after {:?}", began.elapsed());
    doors.claim.after.let_through();
    settle_down().await;
    assert_eq!(seen.count(), 0);
    assert_eq!(site.status(&id).await, EventStatus::New);
}

#[tokio::test(start_paused = true)]
async fn a_receipt_that_outlives_its_outbox_is_told_without_harm() {
    // S3-10.2
    let site = Site::memory(1);
    let seen = Recorder::default();
    let outbox = site.outbox().on("A", seen.delivers()).start().await.unwrap();
    let mut tx = site.memory_store().begin();
    let receipt = outbox.write(&mut tx, plain("A")).await.unwrap();
    tx.commit().await.unwrap();
    outbox.shutdown().await;
    drop(outbox);
    receipt.committed();
    settle_down().await;
    assert_eq!(seen.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_of_an_engine_is_left_when_it_has_ended_however_it_ended() {
    type End = fn(postrider::Outbox) -> postrider::BoxFuture<'static, ()>;
    let ends: [(&str, End); 3] = [
        ("shut down", |outbox| Box::pin(async move { _ = outbox.shutdown().await })),
        ("dropped", |outbox| Box::pin(async move { drop(outbox) })),
        ("stopped as by a crash", |outbox| Box::pin(async move { outbox.engine().unwrap().abort() })),
    ];
    for (name, end) in ends {
        let site = Site::memory(2);
        let outbox = site
            .outbox()
            .on("Hangs", async |_: postrider::Delivery| std::future::pending::<()>().await)
            .on("A", async |_: postrider::Delivery| ())
            .start()
            .await
            .unwrap();
        site.write_hot(&outbox, plain("Hangs")).await;
        site.write(&outbox, plain("A")).await;
        crate::parts::pass(crate::parts::secs(1)).await;
        end(outbox).await;
        let store = std::sync::Arc::downgrade(&site.store);
        drop(site);
        crate::parts::pass(crate::parts::secs(60)).await;
        assert_eq!(store.strong_count(), 0, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_begins_no_send_that_it_may_have_to_cut_off() {
    for (takes, sent) in [(secs(2), 8), (ms(2400), 8), (secs(1), 12), (ms(600), 20)] {
        let (site, seen) = (Site::memory(4), Recorder::default());
        let slow = {
            let seen = seen.clone();
            move |delivery: postrider::Delivery| {
                seen.note(&delivery);
                crate::parts::pass(takes)
            }
        };
        let outbox = site.outbox().on("Slow", slow).workers(4).drain_timeout(secs(5)).start().await.unwrap();
        site.write_all(&outbox, (0..40).map(|n| plain("Slow").key(format!("k{n}")))).await;
        eventually("the first are under way", async || seen.count() == 4).await;
        eventually("the rest is in memory", async || outbox.poll_once().await.unwrap() == 0).await;
        let report = outbox.shutdown().await;
        assert_eq!((report.interrupted, report.released), (0, true), "{takes:?}");
        assert_eq!((seen.count(), report.given_back), (sent, 40 - sent), "{takes:?}");
        assert_eq!(site.store.stats().await.unwrap().done, sent as u64, "{takes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn lanes_are_freed_one_by_one_while_a_slow_send_keeps_its_own() {
    let site = Site::memory(16);
    let (first, second, gate) = (Recorder::default(), Recorder::default(), Arc::new(Gate::shut()));
    let leaving = site
        .outbox()
        .on("Slow", first.waits_at(&gate))
        .on("Tested", first.delivers())
        .drain_timeout(secs(60))
        .start()
        .await
        .unwrap();
    let staying = site.outbox().on("Tested", second.delivers()).on("Slow", second.delivers());
    let staying = staying.start().await.unwrap();
    crate::parts::pass(secs(20)).await;
    site.write_all(&staying, (0..64).map(|n| plain("Slow").key(format!("s{n}")))).await;
    gate.until_arrivals(1).await;
    let ending = tokio::spawn({
        let leaving = leaving.clone();
        async move { leaving.shutdown().await }
    });
    settle_down().await;
    let began = Instant::now();
    let ids = site.write_all(&staying, (0..64).map(|n| keyed(&format!("k{n}"), n))).await;
    // All but those that share a lane with what is being sent are delivered by the other one soon.
    let done = async || {
        let mut done = 0;
        for id in &ids {
            done += usize::from(site.is_done(id).await);
        }
        done
    };
    eventually("most of them came", async || done().await >= 40).await;
    assert!(began.elapsed() < secs(10), "{:?}", began.elapsed());
    assert!(!ending.is_finished(), "the slow send is still under way");
    gate.let_through();
    assert!(ending.await.unwrap().released);
    for id in &ids {
        site.until_done(id).await;
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_lane_is_sent_while_it_is_handed_over() {
    let site = Site::memory(16);
    let (first, second, gate) = (Recorder::default(), Recorder::default(), Arc::new(Gate::shut()));
    let doors = Doors::before(site.store.clone());
    let leaving = site
        .outbox()
        .shared_store(doors.clone())
        .on("Tested", first.waits_at(&gate))
        .workers(1)
        .drain_timeout(secs(60));
    let leaving = leaving.start().await.unwrap();
    let staying = site.outbox().on("Tested", second.delivers()).start().await.unwrap();
    crate::parts::pass(secs(20)).await;
    let ids = site.write_all(&leaving, (0..64).map(|n| keyed(&format!("k{n}"), n))).await;
    gate.until_arrivals(1).await;
    // The database frees the lanes, and its answer is on its way for long.
    doors.release.after.close();
    let ending = tokio::spawn({
        let leaving = leaving.clone();
        async move { leaving.shutdown().await }
    });
    eventually("lanes are handed over", async || doors.release.after.waiting() > 0).await;
    gate.let_through();
    crate::parts::pass(ms(500)).await;
    doors.release.after.let_through();
    ending.await.unwrap();
    for id in &ids {
        site.until_done(id).await;
    }
    settle_down().await;
    assert_eq!(first.count() + second.count(), ids.len(), "each event is delivered once");
    drop(staying);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_gives_back_all_lanes_but_those_that_another_session_has_locked() {
    let site = Site::memory(4);
    let seen = Recorder::default();
    let outbox = site.outbox().otherwise(seen.delivers()).start().await.unwrap();
    site.memory_store().lock_lane(2, true);
    let began = Instant::now();
    assert!(!outbox.shutdown().await.released);
    assert!(began.elapsed() < secs(1), "{:?}", began.elapsed());
    let held: Vec<u32> = site.memory_store().leases().iter().map(|lease| lease.lane).collect();
    assert_eq!(held, [2]);
}
