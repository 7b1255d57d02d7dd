//! The right to deliver: who has it, how it changes hands, and what an instance that lost it can still do.

use std::sync::Arc;

use postrider::{EventId, Outbox, Outcome, store::EventStatus};
use tokio::time::Instant;
use tracing::Level;

use crate::parts::{
    Doors, Gate, Log, Receiver, Recorder, Site, Tally, at, eventually, keyed, ms, on_every_store, pass,
    plain, secs, settle_down,
};

on_every_store![
    a_second_engine_stands_by_and_takes_over_when_the_first_shuts_down,
    a_second_engine_takes_over_when_the_first_vanishes,
    an_engine_whose_lane_was_taken_settles_nothing_and_counts_it,
];

fn lease(site: &Site) -> std::time::Duration {
    if site.is_sqlite() { ms(600) } else { secs(15) }
}

async fn a_second_engine_stands_by_and_takes_over_when_the_first_shuts_down(site: Site) {
    // S2-6, S2-7
    let (first, second, tally) = (Recorder::default(), Recorder::default(), Tally::default());
    let one = site.outbox().on("A", first.delivers()).lease(lease(&site)).start().await.unwrap();
    let two = site
        .outbox()
        .on("A", second.delivers())
        .lease(lease(&site))
        .metrics(tally.metrics())
        .start()
        .await
        .unwrap();
    assert_eq!(tally.now().lanes_owned, 0, "one instance holds all lanes");
    // What the other writes is delivered by the one that holds the lanes.
    for outbox in [&one, &two] {
        site.write(outbox, plain("A")).await;
        site.write_hot(outbox, plain("A")).await;
    }
    site.until_all_done(4).await;
    assert_eq!((first.count(), second.count()), (4, 0));

    assert!(one.shutdown().await.released);
    let id = site.write(&two, plain("A")).await;
    let began = Instant::now();
    site.until_done(&id).await;
    assert!(began.elapsed() < lease(&site), "it waited for the lease, though the lanes were free");
    assert_eq!((first.count(), second.count()), (4, 1));
    assert_eq!(tally.now().lanes_owned, u64::from(site.store.features().lanes));
}

async fn a_second_engine_takes_over_when_the_first_vanishes(site: Site) {
    // S2-6, S3-1.6
    let (first, second, gate) = (Recorder::default(), Recorder::default(), Arc::new(Gate::shut()));
    let one = site.outbox().on("Tested", first.waits_at(&gate)).lease(lease(&site)).start().await.unwrap();
    let ids = site.write_all(&one, (0..3).map(|n| keyed("k", n))).await;
    gate.until_arrivals(1).await;
    let two = site.outbox().on("Tested", second.delivers()).lease(lease(&site)).start().await.unwrap();
    drop(one);
    let began = Instant::now();
    for id in &ids {
        site.until_done(id).await;
    }
    assert!(began.elapsed() < lease(&site) + secs(1), "it took {:?}", began.elapsed());
    // The head was being sent when the first vanished: it comes again, with the same id, and the order holds.
    assert_eq!(first.numbers(), [0]);
    assert_eq!(second.numbers(), [0, 1, 2]);
    assert_eq!(second.ids(), ids);
    two.shutdown().await;
}

