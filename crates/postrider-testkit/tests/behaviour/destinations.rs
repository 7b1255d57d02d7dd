//! Destinations of one sink: what one of them does costs the others nothing.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use postrider::{Backoff, Delivery, Outcome, SinkTraits};
use tokio::time::Instant;

use crate::parts::{Receiver, Site, at, eventually, keyed, limited, ms, pass, secs};

/// Takes so many requests a second, whatever is in them, and says "too fast" to others.
fn limited_requests(rate: f64) -> impl Fn(&[Delivery]) -> Vec<Outcome> + Send + Sync + 'static {
    let answer = limited(rate);
    move |batch| batch.first().map(|first| vec![answer(first); batch.len()]).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_limits_its_requests_gets_full_batches() {
    let site = Site::memory(4);
    let slow = limited_requests(2.0);
    let mut receiver = Receiver::answering_batches(move |batch| match batch.first() {
        Some(first) if first.tenant_id() == Some("slow") => slow(batch),
        _ => vec![Outcome::Delivered; batch.len()],
    })
    .batch(100);
    (receiver.traits.one_destination, receiver.traits.concurrent) = (true, Some(10));
    let receiver = receiver.shared();
    let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
    let began = Instant::now();
    site.write_all(&outbox, [at("quick", "q", 0)]).await;
    // Fifty a second: a quarter of what two requests a second can carry.
    for second in 0..120 {
        site.write_all(&outbox, (0..50).map(|n| at("slow", &format!("s{second}-{n}"), n))).await;
        pass(secs(1)).await;
    }
    while receiver.took() < 6001 {
        assert!(began.elapsed() < secs(140), "{} after {:?}", receiver.took(), began.elapsed());
        pass(secs(1)).await;
    }
    let sends: usize = receiver.sent.lock().unwrap().values().sum();
    assert!(sends < 2 * 6001, "{sends} sends of 6001 events");
}

#[tokio::test(start_paused = true)]
async fn destinations_beyond_those_that_are_told_apart_hold_off_nobody_else() {
    let site = Site::memory(4);
    let receiver = Receiver::answering(|event| match event.tenant_id() {
        Some("limited") => Outcome::deferred(secs(3600)),
        _ => Outcome::Delivered,
    });
    let receiver = receiver.shared();
    let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
    site.write_all(&outbox, (0..400).map(|n| at(&format!("t{n}"), &format!("k{n}"), n))).await;
    eventually("all are known", async || receiver.took() == 400).await;
    site.write_all(&outbox, (0..5).map(|n| at("limited", &format!("l{n}"), n))).await;
    pass(secs(2)).await;
    for n in 1000..1100 {
        let (written, id) =
            (Instant::now(), site.write(&outbox, at(&format!("t{n}"), &format!("k{n}"), n)).await);
        site.until_done(&id).await;
        assert!(written.elapsed() < secs(1), "it waited {:?}", written.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_in_a_sink_that_mixes_destinations_is_sent_by_itself() {
    let site = Site::memory(4);
    let mut receiver = Receiver::answering(|_| Outcome::Delivered).batch(100);
    (receiver.traits.concurrent, receiver.gives_up_after) = (Some(10), Some(secs(30)));
    // Its server is well all the time.
    let receiver = receiver.healthy().shared();
    let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
    let tenant = |n: usize| if n.is_multiple_of(4) { "hangs" } else { "works" };
    site.write_all(&outbox, (0..2000).map(|n| at(tenant(n), &format!("k{n}"), n))).await;
    // The sink knows after its own time-out which of them hangs.
    pass(secs(31)).await;
    for n in 2000..2060 {
        let written = Instant::now();
        site.write(&outbox, at("hangs", &format!("k{n}"), n)).await;
        let good = site.write(&outbox, at("works", &format!("g{n}"), n)).await;
        site.until_done(&good).await;
        assert!(written.elapsed() < secs(2), "{n} waited {:?}", written.elapsed());
        pass(secs(1)).await;
    }
    let stats = site.store.stats().await.unwrap();
    assert_eq!(stats.dead, 0);
    receiver.hanging.store(false, Relaxed);
    let deadline = Instant::now() + secs(120);
    while site.store.stats().await.unwrap().pending > 0 {
        assert!(Instant::now() < deadline, "{:?}", site.store.stats().await.unwrap());
        pass(secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn events_that_hang_leave_sends_to_those_that_do_not() {
    let site = Site::memory(4);
    let poison = |delivery: &Delivery| delivery.key().is_some_and(|key| key.starts_with("poison"));
    let mut receiver = Receiver::answering_batches(move |batch| match batch.iter().any(poison) {
        true => vec![Outcome::batch_failed("no answer"); batch.len()],
        false => vec![Outcome::Delivered; batch.len()],
    })
    .batch(100)
    .healthy();
    receiver.traits = SinkTraits { concurrent: Some(10), send_timeout: Some(secs(30)), ..receiver.traits };
    receiver.hangs_for = Some((Box::new(poison), secs(29)));
    let receiver = receiver.shared();
    let retry = Backoff::fixed(ms(50));
    let outbox =
        site.outbox().sink("Tested", receiver.clone()).max_attempts(4).retry(retry).start().await.unwrap();
    site.write_all(&outbox, (0..40).map(|n| keyed(&format!("poison{n}"), n))).await;
    // By then each of them has been sent with others, and is sent alone from now on.
    pass(secs(61)).await;
    let mut slowest = Duration::ZERO;
    for n in 0..200 {
        let (written, id) = (Instant::now(), site.write(&outbox, keyed(&format!("good{n}"), n)).await);
        site.until_done(&id).await;
        slowest = slowest.max(written.elapsed());
        pass(secs(1)).await;
    }
    assert!(slowest < secs(2), "a good one waited {slowest:?}");
}
