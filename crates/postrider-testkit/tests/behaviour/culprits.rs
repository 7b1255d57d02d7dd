//! Keys that fail by themselves: once others were delivered beside them, they are no outage.

use postrider::{Delivery, Outcome};
use tokio::time::Instant;

use crate::parts::{Receiver, Site, keyed, ms, pass, secs};

fn is_bad(delivery: &Delivery) -> bool {
    delivery.key().is_some_and(|key| key.starts_with("bad"))
}

#[tokio::test(start_paused = true)]
async fn thirty_failing_keys_stop_the_others_for_seconds_and_only_once() {
    type Answer = fn() -> Outcome;
    let answers: [Answer; 2] = [|| Outcome::retry("500"), || Outcome::unavailable("503")];
    for (answer, batch) in answers.into_iter().flat_map(|answer| [(answer, 1), (answer, 50)]) {
        let site = Site::memory(8);
        let receiver = Receiver::answering_batches(move |events| {
            let fails = events.iter().any(is_bad);
            let one = events.len() == 1;
            let outcome = || match fails {
                true if one => answer(),
                true => Outcome::batch_failed("500"),
                false => Outcome::Delivered,
            };
            events.iter().map(|_| outcome()).collect()
        });
        let receiver = receiver.batch(batch).shared();
        let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
        site.write_all(&outbox, (0..90).map(|n| keyed(&format!("bad{}", n % 30), n))).await;
        let began = Instant::now();
        let mut waited = Vec::new();
        for tick in 0..120 {
            site.write_all(&outbox, (0..25).map(|n| keyed(&format!("good{}", (tick * 25 + n) % 100), n)))
                .await;
            waited.push(Instant::now());
            pass(ms(500)).await;
        }
        let took = receiver.took_at(|delivery| !is_bad(delivery));
        let in_time = took.iter().filter(|at| **at <= began + secs(35)).count();
        assert!(in_time > 1000, "{in_time} of 1750 events came in 35 s, in batches of {batch}");
        // From then on no event waits for another outage.
        let worst = waited.iter().enumerate().skip(70).map(|(tick, written)| {
            let last = took.get((tick + 1) * 25 - 1);
            last.map_or(secs(600), |came| came.saturating_duration_since(*written))
        });
        let worst = worst.max().unwrap();
        assert!(worst < secs(2), "{worst:?}, in batches of {batch}");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_rejected_beside_others_that_are_taken_pull_no_brake_again_and_again() {
    for batch in [1, 50] {
        let site = Site::memory(8);
        let receiver = Receiver::answering(|delivery| match is_bad(delivery) {
            true => Outcome::rejected("400"),
            false => Outcome::Delivered,
        });
        let receiver = receiver.batch(batch).shared();
        let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
        // Every second key is bad, and each streak of them is longer than what pulls the brake.
        let key = |n: usize| {
            let (kind, number) = (if (n / 20).is_multiple_of(2) { "bad" } else { "good" }, n % 400);
            format!("{kind}{number}")
        };
        site.write_all(&outbox, (0..2000).map(|n| keyed(&key(n), n))).await;
        pass(secs(60)).await;
        assert_eq!(receiver.took(), 1000, "good events came in a minute, in batches of {batch}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_one_key_meets_does_not_slow_the_others() {
    for batch in [1, 50] {
        let site = Site::memory(8);
        let receiver = Receiver::answering_batches(move |events| {
            let limited = events.iter().any(is_bad);
            let outcome = || if limited { Outcome::deferred(secs(1)) } else { Outcome::Delivered };
            events.iter().map(|_| outcome()).collect()
        });
        let receiver = receiver.batch(batch).shared();
        let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
        site.write(&outbox, keyed("bad", 0)).await;
        for tick in 0..240 {
            site.write_all(&outbox, (0..25).map(|n| keyed(&format!("good{}", (tick * 25 + n) % 100), n)))
                .await;
            pass(ms(500)).await;
        }
        let stats = site.store.stats().await.unwrap();
        assert_eq!((receiver.took(), stats.dead), (6000, 0), "in batches of {batch}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_split_if_one_of_its_events_always_meets_a_limit() {
    for named in [false, true] {
        let site = Site::memory(8);
        let receiver = Receiver::answering_batches(|events| {
            let limited = events.iter().any(is_bad);
            let outcome = || if limited { Outcome::deferred(secs(1)) } else { Outcome::Delivered };
            events.iter().map(|_| outcome()).collect()
        });
        let mut receiver = receiver.batch(50);
        receiver.traits.one_destination = named;
        let receiver = receiver.shared();
        let outbox = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
        // All of them fit into one batch.
        let events = (0..50).map(|n| {
            let event = keyed(&if n == 20 { "bad".to_owned() } else { format!("good{n}") }, n);
            if named { event.tenant("a") } else { event }
        });
        site.write_all(&outbox, events).await;
        pass(secs(60)).await;
        let stats = site.store.stats().await.unwrap();
        assert_eq!((receiver.took(), stats.dead), (49, 0), "with a named destination: {named}");
    }
}
