//! What stands in the way of a settle: rows that somebody else has locked, a database that refuses them, and one that went back in time.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use postrider::{
    Event, Outcome,
    store::{Change, EventStatus},
};
use postrider_engine::mutations::{self, Mutation};
use tokio::time::Instant;
use tracing::Level;

use crate::parts::{Gate, Log, Recorder, Site, Tally, eventually, keyed, pass, plain, secs};

/// Makes a test of each, in memory and in paused time.
macro_rules! in_memory {
    ($($name:ident),* $(,)?) => {
        mod in_memory {
            $(#[tokio::test(start_paused = true)] async fn $name() { super::$name().await })*
        }
    };
}

in_memory![
    a_database_that_went_back_in_time_loses_no_event_that_it_has,
    a_settle_of_a_lost_event_does_not_touch_the_one_that_has_its_number_now,
    one_locked_row_stops_nothing_but_its_key,
    a_lane_with_a_row_that_could_not_be_settled_is_not_given_back,
    what_the_database_refuses_is_seen_and_nothing_else_waits_for_it,
    an_error_text_that_the_database_refuses_is_written_plainly,
    a_long_backlog_of_a_key_that_is_stuck_fills_no_queue_and_comes_in_order,
    many_refused_outcomes_stop_nothing_else,
    a_type_whose_outcomes_are_all_refused_stops_no_other,
    a_locked_row_keeps_its_own_lane_at_shutdown_and_no_other,
];

#[test]
fn each_mutation_of_a_settle_is_found() {
    finds(
        Mutation::SettleBySeqAlone,
        a_settle_of_a_lost_event_does_not_touch_the_one_that_has_its_number_now(),
    );
    finds(Mutation::PositionsSurviveRewind, a_database_that_went_back_in_time_loses_no_event_that_it_has());
    finds(Mutation::LockedRowBlocks, one_locked_row_stops_nothing_but_its_key());
    finds(
        Mutation::RefusedSettleRepeatedWhole,
        what_the_database_refuses_is_seen_and_nothing_else_waits_for_it(),
    );
}

fn finds(mutation: Mutation, behaviour: impl Future<Output = ()>) {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(behaviour);
    };
    let found = catch_unwind(AssertUnwindSafe(|| mutations::with(mutation, run)));
    assert!(found.is_err(), "nobody notices {mutation:?}");
}

async fn a_database_that_went_back_in_time_loses_no_event_that_it_has() {
    for lanes in [1, 8] {
        let (log, _guard) = Log::listen();
        let (site, tally) = (Site::memory(lanes), Tally::default());
        let store = site.memory_store();
        let (recorder, gate) = (Recorder::default(), Arc::new(Gate::shut()));
        let outbox = site
            .outbox()
            .on("Tested", recorder.waits_at(&gate))
            .workers(64)
            .metrics(tally.metrics())
            .start()
            .await
            .unwrap();
        let kept = site.write_all(&outbox, (0..10).map(|n| keyed(&format!("k{n}"), n))).await;
        gate.until_arrivals(10).await;
        let backup = store.snapshot();
        // These are lost, and under way; the next ones have their numbers.
        let lost = site.write_all(&outbox, (10..20).map(|n| keyed(&format!("k{n}"), n))).await;
        gate.until_arrivals(20).await;
        store.restore(&backup);
        let new = site.write_all(&outbox, (20..40).map(|n| keyed(&format!("k{}", n % 10), n))).await;
        gate.let_through();

        let began = Instant::now();
        for id in kept.iter().chain(&new) {
            site.until_done(id).await;
        }
        assert!(began.elapsed() < secs(7), "it waited for its own leases: {:?}", began.elapsed());
        for id in &lost {
            assert_eq!(site.status(id).await, EventStatus::Absent);
        }
        for n in 0..10 {
            let mut firsts = recorder.numbers_of(&format!("k{n}"));
            let mut seen = Vec::new();
            firsts.retain(|number| {
                !seen.contains(number) && {
                    seen.push(*number);
                    true
                }
            });
            assert_eq!(firsts, [n, n + 20, n + 30], "the order of key {n}");
        }
        assert_eq!((tally.now().went_back, log.count(Level::ERROR, "went back in time")), (1, 1));
        assert!(outbox.shutdown().await.released);
    }
}

