//! Limits of receivers, and events that always meet one: a receiver that limits is obeyed, and an event that alone is limited waits alone.

use std::{collections::VecDeque, sync::Mutex, time::Duration};

use postrider::{Delivery, Outcome, store::EventStatus};
use tokio::time::Instant;

use crate::parts::{Receiver, Site, at, eventually, keyed, ms, pass, secs};

fn is_bad(delivery: &Delivery) -> bool {
    delivery.key().is_some_and(|key| key.starts_with("bad"))
}

/// Says "too fast" to requests with bad events in them.
fn limits_bad_ones(after: Duration) -> impl Fn(&[Delivery]) -> Vec<Outcome> + Send + Sync + 'static {
    move |events| {
        let limited = events.iter().any(is_bad);
        let outcome = || if limited { Outcome::deferred(after) } else { Outcome::Delivered };
        events.iter().map(|_| outcome()).collect()
    }
}

/// Writes 25 good events a second, and what `others` gives beside them. The longest time that one of them took that was written after `from`.
async fn good_ones_wait(
    site: &Site,
    receiver: &std::sync::Arc<Receiver>,
    (seconds, from): (usize, usize),
    others: impl Fn(usize) -> Vec<String>,
) -> Duration {
    let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
    let mut written = Vec::new();
    for tick in 0..seconds * 5 {
        let bad = others(tick);
        site.write_all(&outbox, bad.iter().map(|key| keyed(key, tick))).await;
        site.write_all(&outbox, (0..5).map(|n| keyed(&format!("good{}", tick * 5 + n), n))).await;
        written.push(Instant::now());
        pass(ms(200)).await;
    }
    pass(secs(30)).await;
    let took = receiver.took.lock().unwrap();
    let came =
        |key: String| took.iter().find(|(_, delivery)| delivery.key() == Some(&key)).map(|(at, _)| *at);
    let waited = |n: usize| {
        came(format!("good{n}")).map_or(secs(3600), |at| at.saturating_duration_since(written[n / 5]))
    };
    (from * 25..seconds * 25).map(waited).max().unwrap()
}

