//! Order within a key, and what a key that waits does to others.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex},
};

use postrider::{
    Backoff, Delivery, EventId, KeyOrder, OnDead, Outbox, Outcome,
    rng::Rng,
    store::{EventStatus, HoldReason},
};

use tracing::Level;

use crate::parts::{
    Doors, Gate, Log, Recorder, Site, eventually, fails, keyed, ms, number, on_every_store, plain, secs,
    settle_down,
};

on_every_store![
    events_of_a_key_are_delivered_in_order_through_random_failures,
    a_key_whose_head_waits_holds_its_followers_and_nobody_else,
    a_dead_head_blocks_its_key_until_it_is_redriven,
    a_dead_head_blocks_its_key_until_it_is_discarded,
    a_drain_lets_a_key_go_on_whose_head_was_deleted,
    a_hundred_followers_of_a_dead_head_come_back_in_order,
    under_the_skip_policy_a_key_goes_on_without_its_dead_head,
    a_delayed_event_does_not_hold_its_key,
    without_ordering_a_failed_event_holds_nobody,
    events_of_one_transaction_are_delivered_in_the_order_of_their_writes,
    an_event_without_a_key_waits_for_nobody,
];

/// The numbers of first attempts of each key.
fn first_attempts(seen: &[Delivery]) -> BTreeMap<String, Vec<usize>> {
    let mut met = HashSet::new();
    let mut firsts: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for delivery in seen {
        if met.insert(delivery.id().clone()) {
            firsts.entry(delivery.key().unwrap().to_owned()).or_default().push(number(delivery));
        }
    }
    firsts
}

async fn events_of_a_key_are_delivered_in_order_through_random_failures(site: Site) {
    let seen = Recorder::default();
    let rng = Mutex::new(Rng::seeded(11));
    let busy: Arc<Mutex<HashSet<String>>> = Arc::default();
    let (handler, keys) = (seen.clone(), busy.clone());
    let outbox = site
        .outbox()
        .on("Tested", move |delivery: Delivery| {
            handler.note(&delivery);
            let key = delivery.key().unwrap().to_owned();
            assert!(keys.lock().unwrap().insert(key.clone()), "two events of a key at once");
            let (keys, roll) = (keys.clone(), rng.lock().unwrap().below(10));
            async move {
                tokio::task::yield_now().await;
                keys.lock().unwrap().remove(&key);
                match roll {
                    0..=2 => Outcome::retry("bad luck"),
                    3 => Outcome::deferred(ms(3)),
                    4 => Outcome::unknown("who knows"),
                    _ => Outcome::Delivered,
                }
            }
        })
        .retry(Backoff::new(ms(2)).max(ms(10)))
        .max_attempts(1000)
        .poll(ms(1), ms(20))
        .start()
        .await
        .unwrap();
    let (keys, each) = (10, if site.is_sqlite() { 10 } else { 40 });
    for n in 0..each {
        let events = (0..keys).map(|k| keyed(&format!("k{k}"), n));
        if n % 2 == 0 {
            site.write_all(&outbox, events).await
        } else {
            site.write_all_hot(&outbox, events.collect()).await
        };
    }
    site.until_all_done((keys * each) as u64).await;
    let done = seen.seen();
    for (key, numbers) in first_attempts(&done) {
        assert_eq!(numbers, (0..each).collect::<Vec<_>>(), "first deliveries of {key}");
    }
    // Nothing of a key is delivered between two attempts of its head.
    let mut last: BTreeMap<String, usize> = BTreeMap::new();
    for delivery in &done {
        let number = number(delivery);
        let before = last.insert(delivery.key().unwrap().to_owned(), number);
        assert!(
            before.is_none_or(|before| number == before || number == before + 1),
            "{number} after {before:?}"
        );
    }
}

async fn a_key_whose_head_waits_holds_its_followers_and_nobody_else(site: Site) {
    let seen = Recorder::default();
    let answer = |delivery: &Delivery| match (delivery.key(), number(delivery)) {
        (Some("held"), 0) => Outcome::retry("not yet"),
        _ => Outcome::Delivered,
    };
    let outbox = site
        .outbox()
        .on("Tested", seen.answers(answer))
        .retry(Backoff::fixed(secs(3600)))
        .start()
        .await
        .unwrap();
    let held = site.write_all(&outbox, (0..3).map(|n| keyed("held", n))).await;
    let free = site.write_all(&outbox, (0..5).map(|n| keyed("free", n))).await;
    for id in &free {
        site.until_done(id).await;
    }
    let late = site.write(&outbox, keyed("held", 3)).await;
    eventually("followers are parked", async || {
        site.store.why("held").await.unwrap().is_some_and(|hold| hold.parked == 3)
    })
    .await;
    assert_eq!(seen.numbers_of("held"), [0]);
    assert_eq!(seen.numbers_of("free"), [0, 1, 2, 3, 4]);
    let hold = site.store.why("held").await.unwrap().unwrap();
    assert_eq!(hold.reason, HoldReason::Retry);
    assert!(hold.until.is_some());
    for id in held[1..].iter().chain([&late]) {
        assert_eq!(site.status(id).await, EventStatus::Parked);
    }
}