async fn a_settle_of_a_lost_event_does_not_touch_the_one_that_has_its_number_now() {
    let site = Site::memory(1);
    let store = site.memory_store();
    let (recorder, gate) = (Recorder::default(), Arc::new(Gate::shut()));
    let outbox = site.outbox().on("Tested", recorder.waits_at(&gate)).poller(false).start().await.unwrap();
    let engine = outbox.engine().unwrap();
    let backup = store.snapshot();
    site.write(&outbox, keyed("k", 1)).await;
    engine.poll_once().await.unwrap();
    gate.until_arrivals(1).await;
    store.restore(&backup);
    let new = site.write(&outbox, keyed("other", 2)).await;
    // Nobody claims meanwhile, so nobody knows: the settle comes first.
    gate.let_through();
    pass(secs(1)).await;
    assert_eq!(site.status(&new).await, EventStatus::New);
    assert!(engine.poll_once().await.is_err());
    eventually("it is delivered", async || {
        let _ = engine.poll_once().await;
        site.is_done(&new).await
    })
    .await;
    assert_eq!(recorder.numbers(), [1, 2]);
}

async fn one_locked_row_stops_nothing_but_its_key() {
    for lanes in [1, 8] {
        let (site, tally, recorder) = (Site::memory(lanes), Tally::default(), Recorder::default());
        let store = site.memory_store();
        let gate = Arc::new(Gate::shut());
        let outbox = site
            .outbox()
            .on("Tested", recorder.waits_at(&gate))
            .metrics(tally.metrics())
            .start()
            .await
            .unwrap();
        let locked = site.write(&outbox, keyed("locked", 0)).await;
        let behind = site.write(&outbox, keyed("locked", 1)).await;
        gate.until_arrivals(1).await;
        store.lock_row(&locked);
        gate.let_through();
        for round in 0..10 {
            let others = site.write_all(&outbox, (0..20).map(|n| keyed(&format!("k{n}"), round))).await;
            let began = Instant::now();
            for id in &others {
                site.until_done(id).await;
            }
            assert!(began.elapsed() < secs(1), "others waited for {:?}", began.elapsed());
            pass(secs(5)).await;
        }
        assert_eq!(recorder.numbers_of("locked"), [0], "the next of a key came before the first was settled");
        assert_eq!(
            (site.status(&locked).await, site.status(&behind).await),
            (EventStatus::New, EventStatus::New)
        );
        assert_eq!((tally.now().fenced, tally.now().lanes_owned), (0, u64::from(lanes)));
        store.unlock_row(&locked);
        let began = Instant::now();
        site.until_done(&locked).await;
        site.until_done(&behind).await;
        assert!(began.elapsed() < secs(2));
        assert_eq!(recorder.numbers_of("locked"), [0, 1]);
        assert!(outbox.shutdown().await.released);
    }
}

async fn a_lane_with_a_row_that_could_not_be_settled_is_not_given_back() {
    let (site, recorder) = (Site::memory(8), Recorder::default());
    let outbox = site.outbox().on("Tested", recorder.delivers()).start().await.unwrap();
    site.memory_store().refuse_settles(|settlement| settlement.key.as_deref() == Some("k"));
    let id = site.write(&outbox, keyed("k", 0)).await;
    eventually("it is refused", async || outbox.unsettled().len() == 1).await;
    assert!(!outbox.shutdown().await.released);
    assert_eq!(site.memory_store().leases().len(), 1, "all lanes but one are free");
    assert_eq!(site.status(&id).await, EventStatus::New);
}