#[tokio::test(start_paused = true)]
async fn events_that_always_meet_a_limit_hold_up_the_others_for_seconds_even_if_new_ones_come_all_the_time() {
    for (after, batch) in [(secs(1), 1), (secs(60), 1), (secs(3600), 1), (secs(1), 50)] {
        let site = Site::memory(4);
        let answer = move |event: &Delivery| match is_bad(event) {
            true => Outcome::deferred(after),
            false => Outcome::Delivered,
        };
        let receiver = Receiver::answering(answer).batch(batch).shared();
        // One of ten.
        let others =
            |tick: usize| if tick.is_multiple_of(2) { vec![format!("bad{tick}")] } else { Vec::new() };
        let waited = good_ones_wait(&site, &receiver, (120, 0), others).await;
        assert!(waited < secs(20), "{waited:?}, {after:?}, batches of {batch}");
        let took = receiver.took();
        assert_eq!(
            (took, site.store.stats().await.unwrap().dead),
            (3000, 0),
            "{after:?}, batches of {batch}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_few_events_that_are_to_come_in_an_hour_hold_up_the_others_for_seconds() {
    let site = Site::memory(4);
    let receiver = Receiver::answering_batches(limits_bad_ones(secs(3600))).shared();
    let others = |tick: usize| {
        if tick.is_multiple_of(50) && tick < 150 { vec![format!("bad{tick}")] } else { Vec::new() }
    };
    let waited = good_ones_wait(&site, &receiver, (60, 0), others).await;
    assert!(waited < secs(20), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_alone_meets_a_limit_waits_for_as_long_as_it_takes() {
    for batch in [1, 50] {
        let site = Site::memory(4);
        let receiver = Receiver::answering_batches(limits_bad_ones(secs(60))).batch(batch).shared();
        let outbox = site.outbox().sink("Tested", receiver.clone()).unavailable_for(secs(3600));
        let outbox = outbox.max_attempts(3).start().await.unwrap();
        let bad = site.write(&outbox, keyed("bad", 0)).await;
        for n in 0..1000 {
            site.write(&outbox, keyed(&format!("good{}", n % 50), n)).await;
            pass(secs(20)).await;
        }
        let status = site.status(&bad).await;
        assert!(matches!(status, EventStatus::Waiting { attempts: 0, .. }), "{status:?}, batches of {batch}");
        assert_eq!(receiver.took(), 1000);
        // Its quota is there again.
        receiver.mend();
        pass(secs(120)).await;
        site.until_done(&bad).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_asks_for_an_hour_is_sent_next_to_nothing_meanwhile_and_all_after_it() {
    let site = Site::memory(4);
    let receiver = Receiver::answering(|_| Outcome::deferred(secs(3600))).shared();
    let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
    site.write_all(&outbox, (0..500).map(|n| keyed(&format!("k{n}"), n))).await;
    pass(secs(3500)).await;
    let sends: usize = receiver.sent.lock().unwrap().values().sum();
    assert!(sends <= 200, "{sends} sends, those that were under way at first among them");
    receiver.mend();
    let began = Instant::now();
    while receiver.took() < 500 {
        assert!(began.elapsed() < secs(3600), "{}", receiver.took());
        pass(secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_of_batches_that_counts_what_it_refuses_gets_full_batches() {
    for fails_first in [false, true] {
        let site = Site::memory(4);
        // Twenty requests in any minute, refused ones included.
        let requests = Mutex::new((VecDeque::new(), fails_first));
        let receiver = Receiver::answering_batches(move |events| {
            let (now, mut state) = (Instant::now(), requests.lock().unwrap());
            let (requests, fails) = &mut *state;
            while requests.front().is_some_and(|at| *at + secs(60) <= now) {
                requests.pop_front();
            }
            requests.push_back(now);
            let outcome = match (std::mem::take(fails), requests.len() <= 20) {
                (true, _) => Outcome::batch_failed("500"),
                (false, true) => Outcome::Delivered,
                (false, false) => Outcome::deferred(secs(1)),
            };
            vec![outcome; events.len()]
        });
        let receiver = receiver.batch(100).shared();
        let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
        site.write_all(&outbox, (0..40_000).map(|n| keyed(&format!("k{n}"), n))).await;
        // The first of these are sent alone, where a batch has failed as a whole.
        pass(secs(600)).await;
        let before = receiver.took();
        pass(secs(600)).await;
        let took = receiver.took() - before;
        // It asks for a second each time, and counts who comes then.
        assert!(took > 8000, "{took} of 20000 events came in ten minutes, {before} before, {fails_first}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_is_not_told_apart_is_obeyed_when_it_asks_for_time() {
    let site = Site::memory(4);
    let receiver = Receiver::answering(|event| match event.tenant_id() {
        Some("limited") => Outcome::deferred(secs(3600)),
        _ => Outcome::Delivered,
    });
    let receiver = receiver.shared();
    let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
    site.write_all(&outbox, (0..300).map(|n| at(&format!("t{n}"), &format!("k{n}"), n))).await;
    eventually("all are known", async || receiver.took() == 300).await;
    site.write_all(&outbox, (0..1000).map(|n| at("limited", &format!("l{n}"), n))).await;
    for n in 1000..1060 {
        let (written, id) = (Instant::now(), site.write(&outbox, at("t299", &format!("k{n}"), n)).await);
        site.until_done(&id).await;
        assert!(written.elapsed() < secs(1), "it waited {:?}", written.elapsed());
        pass(secs(10)).await;
    }
    let sends: usize = (0..1000).map(|n| receiver.sends_of(&format!("l{n}"))).sum();
    assert!(sends < 100, "{sends} sends in ten minutes");
}