async fn a_dead_head_blocks_its_key_until_it_is_redriven(site: Site) {
    let seen = Recorder::default();
    let broken = Arc::new(Mutex::new(true));
    let switch = broken.clone();
    let answer = move |delivery: &Delivery| match number(delivery) {
        0 if *switch.lock().unwrap() => Outcome::rejected("broken"),
        _ => Outcome::Delivered,
    };
    let outbox = site.outbox().on("Tested", seen.answers(answer)).start().await.unwrap();
    let ids = site.write_all(&outbox, (0..4).map(|n| keyed("k", n))).await;
    let other = site.write(&outbox, keyed("other", 9)).await;
    site.until_dead(1).await;
    site.until_done(&other).await;
    let late = site.write(&outbox, keyed("k", 4)).await;
    eventually("followers are parked", async || {
        outbox.why("k").await.unwrap().is_some_and(|hold| hold.reason == HoldReason::Dead && hold.parked == 4)
    })
    .await;
    assert_eq!(seen.numbers_of("k"), [0]);
    assert!(outbox.dead(0, 10).await.unwrap()[0].blocks);

    *broken.lock().unwrap() = false;
    assert_eq!(outbox.redrive(&ids[..1]).await.unwrap(), 1);
    for id in ids.iter().chain([&late]) {
        site.until_done(id).await;
    }
    assert_eq!(seen.numbers_of("k"), [0, 0, 1, 2, 3, 4]);
    assert_eq!(seen.seen().last().unwrap().attempt, 1, "attempts are counted from zero again");
    eventually("the hold is gone", async || outbox.why("k").await.unwrap().is_none()).await;
}

/// An outbox with a key whose head is dead, with two events parked behind it; and their ids.
async fn with_a_blocked_key(site: &Site, seen: &Recorder) -> (Outbox, Vec<EventId>) {
    let answer = |delivery: &Delivery| match number(delivery) {
        0 => Outcome::rejected("broken"),
        _ => Outcome::Delivered,
    };
    let outbox = site.outbox().on("Tested", seen.answers(answer)).start().await.unwrap();
    let ids = site.write_all(&outbox, (0..3).map(|n| keyed("k", n))).await;
    site.until_dead(1).await;
    eventually("followers are parked", async || {
        outbox.why("k").await.unwrap().is_some_and(|hold| hold.parked == 2)
    })
    .await;
    (outbox, ids)
}

async fn a_dead_head_blocks_its_key_until_it_is_discarded(site: Site) {
    let seen = Recorder::default();
    let (outbox, ids) = with_a_blocked_key(&site, &seen).await;
    assert_eq!(outbox.discard(&ids[..1]).await.unwrap(), 1);
    site.until_done(&ids[1]).await;
    site.until_done(&ids[2]).await;
    assert_eq!(seen.numbers(), [0, 1, 2]);
    assert_eq!(site.status(&ids[0]).await, EventStatus::Absent);
}

/// An outbox with a key whose blocking dead event was deleted from the table, with two events parked behind it.
async fn with_an_orphaned_key(site: &Site, seen: &Recorder) -> Outbox {
    let (outbox, ids) = with_a_blocked_key(site, seen).await;
    site.delete_row(&ids[0]).await;
    outbox
}