async fn what_the_database_refuses_is_seen_and_nothing_else_waits_for_it() {
    let (log, _guard) = Log::listen();
    let (site, tally, recorder) = (Site::memory(4), Tally::default(), Recorder::default());
    let store = site.memory_store();
    store.refuse_settles(|settlement| settlement.key.as_deref() == Some("k7"));
    let outbox =
        site.outbox().on("Tested", recorder.delivers()).metrics(tally.metrics()).start().await.unwrap();
    let ids = site.write_all(&outbox, (0..50).map(|n| keyed(&format!("k{n}"), n))).await;
    let began = Instant::now();
    site.until_all_done(49).await;
    assert!(began.elapsed() < secs(1));
    eventually("it is refused", async || tally.now().unsettled == 1).await;
    let unsettled = outbox.unsettled();
    assert_eq!((unsettled.len(), &unsettled[0].event_id), (1, &ids[7]));
    assert_eq!(
        (unsettled[0].event_type.as_deref(), unsettled[0].key.as_deref()),
        (Some("Tested"), Some("k7"))
    );
    assert!(unsettled[0].error.contains("a row was refused"), "{}", unsettled[0].error);
    assert_eq!(log.count(Level::ERROR, "refuses"), 1);
    pass(secs(300)).await;
    assert_eq!(log.count(Level::ERROR, "refuses"), 1, "it is told once");
    assert_eq!(outbox.unsettled().len(), 1);
    let reasons = outbox.health().reasons;
    assert!(reasons.len() == 1 && reasons[0].contains("a row was refused"), "{reasons:?}");
    store.accept_settles();
    site.until_done(&ids[7]).await;
    eventually("nothing is refused", async || tally.now().unsettled == 0).await;
    assert!(outbox.unsettled().is_empty() && outbox.health().is_ready());
    assert_eq!(recorder.count(), 50, "nothing was sent twice");
}

async fn an_error_text_that_the_database_refuses_is_written_plainly() {
    let text_of = |change: &Change| match change {
        Change::Wait { error, .. } => error.clone(),
        Change::Dead { error, .. } => Some(error.clone()),
        _ => None,
    };
    for (narrow, expected) in [(4000, "nicht m?glich: ?????"), (10, "")] {
        let (site, recorder) = (Site::memory(1), Recorder::default());
        site.memory_store().refuse_settles(move |settlement| {
            text_of(&settlement.change).is_some_and(|text| !text.is_ascii() || text.len() > narrow)
        });
        let outbox = site
            .outbox()
            .on("Bad", recorder.answers(|_| Outcome::rejected("nicht möglich: 日本語のエ")))
            .on("Good", recorder.delivers())
            .start()
            .await
            .unwrap();
        let bad = site.write(&outbox, plain("Bad")).await;
        site.write_all(&outbox, (0..20).map(|_| plain("Good"))).await;
        site.until_all_done(20).await;
        site.until_dead(1).await;
        let EventStatus::Dead { error, .. } = site.status(&bad).await else { panic!("it is dead") };
        assert_eq!(error, expected);
        assert!(outbox.unsettled().is_empty());
    }
}

async fn a_long_backlog_of_a_key_that_is_stuck_fills_no_queue_and_comes_in_order() {
    for refused in [false, true] {
        let (site, recorder) = (Site::memory(4), Recorder::default());
        let store = site.memory_store();
        let outbox = site
            .outbox()
            .on("Tested", recorder.delivers())
            .hot_queue(20)
            .cold_queue(20)
            .start()
            .await
            .unwrap();
        let engine = outbox.engine().unwrap();
        if refused {
            store.refuse_settles(|settlement| settlement.key.as_deref() == Some("stuck"));
        }
        let head = Event::json_text("Tested", "0").key("stuck").build().unwrap();
        store.lock_row(head.id());
        site.write(&outbox, head.clone()).await;
        eventually("it was sent", async || recorder.count() == 1).await;
        let mut ids = site.write_all(&outbox, (1..200).map(|n| keyed("stuck", n))).await;
        for round in 0..10 {
            let others = site.write_all(&outbox, (0..30).map(|n| keyed(&format!("k{n}"), round))).await;
            for id in &others {
                site.until_done(id).await;
            }
        }
        assert_eq!(recorder.numbers_of("stuck"), [0]);
        store.unlock_row(head.id());
        store.accept_settles();
        ids.extend(site.write_all(&outbox, (200..300).map(|n| keyed("stuck", n))).await);
        engine.wake();
        for id in &ids {
            site.until_done(id).await;
        }
        assert_eq!(recorder.numbers_of("stuck"), (0..300).collect::<Vec<_>>());
    }
}

