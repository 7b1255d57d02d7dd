//! Receivers as they are: with several destinations, limits, one event that they choke on, and days on which they reject everything.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider::{Backoff, Delivery, Outcome, SinkTraits, store::EventStatus};
use tokio::time::Instant;

use crate::parts::{Receiver, Site, at, eventually, keyed, limited, ms, number, pass, secs};

#[tokio::test(start_paused = true)]
async fn a_receiver_that_limits_its_rate_gets_what_it_allows_and_nothing_dies() {
    for batch in [1, 100] {
        let site = Site::memory(4);
        let receiver = Receiver::answering(limited(20.0)).batch(batch).shared();
        let outbox = site.outbox().sink("Tested", receiver.clone()).max_attempts(3).start().await.unwrap();
        let began = Instant::now();
        site.write_all(&outbox, (0..6000).map(|n| keyed(&format!("k{}", n % 500), n))).await;
        while receiver.took() < 6000 {
            let (took, passed) = (receiver.took(), began.elapsed());
            assert!(passed < secs(333), "{took} after {passed:?}, in batches of {batch}");
            pass(secs(1)).await;
        }
        let stats = site.store.stats().await.unwrap();
        assert_eq!(stats.dead, 0, "batches of {batch}");
        let refused: usize = receiver.sent.lock().unwrap().values().sum::<usize>() - 6000;
        // The first sends know of no limit.
        assert!(refused < 300 + 10 * batch, "{refused} were sent too fast, in batches of {batch}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_limits_its_rate_slows_no_other_down() {
    let site = Site::memory(4);
    let slow = limited(20.0);
    let receiver = Receiver::answering(move |event| match event.tenant_id() {
        Some("slow") => slow(event),
        _ => Outcome::Delivered,
    });
    let receiver = receiver.shared();
    let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
    let began = Instant::now();
    site.write_all(&outbox, (0..3000).map(|n| at("slow", &format!("s{n}"), n))).await;
    site.write_all(&outbox, (0..3000).map(|n| at("quick", &format!("q{n}"), n))).await;
    let quick = |delivery: &Delivery| delivery.tenant_id() == Some("quick");
    eventually("all of the quick ones came", async || receiver.took_at(quick).len() == 3000).await;
    assert!(began.elapsed() < secs(20), "{:?}", began.elapsed());
    while receiver.took() < 6000 {
        // A hundred and fifty seconds, and a tenth.
        assert!(began.elapsed() < secs(165), "{} after {:?}", receiver.took(), began.elapsed());
        pass(secs(1)).await;
    }
    assert_eq!(site.store.stats().await.unwrap().dead, 0);
}

#[tokio::test(start_paused = true)]
async fn destinations_that_hang_hold_up_no_other_whether_they_have_worked_before_or_not() {
    for (batch, worked) in [(1, false), (1, true), (100, false), (100, true)] {
        let site = Site::memory(4);
        let mut receiver = Receiver::answering(|_| Outcome::Delivered).batch(batch);
        (receiver.traits.one_destination, receiver.traits.concurrent) = (true, Some(20));
        let receiver = receiver.shared();
        let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
        let tenant = |n: usize| if n.is_multiple_of(4) { format!("hangs{n}") } else { format!("works{n}") };
        let mut before = 0;
        if worked {
            receiver.hanging.store(false, Relaxed);
            site.write_all(&outbox, (0..2000).map(|n| at(&tenant(n % 40), &format!("w{n}"), n))).await;
            eventually("all work", async || receiver.took() == 2000).await;
            receiver.hanging.store(true, Relaxed);
            before = 2000;
        }
        let began = Instant::now();
        // A quarter of the destinations hang, and each has as much to do as the others.
        site.write_all(&outbox, (0..1600).map(|n| at(&tenant(n % 40), &format!("k{n}"), n))).await;
        eventually("what goes elsewhere came", async || receiver.took() == before + 1200).await;
        assert!(began.elapsed() < secs(10), "batches of {batch}, {worked}: {:?}", began.elapsed());
        for n in 1600..1660 {
            let written = Instant::now();
            site.write(&outbox, at("hangs4", &format!("k{n}"), n)).await;
            let good = site.write(&outbox, at("works1", &format!("g{n}"), n)).await;
            site.until_done(&good).await;
            assert!(written.elapsed() < secs(2), "batches of {batch}, {worked}: {:?}", written.elapsed());
            pass(secs(1)).await;
        }
        assert_eq!(site.store.stats().await.unwrap().dead, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_destination_leaves_room_for_others_and_has_it_where_nobody_wants_it() {
    let site = Site::memory(4);
    let receiver = Receiver::answering(|_| Outcome::Delivered).taking(ms(200));
    let receiver =
        Receiver { traits: SinkTraits { concurrent: Some(40), ..receiver.traits }, ..receiver }.shared();
    let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
    let began = Instant::now();
    site.write_all(&outbox, (0..1500).map(|n| at("busy", &format!("b{n}"), n))).await;
    site.write(&outbox, at("other", "o", 0)).await;
    eventually("all came", async || receiver.took() == 1501).await;
    // Thirty of forty at a time, each for a fifth of a second: ten seconds.
    assert!(began.elapsed() < secs(15), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_is_down_kills_nothing_and_stops_no_other() {
    for outcome in [Outcome::unavailable("503"), Outcome::retry("500"), Outcome::unknown("no answer")] {
        let site = Site::memory(4);
        let bad = outcome.clone();
        let receiver = Receiver::answering(move |event| match event.tenant_id() {
            Some("a") => bad.clone(),
            _ => Outcome::Delivered,
        })
        .shared();
        let retry = Backoff::fixed(ms(50));
        let outbox = site
            .outbox()
            .sink("Tested", receiver.clone())
            .max_attempts(3)
            .retry(retry)
            .start()
            .await
            .unwrap();
        for round in 0..150 {
            site.write(&outbox, at("a", &format!("a{}", round % 40), round)).await;
            let written = Instant::now();
            let good = site.write(&outbox, at("b", &format!("b{round}"), round)).await;
            site.until_done(&good).await;
            assert!(written.elapsed() < secs(2), "{outcome:?}: it waited {:?}", written.elapsed());
            pass(secs(1)).await;
        }
        assert_eq!(site.store.stats().await.unwrap().dead, 0, "{outcome:?}");
        receiver.mend();
        eventually("all came", async || site.store.stats().await.unwrap().pending == 0).await;
        let attempts = receiver.took.lock().unwrap().iter().map(|(_, delivery)| delivery.attempt).max();
        assert_eq!(attempts, Some(1), "{outcome:?}: an outage cost an attempt");
    }
}

#[tokio::test(start_paused = true)]
async fn one_event_that_fails_its_batches_is_dead_alone_whether_the_receiver_names_it_or_not() {
    let fails = |delivery: &Delivery| delivery.key().is_some_and(|key| key.starts_with("poison"));
    for (name, healthy, failure) in [
        ("all the same", false, Outcome::retry("500")),
        ("as a whole", false, Outcome::batch_failed("no answer")),
        ("as a whole, healthy", true, Outcome::batch_failed("no answer")),
    ] {
        let site = Site::memory(4);
        let receiver = Receiver::answering_batches(move |batch| match batch.iter().any(fails) {
            true => vec![failure.clone(); batch.len()],
            false => vec![Outcome::Delivered; batch.len()],
        });
        let mut receiver = receiver.batch(100);
        if healthy {
            receiver = receiver.healthy();
        }
        let receiver = receiver.shared();
        let (attempts, retry) = (4, Backoff::fixed(ms(50)));
        let outbox = site
            .outbox()
            .sink("Tested", receiver.clone())
            .max_attempts(attempts)
            .retry(retry)
            .start()
            .await
            .unwrap();
        // Twelve of a thousand, in groups that have others before and behind them.
        let events = (0..1000).map(|n| match n % 83 {
            0 => keyed(&format!("poison{n}"), n),
            _ => keyed(&format!("k{}", n % 40), n),
        });
        site.write_all(&outbox, events).await;
        eventually(name, async || receiver.took() == 987).await;
        if healthy {
            // Otherwise nobody knows whether what is left fails by itself.
            eventually(name, async || site.store.stats().await.unwrap().dead == 13).await;
        }
        pass(secs(60)).await;
        let stats = site.store.stats().await.unwrap();
        assert!(stats.dead <= 13 && receiver.took() == 987, "{name}: {stats:?}");
        let counted =
            receiver.took.lock().unwrap().iter().filter(|(_, delivery)| delivery.attempt > 1).count();
        assert_eq!(counted, 0, "{name}: an innocent event was counted");
    }
}

#[tokio::test(start_paused = true)]
async fn events_that_always_fail_are_dead_after_their_attempts_if_the_health_check_passes() {
    let site = Site::memory(1);
    let receiver = Receiver::answering(|_| Outcome::retry("500")).healthy().shared();
    let outbox = site.outbox().sink("Tested", receiver.clone()).max_attempts(3).start().await.unwrap();
    let ids = site.write_all(&outbox, [keyed("a", 0), keyed("b", 0)]).await;
    for id in &ids {
        let dead = async || matches!(site.status(id).await, EventStatus::Dead { attempts: 3, .. });
        eventually("it is dead", dead).await;
    }
    assert_eq!((receiver.sends_of("a"), receiver.sends_of("b")), (3, 3));
}

/// How long good events take while others fail, from the quickest to the slowest.
async fn good_ones_take(failing: usize) -> Vec<Duration> {
    let site = Site::memory(4);
    let receiver = Receiver::answering(|event| match event.key().is_some_and(|key| key.starts_with("bad")) {
        true => Outcome::retry("500"),
        false => Outcome::Delivered,
    });
    let receiver = receiver.healthy().taking(ms(20)).shared();
    let outbox = site.outbox().sink("Tested", receiver.clone()).max_attempts(100).start().await.unwrap();
    site.write_all(&outbox, (0..failing).map(|n| keyed(&format!("bad{n}"), n))).await;
    pass(secs(60)).await;
    let mut took = Vec::new();
    for n in 0..100 {
        let began = Instant::now();
        let id = site.write(&outbox, keyed(&format!("good{n}"), n)).await;
        site.until_done(&id).await;
        took.push(began.elapsed());
        pass(ms(500)).await;
    }
    took.sort_unstable();
    took
}

#[tokio::test(start_paused = true)]
async fn a_thousand_failing_keys_cost_the_good_ones_little_while_the_health_check_passes() {
    let (alone, beside) = (good_ones_take(0).await, good_ones_take(1000).await);
    assert!(beside[94] <= 2 * alone[94], "{:?} alone, {:?} beside failing ones", alone[94], beside[94]);
}

/// How long events of short keys take beside a key with so many events, from the quickest to the slowest.
async fn short_keys_take(long: usize) -> Vec<Duration> {
    let site = Site::memory(4);
    let receiver = Receiver::answering(|_| Outcome::Delivered).taking(ms(50)).shared();
    let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
    site.write_all(&outbox, (0..long).map(|n| keyed("long", n))).await;
    pass(secs(1)).await;
    let began = Instant::now();
    site.write_all(&outbox, (0..1000).map(|n| keyed(&format!("short{n}"), n))).await;
    let short = |delivery: &Delivery| delivery.key() != Some("long");
    eventually("the short ones came", async || receiver.took_at(short).len() == 1000).await;
    let mut took: Vec<Duration> = receiver.took_at(short).into_iter().map(|at| at - began).collect();
    took.sort_unstable();
    pass(ms(50) * u32::try_from(long).unwrap() * 2).await;
    let numbers: Vec<usize> = {
        let took = receiver.took.lock().unwrap();
        let of_long = took.iter().filter(|(_, delivery)| delivery.key() == Some("long"));
        of_long.map(|(_, delivery)| number(delivery)).collect()
    };
    assert!(numbers.is_sorted() && numbers.len() == long, "the long key lost its order");
    took
}

#[tokio::test(start_paused = true)]
async fn one_very_long_key_costs_the_short_ones_of_its_type_little() {
    let (alone, beside) = (short_keys_take(0).await, short_keys_take(4000).await);
    assert!(beside[949] <= 3 * alone[949], "{:?} alone, {:?} beside a long key", alone[949], beside[949]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_is_given_up_after_its_time_and_its_key_goes_on() {
    let site = Site::memory(1);
    let hangs = async |delivery: Delivery| match (delivery.key(), number(&delivery), delivery.attempt) {
        (Some("hangs"), 0, 1) => std::future::pending().await,
        _ => Outcome::Delivered,
    };
    let outbox = site.outbox().handler_timeout(secs(5)).workers(1).on("Tested", hangs).start().await.unwrap();
    let began = Instant::now();
    let ids = site.write_all(&outbox, [keyed("hangs", 0), keyed("hangs", 1), keyed("other", 0)]).await;
    for id in &ids {
        site.until_done(id).await;
    }
    assert!(began.elapsed() >= secs(5) && began.elapsed() < secs(10), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_a_sink_did_not_send_costs_no_attempt() {
    let site = Site::memory(4);
    let stuck = Arc::new(AtomicBool::new(true));
    let receiver = Receiver::answering_batches({
        let stuck = stuck.clone();
        move |batch| {
            let waits = stuck.load(Relaxed) && batch.iter().any(|delivery| delivery.key() != Some("good"));
            vec![if waits { Outcome::deferred(Duration::ZERO) } else { Outcome::Delivered }; batch.len()]
        }
    });
    let receiver = receiver.batch(10).healthy().shared();
    let retry = Backoff::fixed(ms(50));
    let outbox =
        site.outbox().sink("Tested", receiver.clone()).max_attempts(3).retry(retry).start().await.unwrap();
    site.write_all(&outbox, (0..100).map(|n| keyed(&format!("k{n}"), n))).await;
    for n in 0..60 {
        // Others are delivered meanwhile, so that the sink is known to work.
        site.write(&outbox, keyed("good", n)).await;
        pass(secs(1)).await;
    }
    assert_eq!(site.store.stats().await.unwrap().dead, 0);
    stuck.store(false, Relaxed);
    eventually("all came", async || receiver.took() == 160).await;
    let attempts = receiver.took.lock().unwrap().iter().map(|(_, delivery)| delivery.attempt).max();
    assert_eq!(attempts, Some(1), "what was not sent cost an attempt");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_can_explain_is_dead_after_unavailable_for_and_never_if_that_is_zero() {
    for (limit, dies) in [(secs(60), true), (Duration::ZERO, false)] {
        let site = Site::memory(1);
        let receiver = Receiver::answering(|_| Outcome::retry("500")).shared();
        let outbox = site.outbox().sink("Tested", receiver.clone()).unavailable_for(limit);
        let outbox = outbox.max_attempts(3).start().await.unwrap();
        let id = site.write(&outbox, keyed("a", 0)).await;
        pass(secs(30)).await;
        assert!(!matches!(site.status(&id).await, EventStatus::Dead { .. }), "too soon");
        pass(secs(240)).await;
        let is_dead = match site.status(&id).await {
            EventStatus::Dead { attempts, error } => {
                assert!(attempts == 0 && error.contains("60s"), "{attempts} attempts: {error}");
                true
            }
            _ => false,
        };
        assert_eq!(is_dead, dies, "{limit:?}");
    }
}

/// An event is refused while the sink takes another one of the same batch, and then for a long time nothing else is sent. Its clock runs from
/// that first refusal on.
#[tokio::test(start_paused = true)]
async fn an_event_that_is_refused_beside_one_that_is_taken_is_refused_alone() {
    let site = Site::memory(1);
    let receiver = Receiver::answering(|event| match event.key() {
        Some("bad") => Outcome::unavailable("not this one"),
        _ => Outcome::Delivered,
    });
    let receiver = receiver.batch(10).healthy().shared();
    let outbox = site.outbox().sink("Tested", receiver.clone()).unavailable_for(secs(60)).max_attempts(2);
    let write_only = site.outbox().write_only().await.unwrap();
    let ids = site.write_all(&write_only, [keyed("bad", 0), keyed("good", 1)]).await;
    let outbox = outbox.start().await.unwrap();
    site.until_done(&ids[1]).await;
    pass(secs(120)).await;
    assert_eq!(site.store.stats().await.unwrap().dead, 0, "nobody knows whether it is an outage");
    let sends = receiver.sends_of("bad");
    let good = site.write(&outbox, keyed("good", 2)).await;
    site.until_done(&good).await;
    eventually("it is dead", async || site.store.stats().await.unwrap().dead == 1).await;
    assert!(receiver.sends_of("bad") <= sends + 2, "{} after {sends}", receiver.sends_of("bad"));
    outbox.shutdown().await;
}