async fn a_drain_lets_a_key_go_on_whose_head_was_deleted(site: Site) {
    let seen = Recorder::default();
    let outbox = with_an_orphaned_key(&site, &seen).await;
    outbox.drain().await.unwrap();
    assert_eq!(site.store.stats().await.unwrap().pending, 0);
    assert_eq!(seen.numbers(), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_head_was_deleted_goes_on_by_itself_and_a_warning_says_so() {
    let (log, _guard) = Log::listen();
    let (site, seen) = (Site::memory(1), Recorder::default());
    let outbox = with_an_orphaned_key(&site, &seen).await;
    site.until_all_done(2).await;
    assert_eq!(seen.numbers(), [0, 1, 2]);
    assert_eq!(log.count(Level::WARN, "key=\"k\""), 1);
    let next = site.write(&outbox, keyed("k", 3)).await;
    site.until_done(&next).await;
}

async fn a_hundred_followers_of_a_dead_head_come_back_in_order(site: Site) {
    let seen = Recorder::default();
    let answer = |delivery: &Delivery| match number(delivery) {
        0 => Outcome::rejected("broken"),
        _ => Outcome::Delivered,
    };
    let outbox = site.outbox().on("Tested", seen.answers(answer)).cold_queue(20).start().await.unwrap();
    let head = site.write(&outbox, keyed("k", 0)).await;
    site.until_dead(1).await;
    for ten in 0..10 {
        site.write_all(&outbox, (1..=10).map(|n| keyed("k", 10 * ten + n))).await;
    }
    eventually("followers are parked", async || {
        outbox.why("k").await.unwrap().is_some_and(|hold| hold.parked == 100)
    })
    .await;
    assert_eq!(seen.count(), 1);
    outbox.discard(&[head]).await.unwrap();
    // One more comes while they come back; it has to line up behind them.
    site.write(&outbox, keyed("k", 101)).await;
    site.until_all_done(101).await;
    assert_eq!(seen.numbers(), (0..=101).collect::<Vec<_>>());
}

async fn under_the_skip_policy_a_key_goes_on_without_its_dead_head(site: Site) {
    let seen = Recorder::default();
    let answer = |delivery: &Delivery| match number(delivery) {
        0 => Outcome::rejected("broken"),
        1 => fails(delivery),
        _ => Outcome::Delivered,
    };
    let outbox = site
        .outbox()
        .on("Tested", seen.answers(answer))
        .on_dead(OnDead::Skip)
        .max_attempts(2)
        .retry(Backoff::fixed(ms(5)))
        .start()
        .await
        .unwrap();
    let ids = site.write_all(&outbox, (0..4).map(|n| keyed("k", n))).await;
    site.until_done(&ids[3]).await;
    assert_eq!(seen.numbers(), [0, 1, 1, 2, 3]);
    let dead = outbox.dead(0, 10).await.unwrap();
    assert_eq!(dead.iter().map(|letter| letter.blocks).collect::<Vec<_>>(), [false, false]);
    assert_eq!(outbox.why("k").await.unwrap(), None);
}

async fn a_delayed_event_does_not_hold_its_key(site: Site) {
    let seen = Recorder::default();
    let outbox = site.outbox().on("Tested", seen.delivers()).start().await.unwrap();
    let delay = ms(400);
    let delayed = site.write(&outbox, keyed("k", 0).deliver_after(delay)).await;
    let next = site.write(&outbox, keyed("k", 1)).await;
    site.until_done(&next).await;
    assert_eq!(seen.numbers(), [1]);
    site.until_done(&delayed).await;
    assert_eq!(seen.numbers(), [1, 0]);
    assert!(seen.times()[1] - seen.times()[0] < delay + secs(1), "it came too late");
}

async fn without_ordering_a_failed_event_holds_nobody(site: Site) {
    let seen = Recorder::default();
    let answer = |delivery: &Delivery| match number(delivery) {
        0 => fails(delivery),
        _ => Outcome::Delivered,
    };
    let outbox = site
        .outbox()
        .on("Tested", seen.answers(answer))
        .key_order(KeyOrder::Ignored)
        .retry(Backoff::fixed(secs(3600)))
        .start()
        .await
        .unwrap();
    site.write_all(&outbox, (0..3).map(|n| keyed("k", n))).await;
    let hot = site.write_hot(&outbox, keyed("k", 3)).await;
    site.until_all_done(3).await;
    assert_eq!(outbox.why("k").await.unwrap(), None);
    let seen = seen.seen();
    let source = seen.iter().find(|delivery| *delivery.id() == hot).unwrap().source;
    assert_eq!(source, postrider::Source::Hot, "without order a keyed event takes the hot path");
}

async fn events_of_one_transaction_are_delivered_in_the_order_of_their_writes(site: Site) {
    let seen = Recorder::default();
    let outbox = site.outbox().on("Tested", seen.delivers()).start().await.unwrap();
    // Ids that sort the other way round: the order is that of the writes, not of the ids.
    let events = (0..50).map(|n| keyed("k", n).id(format!("id-{:03}", 100 - n)));
    site.write_all(&outbox, events).await;
    site.until_all_done(50).await;
    assert_eq!(seen.numbers(), (0..50).collect::<Vec<_>>());
}

async fn an_event_without_a_key_waits_for_nobody(site: Site) {
    let seen = Recorder::default();
    let outbox = site
        .outbox()
        .on(
            "A",
            seen.answers(|delivery| {
                if delivery.tenant_id() == Some("bad") { fails(delivery) } else { Outcome::Delivered }
            }),
        )
        .retry(Backoff::fixed(secs(3600)))
        .start()
        .await
        .unwrap();
    site.write(&outbox, plain("A").tenant("bad")).await;
    // An aggregate type alone gives no order either.
    site.write_all(&outbox, (0..5).map(|_| plain("A").aggregate_type("Order"))).await;
    site.until_all_done(5).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_moves_on_only_after_the_outcome_of_its_head_is_committed() {
    let site = Site::memory(1);
    let (seen, doors) = (Recorder::default(), Doors::before(site.store.clone()));
    let outbox =
        site.outbox().shared_store(doors.clone()).on("Tested", seen.delivers()).start().await.unwrap();
    doors.settle.before.close();
    site.write_all(&outbox, [keyed("k", 0), keyed("k", 1), keyed("other", 5)]).await;
    seen.reaches(2).await;
    doors.settle.before.until_arrivals(1).await;
    crate::parts::pass(secs(10)).await;
    assert_eq!(seen.numbers_of("k"), [0], "a follower went before the outcome was written");
    // Written, but the answer is still on its way.
    doors.settle.after.close();
    doors.settle.before.let_through();
    crate::parts::pass(secs(1)).await;
    assert_eq!(seen.numbers_of("k"), [0], "a follower went before the engine knew of the commit");
    doors.settle.after.let_through();
    site.until_all_done(3).await;
    assert_eq!(seen.numbers_of("k"), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_a_running_claim_brings_does_not_overtake_a_head_that_has_to_wait() {
    let site = Site::memory(1);
    let (seen, doors, gate) =
        (Recorder::default(), Doors::before(site.store.clone()), Arc::new(Gate::shut()));
    let (handler, wait) = (seen.clone(), gate.clone());
    let outbox = site
        .outbox()
        .shared_store(doors.clone())
        .on("Tested", move |delivery: Delivery| {
            handler.note(&delivery);
            let wait = wait.clone();
            async move {
                wait.pass().await;
                if number(&delivery) == 0 && delivery.attempt == 1 { Err("not yet") } else { Ok(()) }
            }
        })
        .retry(Backoff::fixed(secs(20)))
        .start()
        .await
        .unwrap();
    site.write(&outbox, keyed("k", 0)).await;
    seen.reaches(1).await;
    // A claim reads the follower while the head is still being sent, and its answer is delayed.
    doors.claim.after.close();
    let before = doors.claim.after.arrivals();
    site.write(&outbox, keyed("k", 1)).await;
    doors.claim.after.until_arrivals(before + 1).await;
    gate.let_through();
    eventually("the head waits", async || outbox.why("k").await.unwrap().is_some()).await;
    settle_down().await;
    doors.claim.after.let_through();
    crate::parts::pass(secs(5)).await;
    assert_eq!(seen.numbers(), [0], "the follower overtook the head");
    site.until_all_done(2).await;
    assert_eq!(seen.numbers(), [0, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_given_up_loses_no_follower_that_was_given_back() {
    let site = Site::memory(1);
    let (seen, doors) = (Recorder::default(), Doors::before(site.store.clone()));
    let answer = |delivery: &Delivery| match (number(delivery), delivery.attempt) {
        (0, 1) => Outcome::retry("not yet"),
        _ => Outcome::Delivered,
    };
    let outbox = site
        .outbox()
        .shared_store(doors.clone())
        .on("Tested", seen.answers(answer))
        .retry(Backoff::fixed(ms(100)))
        .poller(false)
        .start()
        .await
        .unwrap();
    site.write_all(&outbox, (0..3).map(|n| keyed("k", n))).await;
    assert_eq!(outbox.poll_once().await.unwrap(), 3);
    eventually("the head waits", async || outbox.why("k").await.unwrap().is_some()).await;
    settle_down().await;
    // The followers were given back, and a claim that was to look at them is given up half-way.
    doors.claim.before.close();
    assert!(tokio::time::timeout(ms(50), outbox.poll_once()).await.is_err());
    doors.claim.before.let_through();
    crate::parts::pass(ms(100)).await;
    for _ in 0..10 {
        outbox.poll_once().await.unwrap();
        crate::parts::pass(ms(10)).await;
    }
    assert_eq!(seen.numbers(), [0, 0, 1, 2]);
}