/// More outcomes are refused than the queues have room for, of one type that has no keys.
async fn many_refused_outcomes_stop_nothing_else() {
    let (site, recorder) = (Site::memory(4), Recorder::default());
    let refused = Recorder::default();
    let store = site.memory_store();
    store.refuse_settles(|settlement| settlement.key.is_none());
    let outbox = site
        .outbox()
        .on("Refused", refused.delivers())
        .on("Tested", recorder.delivers())
        .hot_queue(20)
        .cold_queue(20)
        .start()
        .await
        .unwrap();
    let ids = site.write_all(&outbox, (0..200).map(|_| plain("Refused"))).await;
    eventually("all were sent", async || refused.count() == 200).await;
    for round in 0..5 {
        let began = Instant::now();
        let others = site.write_all(&outbox, (0..30).map(|n| keyed(&format!("k{n}"), round))).await;
        for id in &others {
            site.until_done(id).await;
        }
        assert!(began.elapsed() < secs(5), "round {round} took {:?}", began.elapsed());
        pass(secs(30)).await;
    }
    assert_eq!((outbox.unsettled().len(), refused.count()), (200, 200));
    store.accept_settles();
    for id in &ids {
        site.until_done(id).await;
    }
    assert_eq!((outbox.unsettled().len(), refused.count()), (0, 200));
}

/// More outcomes of one type are refused than there is room for.
async fn a_type_whose_outcomes_are_all_refused_stops_no_other() {
    const REFUSED: usize = 10_000;
    let (site, recorder, refused) = (Site::memory(4), Recorder::default(), Recorder::default());
    let store = site.memory_store();
    store.refuse_settles(|settlement| settlement.key.is_none());
    let outbox = site
        .outbox()
        .on("Refused", refused.delivers())
        .on("Tested", recorder.delivers())
        .start()
        .await
        .unwrap();
    let ids = site.write_all(&outbox, (0..REFUSED).map(|_| plain("Refused"))).await;
    for round in 0..20 {
        let others = site.write_all(&outbox, (0..30).map(|n| keyed(&format!("k{n}"), round))).await;
        for id in &others {
            site.until_done(id).await;
        }
        site.write_all_hot(&outbox, (0..30).map(|_| plain("Refused")).collect()).await;
        pass(secs(30)).await;
    }
    let sent = refused.count();
    assert!(sent < 4096, "{sent} were sent whose outcomes nobody can write");
    let reasons = outbox.health().reasons.join("; ");
    assert!(reasons.contains("Refused") && reasons.contains("no longer"), "{reasons}");
    store.accept_settles();
    let deadline = Instant::now() + secs(1800);
    while site.store.stats().await.unwrap().pending > 0 {
        assert!(Instant::now() < deadline, "{:?}", site.store.stats().await);
        pass(secs(1)).await;
    }
    for id in &ids {
        assert!(site.is_done(id).await);
    }
    assert_eq!((outbox.unsettled().len(), refused.count()), (0, REFUSED + 600), "each was sent once");
    assert!(outbox.health().is_ready());
}

async fn a_locked_row_keeps_its_own_lane_at_shutdown_and_no_other() {
    let (site, recorder) = (Site::memory(8), Recorder::default());
    let store = site.memory_store();
    let outbox = site.outbox().on("Tested", recorder.delivers()).start().await.unwrap();
    let locked = Event::json_text("Tested", "1").key("locked").build().unwrap();
    store.lock_row(locked.id());
    site.write(&outbox, locked).await;
    eventually("it was sent", async || recorder.count() == 1).await;
    assert!(!outbox.shutdown().await.released);
    assert_eq!(store.leases().len(), 1, "{:?}", store.leases());
}
