//! What nobody told of: how soon it is found, and what finding it costs. Claims and peeks are counted in paused time.

use std::{sync::Arc, sync::atomic::Ordering::SeqCst, time::Duration};

use postrider::Outbox;
use tokio::time::Instant;

use crate::parts::{Doors, Recorder, Site, ms, pass, plain, secs, settle_down};

/// Longer than an idle engine takes from one peek to the next on the store in memory, and far shorter than a poll.
const SOON: Duration = ms(55);

/// An engine on a store that lets peeks through, after it has come to its longest pause.
async fn idle(site: &Site) -> (Arc<Doors>, Recorder, Outbox) {
    let (doors, seen) = (Doors::before(site.store.clone()), Recorder::default());
    doors.peeks.store(true, SeqCst);
    let outbox = site.outbox().shared_store(doors.clone()).on("A", seen.delivers()).start().await.unwrap();
    pass(secs(30) + ms(7)).await;
    (doors, seen, outbox)
}

#[tokio::test(start_paused = true)]
async fn an_event_that_nobody_told_of_is_delivered_within_milliseconds() {
    let site = Site::memory(8);
    let (_doors, seen, outbox) = idle(&site).await;
    for round in 1..=5 {
        let written = Instant::now();
        site.write_untold(&outbox, plain("A").key(format!("key {round}"))).await;
        seen.reaches(round).await;
        assert!(written.elapsed() < SOON, "it took {:?}", written.elapsed());
        pass(secs(round as u64)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_told_of_is_found_while_the_database_itself_waits() {
    // The store in memory waits, where nothing stands between it and the engine.
    let (site, seen) = (Site::memory(8), Recorder::default());
    let outbox = site.outbox().on("A", seen.delivers()).start().await.unwrap();
    pass(secs(30) + ms(7)).await;
    for round in 1..=5 {
        let written = Instant::now();
        site.write_untold(&outbox, plain("A").key(format!("key {round}"))).await;
        seen.reaches(2 * round - 1).await;
        assert!(written.elapsed() < SOON, "it took {:?}", written.elapsed());
        // What is told of is delivered at once, and a wait that goes on meanwhile changes nothing.
        let written = Instant::now();
        site.write(&outbox, plain("A").key(format!("told {round}"))).await;
        seen.reaches(2 * round).await;
        assert!(written.elapsed() < SOON, "it took {:?}", written.elapsed());
        pass(secs(round as u64)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn while_nothing_is_written_there_are_peeks_and_no_more_claims_than_polls() {
    let site = Site::memory(8);
    let (doors, _seen, _outbox) = idle(&site).await;
    let (claims, peeks) = (doors.claim.calls(), doors.peek.calls());
    pass(secs(60)).await;
    let (claims, peeks) = (doors.claim.calls() - claims, doors.peek.calls() - peeks);
    assert!((11..=13).contains(&claims), "{claims} claims in a minute, with a poll every five seconds");
    assert!((1000..=1600).contains(&peeks), "{peeks} peeks in a minute");
}

#[tokio::test(start_paused = true)]
async fn what_committed_later_than_it_was_written_is_found_soon() {
    let site = Site::memory(8);
    let (_doors, seen, outbox) = idle(&site).await;
    for (round, open_for) in [(1, ms(3)), (2, ms(20)), (3, ms(300))] {
        let mut tx = site.memory_store().begin();
        let _ = outbox.write(&mut tx, plain("A")).await.unwrap();
        pass(open_for).await;
        tx.commit().await.unwrap();
        let committed = Instant::now();
        seen.reaches(round).await;
        let took = committed.elapsed();
        assert!(took < SOON.max(open_for * 2), "open for {open_for:?}, found after {took:?}");
        pass(secs(20)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_rolled_back_does_not_keep_claims_going() {
    let site = Site::memory(8);
    let (doors, _seen, outbox) = idle(&site).await;
    let before = doors.claim.calls();
    let mut tx = site.memory_store().begin();
    let _ = outbox.write(&mut tx, plain("A")).await.unwrap();
    pass(secs(1)).await;
    tx.rollback().await;
    pass(secs(59)).await;
    let claims = doors.claim.calls() - before;
    assert!(claims <= 30, "{claims} claims in a minute for one event that was rolled back");
}

#[tokio::test(start_paused = true)]
async fn one_transaction_that_goes_on_writing_costs_few_claims_and_delays_others_little() {
    let site = Site::memory(8);
    let (doors, seen, outbox) = idle(&site).await;
    let before = doors.claim.calls();
    let mut long = site.memory_store().begin();
    for number in 0..1000 {
        let _ = outbox.write(&mut long, plain("A")).await.unwrap();
        pass(ms(10)).await;
        if number % 100 == 99 {
            let written = Instant::now();
            site.write_untold(&outbox, plain("A")).await;
            seen.reaches(number / 100 + 1).await;
            assert!(written.elapsed() < ms(120), "a small transaction waited for {:?}", written.elapsed());
        }
    }
    let claims = doors.claim.calls() - before;
    assert!(claims < 500, "{claims} claims in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn what_is_handed_over_in_memory_or_told_of_is_no_news_to_a_peek() {
    let site = Site::memory(8);
    let (doors, seen, outbox) = idle(&site).await;
    let before = doors.claim.calls();
    for number in 0..100 {
        site.write_hot(&outbox, plain("A")).await;
        seen.reaches(number + 1).await;
        pass(ms(50)).await;
    }
    let claims = doors.claim.calls() - before;
    assert!(claims < 10, "{claims} claims for 100 events that went through memory");
    for number in 0..100 {
        site.write(&outbox, plain("A").key("k")).await;
        seen.reaches(number + 101).await;
        pass(ms(50)).await;
    }
    // One brings it, and one comes at the shortest pause.
    let claims = doors.claim.calls() - before - claims;
    assert!(claims <= 210, "{claims} claims for 100 commits that were told of");
}

#[tokio::test(start_paused = true)]
async fn an_instance_without_lanes_does_not_peek() {
    let site = Site::memory(1);
    let (_doors, _seen, _owner) = idle(&site).await;
    let (doors, seen) = (Doors::before(site.store.clone()), Recorder::default());
    doors.peeks.store(true, SeqCst);
    let builder = site.outbox().shared_store(doors.clone()).instance("stands by");
    let _outbox = builder.on("A", seen.delivers()).start().await.unwrap();
    pass(secs(30)).await;
    assert_eq!(doors.peek.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn peeks_that_are_switched_off_fail_or_hang_leave_everything_to_polls() {
    let site = Site::memory(8);
    let (doors, seen, outbox) = idle(&site).await;
    doors.peek.fail(true);
    pass(secs(10)).await;
    site.write_untold(&outbox, plain("A")).await;
    seen.reaches(1).await;
    doors.peek.fail(false);
    doors.peek.before.close();
    pass(secs(10)).await;
    site.write_untold(&outbox, plain("A")).await;
    let written = Instant::now();
    seen.reaches(2).await;
    assert!(written.elapsed() < secs(7), "a peek that hangs delayed the poll: {:?}", written.elapsed());
    // A commit that is told of waits for no longer than a peek may take.
    pass(secs(20)).await;
    let written = Instant::now();
    site.write(&outbox, plain("A").key("k")).await;
    seen.reaches(3).await;
    assert!(written.elapsed() <= secs(1), "{:?}", written.elapsed());
    doors.peek.before.let_through();
    outbox.shutdown().await;

    let off = Doors::before(site.store.clone());
    off.peeks.store(true, SeqCst);
    let builder = site.outbox().shared_store(off.clone()).on("A", seen.delivers());
    let _outbox = builder.peek(Duration::ZERO).start().await.unwrap();
    pass(secs(30)).await;
    assert_eq!(off.peek.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn thousands_of_notifications_become_a_few_claims() {
    let site = Site::memory(8);
    let (doors, seen) = (Doors::before(site.store.clone()), Recorder::default());
    let outbox = site.outbox().shared_store(doors.clone()).on("A", seen.delivers()).start().await.unwrap();
    pass(secs(30) + ms(7)).await;
    let before = doors.claim.calls();
    for number in 0..3000 {
        doors.heard.notify_one();
        settle_down().await;
        if number % 4 == 0 {
            pass(ms(1)).await;
        }
    }
    let claims = doors.claim.calls() - before;
    assert!((5..=40).contains(&claims), "{claims} claims for 3000 notification in 0.75 s");
    // What they tell of is delivered all the same.
    let written = Instant::now();
    site.write_untold(&outbox, plain("A")).await;
    doors.heard.notify_one();
    seen.reaches(1).await;
    assert!(written.elapsed() <= ms(51), "{:?}", written.elapsed());
}
