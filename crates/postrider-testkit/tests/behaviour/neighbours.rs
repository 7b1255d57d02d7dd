//! Good events beside bad ones: whatever a receiver has against some, the others arrive, and an outage kills nobody.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider::{
    Backoff, Delivery, Outcome, named,
    store::{EventStatus, Subject},
};
use tokio::time::Instant;

use crate::parts::{Doors, Gate, Receiver, Recorder, Site, Tally, at, eventually, keyed, ms, pass, secs};

fn is_bad(delivery: &Delivery) -> bool {
    delivery.key().is_some_and(|key| key.starts_with("bad"))
}

/// Until so many were taken, or so much time has passed. How many that were.
async fn took_within(receiver: &Receiver, count: usize, limit: Duration) -> usize {
    let began = Instant::now();
    while receiver.took() < count && began.elapsed() < limit {
        pass(ms(100)).await;
    }
    receiver.took()
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_rejects_everything_stops_no_other() {
    for restart in [false, true] {
        let site = Site::memory(4);
        let receiver = Receiver::answering(|event| match event.tenant_id() {
            Some("rejects") => Outcome::rejected("400"),
            _ => Outcome::Delivered,
        });
        let receiver = receiver.shared();
        let start =
            async || site.outbox().sink("Tested", named("shop", receiver.clone())).start().await.unwrap();
        let mut outbox = start().await;
        site.write_all(&outbox, (0..2000).map(|n| at("rejects", &format!("r{n}"), n))).await;
        pass(secs(20)).await;
        if restart {
            outbox.shutdown().await;
            outbox = start().await;
            pass(secs(20)).await;
        }
        let before = receiver.took();
        for n in 0..20 {
            site.write(&outbox, at("takes", &format!("t{n}"), n)).await;
            pass(secs(1)).await;
        }
        let took = took_within(&receiver, before + 20, secs(10)).await - before;
        assert_eq!(took, 20, "after a restart: {restart}");
        let dead = site.store.stats().await.unwrap().dead;
        assert!(dead <= 20, "{dead} are dead, after a restart: {restart}");
        outbox.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn good_events_behind_thousands_that_are_refused_are_found() {
    type Answer = fn() -> Outcome;
    let answers: [Answer; 2] = [|| Outcome::rejected("400"), || Outcome::unavailable("403")];
    for answer in answers {
        let site = Site::memory(4);
        let receiver =
            Receiver::answering(move |event| if is_bad(event) { answer() } else { Outcome::Delivered });
        let receiver = receiver.shared();
        let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
        site.write_all(&outbox, (0..6000).map(|n| keyed(&format!("bad{n}"), n))).await;
        site.write_all(&outbox, (0..100).map(|n| keyed(&format!("good{n}"), n))).await;
        // Which of them is found first is chance, and then it is the one behind it.
        let took = took_within(&receiver, 90, secs(1800)).await;
        assert!(took >= 90, "{took}: {:?}", answer());
        outbox.shutdown().await;
    }
}

/// What was put off for a while comes back before what is fresh, the longest due first.
#[tokio::test(start_paused = true)]
async fn good_events_behind_thousands_that_were_put_off_and_are_refused_now_are_found() {
    for good_wait_too in [false, true] {
        let site = Site::memory(4);
        let puts_off = Arc::new(AtomicBool::new(true));
        let waits = Arc::clone(&puts_off);
        let receiver = Receiver::answering(move |event| match (waits.load(Relaxed), is_bad(event)) {
            (true, _) => Outcome::later("500", secs(60)),
            (false, true) => Outcome::unavailable("403"),
            (false, false) => Outcome::Delivered,
        });
        let receiver = receiver.healthy().shared();
        let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
        let write_good = async || {
            site.write_all(&outbox, (0..100).map(|n| keyed(&format!("good{n}"), n))).await;
        };
        site.write_all(&outbox, (0..3000).map(|n| keyed(&format!("bad{n}"), n))).await;
        eventually("all were put off", async || receiver.sent.lock().unwrap().len() == 3000).await;
        if good_wait_too {
            write_good().await;
            eventually("these too", async || receiver.sent.lock().unwrap().len() == 3100).await;
        }
        puts_off.store(false, Relaxed);
        pass(secs(120)).await;
        if !good_wait_too {
            assert_eq!(receiver.took(), 0);
            write_good().await;
        }
        // Those before the one that is found first are found later.
        let took = took_within(&receiver, 50, secs(1800)).await;
        assert!(took >= 50, "{took}, good ones wait too: {good_wait_too}");
        outbox.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_failed_in_an_outage_comes_soon_after_it_however_long_its_retries_wait() {
    for keys in [1, 4] {
        let site = Site::memory(4);
        let receiver = Receiver::answering(|_| Outcome::retry("500")).shared();
        // As spring-outbox has it: without a longest delay.
        let retry = Backoff::new(secs(10)).multiplier(3.0).without_cap().without_jitter();
        let outbox = site.outbox().sink("Tested", receiver.clone()).retry(retry).max_attempts(4);
        let outbox = outbox.start().await.unwrap();
        site.write_all(&outbox, (0..keys).map(|n| keyed(&format!("k{n}"), n))).await;
        pass(secs(1200)).await;
        receiver.mend();
        assert_eq!(took_within(&receiver, keys, secs(120)).await, keys);
        outbox.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_events_that_failed_once_leave_the_next_one_its_clock() {
    let site = Site::memory(4);
    let flaky = Arc::new(AtomicBool::new(true));
    let (receiver, fails) = (Arc::clone(&flaky), |_: &Delivery| Outcome::retry("500"));
    let receiver = Receiver::answering(move |event| match (is_bad(event), event.attempt) {
        (true, _) => Outcome::unavailable("403"),
        (false, 1) if receiver.load(Relaxed) => fails(event),
        _ => Outcome::Delivered,
    });
    let receiver = receiver.healthy().batch(1).shared();
    let outbox = site.outbox().sink("Tested", receiver.clone()).max_attempts(3).unavailable_for(secs(600));
    let outbox = outbox.start().await.unwrap();
    site.write_all(&outbox, (0..10_500).map(|n| keyed(&format!("k{n}"), n))).await;
    assert_eq!(took_within(&receiver, 10_500, secs(600)).await, 10_500);
    flaky.store(false, Relaxed);
    let bad = site.write(&outbox, keyed("bad", 0)).await;
    for n in 0..1000 {
        site.write(&outbox, keyed(&format!("later{n}"), n)).await;
        pass(secs(1)).await;
    }
    assert!(matches!(site.status(&bad).await, EventStatus::Dead { .. }), "{:?}", site.status(&bad).await);
    assert!(receiver.sends_of("bad") < 200, "{} sends", receiver.sends_of("bad"));
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_lasts_longer_than_unavailable_for_kills_nothing_even_if_a_straggler_was_taken() {
    for (outcome, named) in [
        (Outcome::unavailable("503"), false),
        (Outcome::unavailable("503"), true),
        (Outcome::retry("500"), true),
    ] {
        let site = Site::memory(4);
        let is_down = Arc::new(AtomicBool::new(false));
        let (down, failure) = (Arc::clone(&is_down), outcome.clone());
        let receiver = Receiver::answering(move |event| {
            let fails = down.load(Relaxed) || is_bad(event);
            if fails { failure.clone() } else { Outcome::Delivered }
        });
        let receiver = receiver.shared();
        let outbox =
            site.outbox().sink("Tested", receiver.clone()).max_attempts(5).unavailable_for(secs(3600));
        let outbox = outbox.start().await.unwrap();
        let event = |key: &str, n: usize| if named { at("shop", key, n) } else { keyed(key, n) };
        // These are refused, and then stragglers are taken beside them.
        site.write_all(&outbox, (0..2).map(|n| event(&format!("bad{n}"), n))).await;
        pass(ms(20)).await;
        site.write_all(&outbox, (0..20).map(|n| event(&format!("straggler{n}"), n))).await;
        pass(secs(40)).await;
        is_down.store(true, Relaxed);
        site.write_all(&outbox, (0..30).map(|n| event(&format!("k{n}"), n))).await;
        pass(secs(4 * 3600)).await;
        let stats = site.store.stats().await.unwrap();
        assert_eq!(stats.dead, 0, "{outcome:?}, with a named destination: {named}");
        receiver.mend();
        assert_eq!(took_within(&receiver, 52, secs(120)).await, 52, "{outcome:?}, {named}");
        outbox.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_relapse_right_after_an_outage_kills_nothing_and_is_seen_as_one() {
    for (outcome, keys) in [
        (Outcome::retry("500"), 12),
        (Outcome::unknown("no answer"), 6),
        (Outcome::unavailable("503"), 12),
        (Outcome::rejected("400"), 40),
    ] {
        let site = Site::memory(4);
        let left = Arc::new(AtomicUsize::new(0));
        let (takes, failure) = (Arc::clone(&left), outcome.clone());
        let receiver = Receiver::answering(move |_| {
            let is_taken = takes.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
            if is_taken { Outcome::Delivered } else { failure.clone() }
        });
        let receiver = receiver.shared();
        let tally = Tally::default();
        let outbox = site.outbox().metrics(tally.metrics()).sink("Tested", named("shop", receiver.clone()));
        let outbox = outbox.unavailable_for(secs(3600)).start().await.unwrap();
        site.write_all(&outbox, (0..keys * 5).map(|n| keyed(&format!("k{}", n % keys), n))).await;
        pass(secs(60)).await;
        // One event gets through, and then it is as before.
        left.store(1, Relaxed);
        eventually("one was taken", async || receiver.took() == 1).await;
        let opened = tally.now().breaker_opened;
        pass(secs(4 * 3600)).await;
        let dead = site.store.stats().await.unwrap().dead;
        let is_rejected = matches!(outcome, Outcome::Rejected { .. });
        assert!(dead <= if is_rejected { 20 } else { 0 }, "{outcome:?}: {dead} are dead");
        assert!(tally.now().breaker_opened > opened, "{outcome:?}: nobody is told");
        if is_rejected {
            let told = Subject::Rejected("shop".to_owned());
            assert!(site.store.pauses().await.unwrap().iter().any(|pause| pause.subject == told));
        }
        outbox.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_receiver_asks_to_come_later_comes_later_and_not_for_ever() {
    let site = Site::memory(4);
    let receiver = Receiver::answering(|_| Outcome::later("500", secs(600))).shared();
    let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
    // Five keys look like an outage. None of them comes before its time.
    site.write_all(&outbox, (0..8).map(|n| keyed(&format!("k{n}"), n))).await;
    pass(secs(590)).await;
    let sends: Vec<usize> = (0..8).map(|n| receiver.sends_of(&format!("k{n}"))).collect();
    assert!(sends.iter().all(|sends| *sends <= 1), "{sends:?}");
    receiver.mend();
    assert_eq!(took_within(&receiver, 8, secs(120)).await, 8);
    outbox.shutdown().await;

    let site = Site::memory(1);
    let receiver = Receiver::answering(|_| Outcome::later("500", secs(60))).healthy().shared();
    let outbox = site.outbox().sink("Tested", receiver.clone()).unavailable_for(secs(3600));
    let outbox = outbox.start().await.unwrap();
    let id = site.write(&outbox, keyed("alone", 0)).await;
    pass(secs(2 * 3600)).await;
    assert!(matches!(site.status(&id).await, EventStatus::Dead { .. }), "{:?}", site.status(&id).await);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_returns_while_lanes_are_handed_over_brings_nothing() {
    let site = Site::memory(16);
    let (first, second, gate) = (Recorder::default(), Recorder::default(), Arc::new(Gate::shut()));
    let doors = Doors::before(site.store.clone());
    let leaving = site.outbox().shared_store(doors.clone()).on("Tested", first.delivers());
    let leaving = leaving.on("Slow", first.waits_at(&gate)).drain_timeout(secs(60)).start().await.unwrap();
    let staying = site.outbox().on("Tested", second.delivers()).on("Slow", second.delivers());
    let staying = staying.start().await.unwrap();
    pass(secs(20)).await;
    // A slow send keeps the shutdown going, and a claim is on its way back.
    site.write_all(&staying, (0..16).map(|n| crate::parts::plain("Slow").key(format!("s{n}")))).await;
    gate.until_arrivals(1).await;
    doors.claim.after.close();
    let ids = site.write_all_untold(&leaving, (0..64).map(|n| keyed(&format!("k{n}"), n))).await;
    eventually("a claim is on its way back", async || doors.claim.after.waiting() > 0).await;
    doors.release.after.close();
    let ending = tokio::spawn({
        let leaving = leaving.clone();
        async move { leaving.shutdown().await }
    });
    eventually("lanes are handed over", async || doors.release.after.waiting() > 0).await;
    doors.claim.after.let_through();
    pass(ms(500)).await;
    doors.release.after.let_through();
    gate.let_through();
    ending.await.unwrap();
    for id in &ids {
        site.until_done(id).await;
    }
    let tested =
        [&first, &second].map(|seen| seen.seen().iter().filter(|one| one.event_type() == "Tested").count());
    assert_eq!(tested.iter().sum::<usize>(), ids.len(), "each event is delivered once: {tested:?}");
    drop(staying);
}

#[tokio::test(start_paused = true)]
async fn destinations_that_hang_when_an_outage_ends_do_not_keep_the_others_waiting() {
    let site = Site::memory(4);
    let is_down = Arc::new(AtomicBool::new(true));
    let down = Arc::clone(&is_down);
    let receiver = Receiver::answering(move |_| {
        if down.load(Relaxed) { Outcome::unavailable("503") } else { Outcome::Delivered }
    });
    let mut receiver = receiver;
    receiver.traits.one_destination = true;
    receiver.traits.concurrent = Some(16);
    receiver.traits.send_timeout = Some(secs(300));
    receiver.hanging.store(false, Relaxed);
    let receiver = receiver.shared();
    let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
    let tenant = |n: usize| if n % 8 < 2 { format!("hangs{}", n % 8) } else { format!("t{}", n % 8) };
    site.write_all(&outbox, (0..160).map(|n| at(&tenant(n), &format!("k{n}"), n))).await;
    pass(secs(60)).await;
    receiver.hanging.store(true, Relaxed);
    is_down.store(false, Relaxed);
    // Half a minute until the next probe, and ten seconds for each one that hangs.
    let took = took_within(&receiver, 120, secs(90)).await;
    assert_eq!(took, 120, "all that does not hang has come");
    outbox.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn sends_that_hang_when_an_outage_ends_do_not_keep_the_others_of_a_sink_without_destinations_waiting() {
    let site = Site::memory(4);
    let mut receiver = Receiver::answering(|_| Outcome::unavailable("503")).batch(10);
    receiver.traits.concurrent = Some(10);
    receiver.traits.send_timeout = Some(secs(300));
    receiver.hangs_for = Some((Box::new(|delivery: &Delivery| is_bad(delivery)), secs(299)));
    let receiver = receiver.shared();
    let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
    // One is taken, so that two sends may go at a time; and two hang.
    site.write_all(&outbox, [keyed("first", 0)]).await;
    pass(secs(1)).await;
    receiver.mend();
    eventually("one was taken", async || receiver.took() == 1).await;
    for n in 0..2 {
        site.write(&outbox, keyed(&format!("bad{n}"), n)).await;
        pass(ms(500)).await;
    }
    site.write_all(&outbox, (0..100).map(|n| keyed(&format!("good{n}"), n))).await;
    assert_eq!(took_within(&receiver, 101, secs(30)).await, 101, "all that does not hang has come");
    outbox.shutdown().await;
}
