//! Receivers that reject everything: they are broken, and their events are not.

use std::sync::Arc;

use postrider::{Delivery, Outcome, named, store::Subject};

use crate::parts::{Receiver, Site, at, eventually, keyed, ms, pass, secs};

#[tokio::test(start_paused = true)]
async fn a_receiver_that_rejects_everything_kills_ten_at_most_and_gets_the_rest_when_it_is_mended() {
    for batch in [1, 100] {
        let site = Site::memory(4);
        let receiver = Receiver::answering(|_| Outcome::rejected("400")).batch(batch).shared();
        let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
        site.write_all(&outbox, (0..500).map(|n| keyed(&format!("k{n}"), n))).await;
        pass(secs(600)).await;
        let dead = site.store.stats().await.unwrap().dead;
        assert!(dead <= 10, "{dead} are dead, in batches of {batch}");
        receiver.mend();
        site.until_all_done(500 - dead).await;
    }
}

#[tokio::test(start_paused = true)]
async fn operators_are_told_of_a_sink_that_rejects_everything_and_can_let_its_events_die() {
    let site = Site::memory(4);
    let receiver = Receiver::answering(|_| Outcome::rejected("400")).shared();
    let outbox = site.outbox().sink("Tested", named("shop", receiver.clone())).start().await.unwrap();
    site.write_all(&outbox, (0..50).map(|n| keyed(&format!("k{n}"), n))).await;
    let rejected = Subject::Rejected("shop".to_owned());
    let is_told = async || site.store.pauses().await.unwrap().iter().any(|pause| pause.subject == rejected);
    eventually("operators are told", is_told).await;
    assert!(site.store.stats().await.unwrap().dead <= 10);
    // What `postrider resume --sink` does.
    let brake = Subject::Brake("shop".to_owned());
    site.store.resume(&rejected).await.unwrap();
    site.store.pause(&brake, "let them die").await.unwrap();
    eventually("all of them are dead", async || site.store.stats().await.unwrap().dead == 50).await;
    // An hour later all begins anew.
    pass(secs(3700)).await;
    receiver.mend();
    let taken = site.write(&outbox, keyed("good", 0)).await;
    site.until_done(&taken).await;
    *receiver.answer.lock().unwrap() =
        Arc::new(|batch: &[Delivery]| vec![Outcome::rejected("400"); batch.len()]);
    site.write_all(&outbox, (0..50).map(|n| keyed(&format!("later{n}"), n))).await;
    eventually("operators are told again", is_told).await;
    assert!(site.store.stats().await.unwrap().dead <= 60);
    receiver.mend();
    eventually("it is over", async || !is_told().await).await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_whose_events_are_taken_does_not_lift_the_brake_of_another() {
    let site = Site::memory(8);
    let receiver = || {
        Receiver::answering(|event| match event.tenant_id() {
            Some("rejects") => Outcome::rejected("400"),
            _ => Outcome::Delivered,
        })
        .shared()
    };
    let mut outboxes = Vec::new();
    for _ in 0..3 {
        outboxes.push(site.outbox().sink("Tested", named("shop", receiver())).start().await.unwrap());
    }
    for round in 0..200 {
        site.write_all(&outboxes[0], (0..5).map(|n| at("rejects", &format!("r{round}-{n}"), n))).await;
        site.write_all(&outboxes[0], (0..5).map(|n| at("takes", &format!("t{round}-{n}"), n))).await;
        pass(ms(500)).await;
    }
    let dead = site.store.stats().await.unwrap().dead;
    assert!(dead <= 30, "{dead} are dead");
}

#[tokio::test(start_paused = true)]
async fn the_brake_counts_keys_over_all_destinations_of_a_sink() {
    let site = Site::memory(4);
    let receiver = Receiver::answering(|_| Outcome::rejected("400")).shared();
    let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
    // Each event has a destination of its own, as with `path: /orders/{aggregate_id}`.
    site.write_all(&outbox, (0..500).map(|n| at(&format!("t{n}"), &format!("k{n}"), n))).await;
    pass(secs(600)).await;
    let dead = site.store.stats().await.unwrap().dead;
    assert!(dead <= 10, "{dead} are dead");
    receiver.mend();
    let deadline = tokio::time::Instant::now() + secs(600);
    while site.store.stats().await.unwrap().done < 500 - dead {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", site.store.stats().await.unwrap());
        pass(secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_brake_outlives_restarts_and_ends_with_the_first_delivery() {
    let site = Site::memory(4);
    let receiver = Receiver::answering(|_| Outcome::rejected("400")).shared();
    let rejected = Subject::Rejected("shop".to_owned());
    let is_told = async || site.store.pauses().await.unwrap().iter().any(|pause| pause.subject == rejected);
    let writer = site.outbox().write_only().await.unwrap();
    site.write_all(&writer, (0..200).map(|n| keyed(&format!("k{n}"), n))).await;
    for _ in 0..5 {
        let outbox = site.outbox().sink("Tested", named("shop", receiver.clone())).start().await.unwrap();
        eventually("operators are told", is_told).await;
        pass(secs(60)).await;
        outbox.shutdown().await;
    }
    let dead = site.store.stats().await.unwrap().dead;
    assert!(dead <= 10, "{dead} are dead after four restarts");
    assert!(is_told().await, "the notice stays while nobody delivers");
    receiver.mend();
    let _outbox = site.outbox().sink("Tested", named("shop", receiver.clone())).start().await.unwrap();
    site.until_all_done(200 - dead).await;
    eventually("the notice is gone", async || !is_told().await).await;
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_lets_die_dies_as_fast_as_it_was_sent_before() {
    let site = Site::memory(4);
    let receiver = Receiver::answering(|_| Outcome::rejected("400")).taking(ms(50)).batch(100).shared();
    let outbox = site.outbox().sink("Tested", named("shop", receiver.clone())).start().await.unwrap();
    site.write_all(&outbox, (0..5000).map(|n| keyed(&format!("k{n}"), n))).await;
    let rejected = Subject::Rejected("shop".to_owned());
    let is_told = async || site.store.pauses().await.unwrap().iter().any(|pause| pause.subject == rejected);
    eventually("operators are told", is_told).await;
    site.store.resume(&rejected).await.unwrap();
    site.store.pause(&Subject::Brake("shop".to_owned()), "let them die").await.unwrap();
    eventually("all of them are dead", async || site.store.stats().await.unwrap().dead == 5000).await;
}