async fn an_engine_whose_lane_was_taken_settles_nothing_and_counts_it(site: Site) {
    let (log, _guard) = Log::listen();
    let (first, second, gate) = (Recorder::default(), Recorder::default(), Arc::new(Gate::shut()));
    let (doors, tally) = (Doors::before(site.store.clone()), Tally::default());
    let one = site
        .outbox()
        .shared_store(doors.clone())
        .on("Tested", first.answers(|_| postrider::Outcome::rejected("the zombie says no")))
        .lease(lease(&site))
        .metrics(tally.metrics())
        .start()
        .await
        .unwrap();
    // It pauses inside of its settle, and its renewals do not come through either.
    doors.settle.before.close();
    doors.renew.before.close();
    let ids = site.write_all(&one, (0..3).map(|n| keyed("k", n))).await;
    doors.settle.before.until_arrivals(1).await;
    let two = site.outbox().on("Tested", second.waits_at(&gate)).lease(lease(&site)).start().await.unwrap();
    gate.until_arrivals(1).await;

    // The other has taken over and is sending when the settle goes on.
    doors.settle.before.let_through();
    eventually("the fence is counted", async || tally.now().fenced == 1).await;
    assert_eq!(
        site.status(&ids[0]).await,
        EventStatus::New,
        "a settle of the one that lost its lane was written"
    );
    assert_eq!(site.store.why("k").await.unwrap(), None);
    doors.renew.before.let_through();
    gate.let_through();
    for id in &ids {
        site.until_done(id).await;
    }
    assert_eq!(second.numbers(), [0, 1, 2]);
    assert_eq!(first.numbers(), [0], "it went on to send");
    assert!(log.count(Level::WARN, "fenced") >= 1);
    two.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn past_the_local_deadline_nothing_is_sent_hot_or_cold() {
    let site = Site::memory(1);
    let (seen, doors, gate) =
        (Recorder::default(), Doors::before(site.store.clone()), Arc::new(Gate::open()));
    let outbox = site
        .outbox()
        .shared_store(doors.clone())
        .on("A", seen.waits_at(&gate))
        .workers(1)
        .start()
        .await
        .unwrap();
    let first = site.write_hot(&outbox, plain("A")).await;
    site.until_done(&first).await;
    doors.renew.before.close();
    doors.lease.before.close();
    // Some wait in memory behind a slow one when the deadline passes.
    gate.close();
    site.write_all(&outbox, [plain("A"), plain("A"), plain("A")]).await;
    site.write_hot(&outbox, plain("A")).await;
    seen.reaches(2).await;
    crate::parts::pass(secs(14)).await;
    gate.let_through();
    site.write_hot(&outbox, plain("A")).await;
    site.write(&outbox, plain("A")).await;
    crate::parts::pass(secs(30)).await;
    assert_eq!(seen.count(), 2, "something was sent without the right to");

    doors.renew.before.let_through();
    doors.lease.before.let_through();
    eventually("all are done", async || site.store.stats().await.unwrap().pending == 0).await;
    assert_eq!(seen.count(), 7, "what was sent and settled is not sent again");
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_keeps_its_lane_as_long_as_renewals_come_through() {
    let site = Site::memory(8);
    let (seen, tally) = (Recorder::default(), Tally::default());
    let handler = seen.clone();
    let outbox = site
        .outbox()
        .on("A", move |delivery: postrider::Delivery| {
            handler.note(&delivery);
            crate::parts::pass(secs(100))
        })
        .metrics(tally.metrics())
        .start()
        .await
        .unwrap();
    let id = site.write(&outbox, plain("A").key("k")).await;
    settle_down().await;
    let standby: Outbox = site.outbox().on("A", seen.delivers()).start().await.unwrap();
    crate::parts::pass(secs(99)).await;
    assert_eq!(site.status(&id).await, EventStatus::New);
    crate::parts::pass(secs(2)).await;
    assert!(site.is_done(&id).await);
    assert_eq!((seen.count(), tally.now().fenced), (1, 0));
    drop(standby);
}

#[tokio::test(start_paused = true)]
async fn two_engines_on_one_store_deliver_each_event_once() {
    // S2-6
    let site = Site::memory(8);
    let seen = Recorder::default();
    let start = async || site.outbox().on("Tested", seen.delivers()).start().await.unwrap();
    let (one, two) = (start().await, start().await);
    for n in 0..50 {
        site.write(&one, keyed(&format!("k{}", n % 5), n)).await;
        site.write_hot(&two, keyed(&format!("k{}", n % 5), n + 50)).await;
        site.write_hot(&two, postrider::Event::json_text("Tested", "0")).await;
    }
    site.until_all_done(150).await;
    crate::parts::pass(secs(60)).await;
    assert_eq!(seen.count(), 150);
}

#[tokio::test(start_paused = true)]
async fn an_engine_started_while_the_database_is_away_takes_its_lanes_when_it_is_back() {
    let site = Site::memory(1);
    let (seen, doors) = (Recorder::default(), Doors::before(site.store.clone()));
    doors.fail(true);
    let outbox = site.outbox().shared_store(doors.clone()).on("A", seen.delivers()).start().await.unwrap();
    let id = site.write(&outbox, plain("A")).await;
    crate::parts::pass(secs(30)).await;
    assert_eq!(seen.count(), 0);
    doors.fail(false);
    let began = Instant::now();
    site.until_done(&id).await;
    assert!(began.elapsed() < secs(6), "it took {:?}", began.elapsed());
    settle_down().await;
}

#[tokio::test(start_paused = true)]
async fn lanes_are_shared_fairly_as_instances_come_and_go() {
    let site = Site::memory(8);
    let tallies = [Tally::default(), Tally::default(), Tally::default()];
    let mut outboxes = Vec::new();
    for tally in &tallies {
        outboxes.push(
            site.outbox()
                .otherwise(async |_: postrider::Delivery| ())
                .metrics(tally.metrics())
                .start()
                .await
                .unwrap(),
        );
    }
    let owned = || tallies.each_ref().map(|tally| tally.now().lanes_owned);
    eventually("each has its share", async || {
        let owned = owned();
        owned.iter().sum::<u64>() == 8 && owned.iter().all(|&lanes| (2..=3).contains(&lanes))
    })
    .await;

    let last = outboxes.pop().unwrap();
    assert!(last.shutdown().await.released);
    eventually("two share what the third gave back", async || owned()[..2] == [4, 4]).await;

    // A killed one is missed when its lease has run out.
    outboxes.pop().unwrap().engine().unwrap().abort();
    eventually("one has all", async || owned()[0] == 8).await;
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_is_over_the_share_is_given_up_only_when_nothing_of_it_is_under_way() {
    let site = Site::memory(2);
    let (slow, gate, tally) = (Recorder::default(), Arc::new(Gate::shut()), Tally::default());
    let first = site.outbox().otherwise(slow.waits_at(&gate)).metrics(tally.metrics()).start().await.unwrap();
    let ids = site.write_all(&first, (0..8).map(|n| keyed(&format!("k{n}"), n))).await;
    eventually("handlers are busy", async || slow.count() == 4).await;
    let quick = Recorder::default();
    let second = site.outbox().otherwise(quick.delivers()).start().await.unwrap();
    crate::parts::pass(secs(60)).await;
    assert_eq!((tally.now().lanes_owned, tally.now().fenced), (2, 0), "what is under way keeps its lane");
    gate.let_through();
    for id in &ids {
        site.until_done(id).await;
    }
    eventually("the lane is given up", async || tally.now().lanes_owned == 1).await;
    assert_eq!(slow.count() + quick.count(), 8, "nothing came twice");
    drop((first, second));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_ends_the_process_is_dead_after_its_attempts_and_its_neighbours_are_not_counted() {
    let site = Site::memory(1);
    let (attempts, killed) = (3, std::sync::Arc::new(tokio::sync::Notify::new()));
    let seen = Recorder::default();
    let write_only = site.outbox().write_only().await.unwrap();
    let ids = site.write_all(&write_only, (0..5).map(|n| keyed(&format!("k{n}"), n))).await;
    for life in 0..6 {
        let (recorder, ends) = (seen.clone(), killed.clone());
        let outbox = site
            .outbox()
            .otherwise(move |delivery: postrider::Delivery| {
                recorder.note(&delivery);
                let ends = ends.clone();
                async move {
                    if delivery.key() == Some("k2") {
                        ends.notify_one();
                        std::future::pending::<()>().await;
                    }
                    // Its neighbours are under way when it ends the process, at first.
                    crate::parts::pass(secs(1)).await;
                }
            })
            .max_attempts(attempts)
            .workers(5)
            .start()
            .await
            .unwrap();
        if life < 4 {
            killed.notified().await;
            settle_down().await;
            outbox.engine().unwrap().abort();
        } else {
            eventually("it is dead", async || site.store.stats().await.unwrap().dead == 1).await;
            for id in ids.iter().filter(|id| **id != ids[2]) {
                site.until_done(id).await;
            }
            outbox.shutdown().await;
            break;
        }
        // The next one has to wait for the lease.
    }
    let EventStatus::Dead { attempts: counted, error } = site.status(&ids[2]).await else {
        panic!("not dead")
    };
    assert_eq!(counted, attempts, "{error}");
    // Once as one of many, and then alone as often as it may be tried.
    assert_eq!(
        seen.seen().iter().filter(|delivery| delivery.key() == Some("k2")).count() as u32,
        attempts + 1
    );
    assert!(seen.seen().iter().all(|delivery| delivery.key() == Some("k2") || delivery.attempt == 1));
}

/// Two hundred events of a slow receiver were under way when the process ended; what goes to a quick one does not wait for them.
#[tokio::test(start_paused = true)]
async fn the_suspects_of_a_slow_receiver_hold_up_nobody_else() {
    let site = Site::memory(8);
    let (quick, gate) = (Recorder::default(), Arc::new(Gate::shut()));
    let (slow, before) = (Recorder::default(), Recorder::default());
    let first =
        site.outbox().on("Slow", before.waits_at(&gate)).on("Quick", quick.delivers()).start().await.unwrap();
    let ids = site.write_all(&first, (0..200).map(|_| plain("Slow"))).await;
    gate.until_arrivals(1).await;
    first.engine().unwrap().abort();

    let second = site
        .outbox()
        .on("Slow", {
            let slow = slow.clone();
            move |delivery: postrider::Delivery| {
                slow.note(&delivery);
                async { crate::parts::pass(secs(1)).await }
            }
        })
        .on("Quick", quick.delivers())
        .start()
        .await
        .unwrap();
    eventually("the suspects go", async || slow.count() > 1).await;
    // What is written now was not under way then.
    crate::parts::pass(secs(5)).await;
    for _ in 0..20 {
        let (began, id) = (Instant::now(), site.write(&second, plain("Quick")).await);
        site.until_done(&id).await;
        assert!(began.elapsed() < secs(1), "it waited for {:?}", began.elapsed());
        crate::parts::pass(secs(1)).await;
    }
    assert!(slow.count() < 200, "there were suspects all the time");
    for id in &ids {
        site.until_done(id).await;
    }
}

/// What was under way to a quick receiver when the process ended does not wait for what hangs at another.
#[tokio::test(start_paused = true)]
async fn suspects_of_a_hanging_receiver_hold_up_no_suspects_of_another() {
    let site = Site::memory(8);
    let (seen, gate) = (Recorder::default(), Arc::new(Gate::shut()));
    let first = site.outbox().on("Slow", seen.waits_at(&gate)).on("Quick", seen.waits_at(&gate)).workers(40);
    let first = first.start().await.unwrap();
    site.write_all(&first, (0..20).map(|_| plain("Slow"))).await;
    let quick = site.write_all(&first, (0..20).map(|_| plain("Quick"))).await;
    gate.until_arrivals(40).await;
    first.engine().unwrap().abort();

    let (hangs, again) = (Arc::new(Gate::shut()), Recorder::default());
    let second = site.outbox().on("Slow", again.waits_at(&hangs)).on("Quick", again.delivers());
    let _second = second.start().await.unwrap();
    hangs.until_arrivals(1).await;
    let began = Instant::now();
    for id in &quick {
        site.until_done(id).await;
    }
    assert!(began.elapsed() < secs(60), "{:?}", began.elapsed());
    hangs.let_through();
}

/// A receiver hangs, and the process is asked to end again and again: that is no fault of what it was sending.
#[tokio::test(start_paused = true)]
async fn a_process_that_is_asked_to_end_counts_no_attempt() {
    let site = Site::memory(1);
    let (seen, gate) = (Recorder::default(), Arc::new(Gate::shut()));
    let write_only = site.outbox().write_only().await.unwrap();
    let ids = site.write_all(&write_only, (0..3).map(|n| keyed(&format!("k{n}"), n))).await;
    for life in 1..=5 {
        let outbox = site
            .outbox()
            .on("Tested", seen.waits_at(&gate))
            .max_attempts(3)
            .workers(3)
            .start()
            .await
            .unwrap();
        gate.until_arrivals(gate.arrivals().max(life)).await;
        eventually("something is under way", async || seen.count() >= life).await;
        match life {
            // The first one crashes: from then on there are suspects.
            1 => outbox.engine().unwrap().abort(),
            _ => _ = outbox.shutdown().await,
        }
    }
    gate.let_through();
    let outbox = site.outbox().on("Tested", seen.delivers()).max_attempts(3).start().await.unwrap();
    for id in &ids {
        site.until_done(id).await;
    }
    assert!(seen.seen().iter().all(|delivery| delivery.attempt == 1), "an attempt was counted");
    outbox.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_database_that_never_answers_a_verb_is_asked_again() {
    let site = Site::memory(4);
    let (doors, seen) = (Doors::before(site.store.clone()), Recorder::default());
    let outbox = site.outbox().shared_store(doors.clone()).on("A", seen.delivers()).start().await.unwrap();
    // As behind a line that is dead without a word: what is asked now is never answered.
    for door in [&doors.claim, &doors.renew] {
        door.before.close();
        let asked = doors.claim.before.arrivals();
        let id = site.write(&outbox, plain("A")).await;
        doors.claim.before.until_arrivals(asked + 1).await;
        let calls = door.calls();
        crate::parts::pass(secs(10)).await;
        assert!(door.calls() > calls, "it was not asked again within a lease");
        door.before.let_through();
        site.until_done(&id).await;
    }
    // And nobody waits for one that is silent when it ends.
    doors.release.before.close();
    let began = Instant::now();
    assert!(!outbox.shutdown().await.released);
    assert!(began.elapsed() < secs(15), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_panics_in_a_renewal_costs_no_lease() {
    let (site, seen) = (Site::memory(4), Recorder::default());
    let doors = Doors::before(site.store.clone());
    let outbox = site.outbox().shared_store(doors.clone()).on("A", seen.delivers()).start().await.unwrap();
    for _ in 0..3 {
        doors.renew.panic_once();
        crate::parts::pass(secs(20)).await;
        assert!(doors.renew.has_panicked());
        let id = site.write(&outbox, plain("A")).await;
        site.until_done(&id).await;
    }
    assert!(outbox.health().is_ready(), "{:?}", outbox.health());
    assert!(outbox.shutdown().await.released, "a lane was lost");
}

#[tokio::test(start_paused = true)]
async fn an_engine_is_ready_as_long_as_its_verbs_succeed_and_says_which_do_not() {
    let (site, seen) = (Site::memory(1), Recorder::default());
    let doors = Doors::before(site.store.clone());
    let outbox = site.outbox().shared_store(doors.clone()).on("A", seen.delivers()).start().await.unwrap();
    let standby = site.outbox().on("A", seen.delivers()).start().await.unwrap();
    // Nothing to do is no trouble.
    crate::parts::pass(secs(3600)).await;
    assert!(outbox.health().is_ready() && standby.health().is_ready());
    assert!(outbox.health().renewed <= secs(6) && outbox.health().settled.is_none());
    standby.shutdown().await;

    for (door, reason) in [
        (&doors.renew, "no lease was renewed for"),
        (&doors.claim, "claims have failed for"),
        (&doors.settle, "outcomes wait to be settled for"),
    ] {
        door.fail(true);
        site.write(&outbox, plain("A")).await;
        crate::parts::pass(secs(8)).await;
        assert!(outbox.health().is_ready(), "within a lease: {:?}", outbox.health());
        crate::parts::pass(secs(16)).await;
        let health = outbox.health();
        assert!(health.reasons.iter().any(|told| told.contains(reason)), "{reason}: {health:?}");
        assert!(health.reasons.iter().all(|told| told.contains("the line is cut")), "{health:?}");
        door.fail(false);
        eventually("it is ready again", async || outbox.health().is_ready()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_another_session_has_locked_is_given_up_alone_and_comes_back() {
    let (log, _guard) = Log::listen();
    let (site, seen) = (Site::memory(4), Recorder::default());
    let outbox = site.outbox().otherwise(seen.delivers()).start().await.unwrap();
    let epochs =
        || -> Vec<u64> { site.memory_store().leases().iter().map(|lease| lease.token.epoch).collect() };
    site.memory_store().lock_lane(2, true);
    for _ in 0..10 {
        crate::parts::pass(secs(10)).await;
        // The lanes of these keys are all four, but for the one that waits.
        let ids = site.write_all(&outbox, (0..16).map(|n| keyed(&format!("k{n}"), n))).await;
        eventually("what is not in that lane is delivered", async || {
            let rows = site.memory_store().rows();
            rows.iter().all(|row| row.lane == 2) && rows.len() < ids.len() * 10
        })
        .await;
    }
    assert_eq!(epochs(), [1, 1, 1, 1], "no other lane was lost, and this one cannot be taken");
    assert_eq!(log.count(Level::WARN, "lane given up"), 1);
    let told = log.count(Level::WARN, "another session has locked their rows");
    assert!((1..=3).contains(&told), "told {told} times in 100 s");
    assert!(outbox.health().is_ready(), "{:?}", outbox.health());
    site.memory_store().lock_lane(2, false);
    site.until_all_done(160).await;
    assert_eq!(epochs(), [1, 1, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn an_instance_whose_lanes_another_session_has_locked_is_not_ready() {
    for before_the_start in [false, true] {
        let (site, seen) = (Site::memory(4), Recorder::default());
        let lock_all = |locked| (0..4).for_each(|lane| site.memory_store().lock_lane(lane, locked));
        lock_all(before_the_start);
        let outbox = site.outbox().otherwise(seen.delivers()).start().await.unwrap();
        lock_all(true);
        let id = site.write(&outbox, plain("A")).await;
        crate::parts::pass(secs(8)).await;
        assert!(outbox.health().is_ready(), "within a lease: {:?}", outbox.health());
        for _ in 0..5 {
            crate::parts::pass(secs(20)).await;
            let health = outbox.health();
            let reason = "another session has locked the rows of 4 lanes";
            assert!(health.reasons.iter().any(|told| told.contains(reason)), "{health:?}");
        }
        lock_all(false);
        eventually("it is ready again", async || outbox.health().is_ready()).await;
        site.until_done(&id).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stand_by_whose_lanes_a_live_instance_holds_is_ready() {
    let (site, seen) = (Site::memory(1), Recorder::default());
    let start = async || site.outbox().otherwise(seen.delivers()).start().await.unwrap();
    let (holder, standby) = (start().await, start().await);
    for _ in 0..10 {
        crate::parts::pass(secs(20)).await;
        assert!(holder.health().is_ready() && standby.health().is_ready(), "{:?}", standby.health());
    }
}

#[tokio::test(start_paused = true)]
async fn a_drained_lane_that_another_session_has_locked_keeps_no_other_from_being_shared() {
    let (site, seen) = (Site::memory(4), Recorder::default());
    let start = async || site.outbox().otherwise(seen.delivers()).start().await.unwrap();
    let first = start().await;
    site.memory_store().lock_lane(3, true);
    let second = start().await;
    let epochs =
        || -> Vec<u64> { site.memory_store().leases().iter().map(|lease| lease.token.epoch).collect() };
    eventually("the other lane is given back and taken", async || epochs() == [1, 1, 2, 1]).await;
    site.memory_store().lock_lane(3, false);
    eventually("the last one is too", async || epochs() == [1, 1, 2, 2]).await;
    drop((first, second));
}

/// The same for the destinations of one sink, each of which answers by itself.
#[tokio::test(start_paused = true)]
async fn suspects_of_a_hanging_destination_hold_up_no_suspects_of_another() {
    let site = Site::memory(8);
    let (seen, gate) = (Recorder::default(), Arc::new(Gate::shut()));
    let first = site.outbox().on("Tested", seen.waits_at(&gate)).workers(40).start().await.unwrap();
    let ids = site
        .write_all(
            &first,
            (0..40).map(|n| at(if n % 2 == 0 { "hangs" } else { "quick" }, &format!("k{n}"), n)),
        )
        .await;
    gate.until_arrivals(40).await;
    first.engine().unwrap().abort();

    let mut receiver = Receiver::answering(|_| Outcome::Delivered);
    receiver.traits.one_destination = true;
    receiver.gives_up_after = Some(secs(10));
    let receiver = receiver.shared();
    let _second = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
    eventually("the suspects go", async || !receiver.sent.lock().unwrap().is_empty()).await;
    let began = Instant::now();
    for id in ids.iter().skip(1).step_by(2) {
        site.until_done(id).await;
    }
    assert!(began.elapsed() < secs(45), "{:?}", began.elapsed());
}

/// Forty events of two destinations of one sink were under way when their process ended. The next one has a sink that answers like this.
async fn suspects_of_two_destinations(
    site: &Site,
    receiver: Receiver,
) -> (Outbox, Arc<Receiver>, Vec<EventId>) {
    let (seen, gate) = (Recorder::default(), Arc::new(Gate::shut()));
    let first = site.outbox().on("Tested", seen.waits_at(&gate)).workers(40).start().await.unwrap();
    let tenant = |n: usize| if n.is_multiple_of(2) { "bad" } else { "good" };
    let ids = site.write_all(&first, (0..40).map(|n| at(tenant(n), &format!("{}{n}", tenant(n)), n))).await;
    gate.until_arrivals(40).await;
    first.engine().unwrap().abort();
    let mut receiver = receiver;
    receiver.traits.one_destination = true;
    let receiver = receiver.shared();
    let second = site.outbox().sink("Tested", receiver.clone()).start().await.unwrap();
    let good = ids.into_iter().skip(1).step_by(2).collect();
    (second, receiver, good)
}

fn sends_to_bad(receiver: &Receiver) -> usize {
    let sent = receiver.sent.lock().unwrap();
    sent.iter().filter(|(key, _)| key.starts_with("bad")).map(|(_, sends)| sends).sum()
}

#[tokio::test(start_paused = true)]
async fn suspects_of_a_destination_that_asked_for_time_are_tried_as_seldom_as_other_events() {
    let site = Site::memory(8);
    let receiver = Receiver::answering(|event| match event.tenant_id() {
        Some("bad") => Outcome::deferred(secs(3600)),
        _ => Outcome::Delivered,
    });
    let (outbox, receiver, good) = suspects_of_two_destinations(&site, receiver).await;
    for id in &good {
        site.until_done(id).await;
    }
    pass(secs(600)).await;
    // A single event may have been meant, so another one is tried after 5 s, and then four times as long after each.
    let sends = sends_to_bad(&receiver);
    assert!((1..=6).contains(&sends), "{sends} sends in ten minutes");
    receiver.mend();
    pass(secs(3600)).await;
    let attempts: Vec<u32> = receiver.took.lock().unwrap().iter().map(|(_, sent)| sent.attempt).collect();
    assert_eq!(attempts, [1; 40]);
    outbox.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn suspects_of_a_destination_that_is_down_are_its_probes_and_nothing_else() {
    let site = Site::memory(8);
    let receiver = Receiver::answering(|event| match event.tenant_id() {
        Some("bad") => Outcome::unavailable("503"),
        _ => Outcome::Delivered,
    });
    let (outbox, receiver, good) = suspects_of_two_destinations(&site, receiver).await;
    for id in &good {
        site.until_done(id).await;
    }
    pass(secs(60)).await;
    let before = sends_to_bad(&receiver);
    pass(secs(600)).await;
    let sends = sends_to_bad(&receiver) - before;
    assert!((10..=120).contains(&sends), "{sends} sends in ten minutes");
    receiver.mend();
    pass(secs(120)).await;
    assert_eq!(receiver.took(), 40);
    outbox.shutdown().await;
}
