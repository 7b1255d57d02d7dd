//! What each outcome does to an event.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider::{
    Backoff, BoxFuture, Delivery, Error, Outcome, Sink, SinkTraits,
    store::{EventStatus, HoldReason},
};
use tokio::time::Instant;
use tracing::Level;

use crate::parts::{
    Doors, Gate, Log, Recorder, Site, Tally, eventually, fails, keyed, ms, on_every_store, plain, secs,
};

on_every_store![
    a_handler_may_return_nothing_a_result_or_an_outcome,
    a_retry_counts_an_attempt_and_keeps_its_error,
    a_retry_waits_as_long_as_the_receiver_said,
    a_rejected_event_is_dead_at_once,
    a_deferred_event_waits_without_an_attempt_counted_and_its_key_waits_with_it,
    an_unknown_outcome_is_tried_again_and_counted,
    an_unavailable_receiver_costs_no_attempt_and_the_backlog_drains_when_it_is_back,
    a_panic_fails_the_attempt_and_not_the_process,
    an_event_is_dead_after_max_attempts_with_its_last_attempt_counted,
    an_error_text_is_cut_to_4000_characters,
    a_row_that_cannot_be_decoded_is_dead_and_its_neighbours_are_delivered,
];

async fn attempts_of(site: &Site, id: &postrider::EventId) -> Option<u32> {
    match site.status(id).await {
        EventStatus::Waiting { attempts, .. } | EventStatus::Dead { attempts, .. } => Some(attempts),
        _ => None,
    }
}

async fn until_tried(site: &Site, id: &postrider::EventId) -> EventStatus {
    eventually("an outcome is settled", async || {
        matches!(
            site.status(id).await,
            EventStatus::Waiting { error: Some(_), .. } | EventStatus::Dead { .. } | EventStatus::Done { .. }
        )
    })
    .await;
    site.status(id).await
}

async fn a_handler_may_return_nothing_a_result_or_an_outcome(site: Site) {
    // S3-10.3c
    let outbox = site
        .outbox()
        .on("Nothing", async |_: Delivery| ())
        .on("Fine", async |_: Delivery| Ok::<(), std::io::Error>(()))
        .on("Failed", async |_: Delivery| Err::<(), _>("no"))
        .on("Chosen", async |_: Delivery| Ok::<_, std::io::Error>(Outcome::rejected("never")))
        .retry(Backoff::fixed(secs(3600)))
        .start()
        .await
        .unwrap();
    let ids = site.write_all(&outbox, ["Nothing", "Fine", "Failed", "Chosen"].map(plain)).await;
    site.until_done(&ids[0]).await;
    site.until_done(&ids[1]).await;
    let failed = until_tried(&site, &ids[2]).await;
    assert!(matches!(failed, EventStatus::Waiting { attempts: 1, error: Some(error), .. } if error == "no"));
    let chosen = until_tried(&site, &ids[3]).await;
    assert!(matches!(chosen, EventStatus::Dead { attempts: 1, error } if error == "never"));
}

async fn a_retry_counts_an_attempt_and_keeps_its_error(site: Site) {
    // S3-10.3c, S3-13.1
    let seen = Recorder::default();
    let outbox =
        site.outbox().on("A", seen.answers(fails)).retry(Backoff::fixed(secs(3600))).start().await.unwrap();
    let id = site.write(&outbox, plain("A")).await;
    let EventStatus::Waiting { attempts, error, available_at } = until_tried(&site, &id).await else {
        panic!("the event does not wait");
    };
    assert_eq!((attempts, error.as_deref()), (1, Some("it failed")));
    let dead = site.store.stats().await.unwrap();
    assert_eq!((dead.pending, dead.waiting, dead.dead), (1, 1, 0));
    assert!(available_at > postrider::Timestamp::EPOCH);
    assert_eq!(seen.count(), 1);
}

async fn a_retry_waits_as_long_as_the_receiver_said(site: Site) {
    let seen = Recorder::default();
    let outbox = site
        .outbox()
        .on(
            "A",
            seen.answers(|delivery| match delivery.attempt {
                1 => Outcome::retry_after("busy", ms(300)),
                _ => Outcome::Delivered,
            }),
        )
        .retry(Backoff::fixed(secs(3600)))
        .start()
        .await
        .unwrap();
    let id = site.write(&outbox, plain("A")).await;
    site.until_done(&id).await;
    let times = seen.times();
    assert_eq!(times.len(), 2);
    assert!(times[1] - times[0] >= ms(299), "it came back after {:?}", times[1] - times[0]);
}

async fn a_rejected_event_is_dead_at_once(site: Site) {
    let seen = Recorder::default();
    let outbox =
        site.outbox().on("A", seen.answers(|_| Outcome::rejected("bad payload"))).start().await.unwrap();
    let id = site.write(&outbox, plain("A")).await;
    let status = until_tried(&site, &id).await;
    assert_eq!(status, EventStatus::Dead { attempts: 1, error: "bad payload".to_owned() });
    assert_eq!(seen.count(), 1);
}

async fn a_deferred_event_waits_without_an_attempt_counted_and_its_key_waits_with_it(site: Site) {
    let seen = Recorder::default();
    let asked = Arc::new(Mutex::new(0));
    let times = asked.clone();
    let outbox = site
        .outbox()
        .on(
            "Tested",
            seen.answers(move |delivery| {
                let mut times = times.lock().unwrap();
                *times += 1;
                if *times <= 3 && delivery.key() == Some("k") {
                    Outcome::deferred(ms(100))
                } else {
                    Outcome::Delivered
                }
            }),
        )
        .max_attempts(1)
        .start()
        .await
        .unwrap();
    let ids = site.write_all(&outbox, (0..3).map(|n| keyed("k", n))).await;
    eventually("the key is held", async || {
        site.store.why("k").await.unwrap().is_some_and(|hold| hold.reason == HoldReason::Deferred)
    })
    .await;
    for id in &ids {
        site.until_done(id).await;
    }
    let seen = seen.seen();
    assert_eq!(crate::parts::numbers(&seen), [0, 0, 0, 0, 1, 2]);
    assert!(seen.iter().all(|delivery| delivery.attempt == 1), "an attempt was counted");
}

async fn an_unknown_outcome_is_tried_again_and_counted(site: Site) {
    let seen = Recorder::default();
    let outbox = site
        .outbox()
        .on("A", seen.answers(|_| Outcome::unknown("no answer")))
        .retry(Backoff::fixed(ms(5)))
        .max_attempts(3)
        .start()
        .await
        .unwrap();
    let id = site.write(&outbox, plain("A")).await;
    site.until_dead(1).await;
    assert_eq!(site.status(&id).await, EventStatus::Dead { attempts: 3, error: "no answer".to_owned() });
    assert_eq!(seen.count(), 3);
}

async fn an_unavailable_receiver_costs_no_attempt_and_the_backlog_drains_when_it_is_back(site: Site) {
    // S3-14.3
    let (down, up, tally) = (Recorder::default(), Recorder::default(), Tally::default());
    let broken = Arc::new(Mutex::new(true));
    let switch = broken.clone();
    let outbox = site
        .outbox()
        .on(
            "Down",
            down.answers(move |_| {
                if *switch.lock().unwrap() { Outcome::unavailable("refused") } else { Outcome::Delivered }
            }),
        )
        .on("Up", up.delivers())
        .max_attempts(2)
        .metrics(tally.metrics())
        .start()
        .await
        .unwrap();
    let waiting = site.write_all(&outbox, (0..20).map(|n| plain("Down").key(format!("k{n}")))).await;
    // Far more probes than attempts.
    let probes = if site.is_sqlite() { 4 } else { 7 };
    eventually("it was asked often", async || down.count() >= probes).await;
    let others = site.write_all(&outbox, (0..20).map(|_| plain("Up"))).await;
    for id in &others {
        site.until_done(id).await;
    }
    let stats = site.store.stats().await.unwrap();
    assert_eq!((stats.pending, stats.dead), (20, 0), "nothing is lost and nothing is dead");
    for id in &waiting {
        assert_eq!(attempts_of(&site, id).await.unwrap_or(0), 0, "an attempt was counted");
    }
    assert!(tally.now().breaker_opened > 0);
    assert!(down.count() < 100, "a receiver that is down was asked {} times", down.count());

    *broken.lock().unwrap() = false;
    for id in &waiting {
        site.until_done(id).await;
    }
    assert!(down.seen().iter().all(|delivery| delivery.attempt == 1));
}

async fn a_panic_fails_the_attempt_and_not_the_process(site: Site) {
    // S3-10.3c
    let seen = Recorder::default();
    let handler = seen.clone();
    let outbox = site
        .outbox()
        .workers(1)
        .on("A", move |delivery: Delivery| {
            handler.note(&delivery);
            // One panics before there is a future, the other inside of it.
            assert!(delivery.attempt != 1, "at once");
            async move { assert!(delivery.attempt != 2, "inside") }
        })
        .retry(Backoff::fixed(ms(5)))
        .start()
        .await
        .unwrap();
    let id = site.write(&outbox, plain("A")).await;
    site.until_done(&id).await;
    assert_eq!(seen.count(), 3);
    let other = site.write_hot(&outbox, plain("A")).await;
    site.until_done(&other).await;
}

async fn an_event_is_dead_after_max_attempts_with_its_last_attempt_counted(site: Site) {
    // S3-13.3, S3-9.2d
    let seen = Recorder::default();
    let outbox =
        site.outbox().on("A", seen.answers(fails)).retry(Backoff::fixed(ms(2))).start().await.unwrap();
    let id = site.write(&outbox, plain("A")).await;
    site.until_dead(1).await;
    assert_eq!(seen.count(), 10, "ten attempts by default");
    let attempts: Vec<u32> = seen.seen().iter().map(|delivery| delivery.attempt).collect();
    assert_eq!(attempts, (1..=10).collect::<Vec<_>>());
    assert_eq!(site.status(&id).await, EventStatus::Dead { attempts: 10, error: "it failed".to_owned() });
}

async fn an_error_text_is_cut_to_4000_characters(site: Site) {
    // S3-9.3c
    let outbox =
        site.outbox().on("A", async |_: Delivery| Err::<(), _>("é\0".repeat(10_000))).start().await.unwrap();
    let id = site.write(&outbox, plain("A")).await;
    let EventStatus::Waiting { error: Some(error), .. } = until_tried(&site, &id).await else {
        panic!("the event does not wait");
    };
    assert_eq!(error, "é".repeat(4000));
}

async fn a_row_that_cannot_be_decoded_is_dead_and_its_neighbours_are_delivered(site: Site) {
    // S3-11.3b, S3-16.2
    let (log, _guard) = Log::listen();
    let seen = Recorder::default();
    let outbox = site.outbox().on("A", seen.delivers()).poller(false).start().await.unwrap();
    let first = site.write(&outbox, plain("A")).await;
    if site.is_sqlite() {
        sqlx::query(
            "INSERT INTO postrider_event (event_type, payload, headers) VALUES ('A', '{}', '{broken')",
        )
        .execute(site.pool())
        .await
        .unwrap();
    } else {
        site.memory_store().insert_undecodable("A", "headers: not JSON");
    }
    let last = site.write(&outbox, plain("A")).await;
    outbox.poll_once().await.unwrap();
    site.until_done(&first).await;
    site.until_done(&last).await;
    site.until_dead(1).await;
    let dead = site.store.dead(0, 10).await.unwrap();
    assert!(dead[0].error.contains("headers"), "{}", dead[0].error);
    assert_eq!(seen.ids(), [first, last]);
    assert_eq!(log.count(Level::ERROR, "event is dead"), 1);
    assert_eq!(log.count(Level::ERROR, "event_type=\"A\""), 1, "its type can be read");
}

#[tokio::test(start_paused = true)]
async fn one_round_of_unavailable_answers_opens_the_breaker_for_a_fraction_of_a_second() {
    // However many events of a batch, or however many workers, were refused at once.
    let site = Site::memory(1);
    let sink = Arc::new(Batches::new(10, |_| Outcome::Delivered));
    *sink.next.lock().unwrap() = Some(Outcome::unavailable("restarting"));
    let outbox = site.outbox().sink("A", sink.clone()).start().await.unwrap();
    let began = Instant::now();
    site.write_all(&outbox, (0..10).map(|_| plain("A"))).await;
    site.until_all_done(10).await;
    assert!(began.elapsed() < secs(2), "it took {:?} after one refusal", began.elapsed());
}

#[test]
fn workers_sleep_while_a_receiver_is_down_and_nothing_is_queued_for_it() {
    // A worker that spins keeps paused time from passing, for ever: so the test runs beside this thread.
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let site = Site::memory(1);
            let (seen, doors) = (Recorder::default(), Doors::before(site.store.clone()));
            let times = seen.clone();
            let answer = move |_: &Delivery| match times.count() {
                1 => Outcome::unavailable("refused"),
                _ => Outcome::Delivered,
            };
            let outbox = site
                .outbox()
                .shared_store(doors.clone())
                .on("A", seen.answers(answer))
                .start()
                .await
                .unwrap();
            // The settle takes longer than the breaker is open: nothing is queued when its time has come.
            doors.settle.before.close();
            let id = site.write_hot(&outbox, plain("A")).await;
            crate::parts::pass(secs(10)).await;
            doors.settle.before.let_through();
            site.until_done(&id).await;
            done.send(seen.count()).unwrap();
        });
    });
    let calls = finished.recv_timeout(secs(20)).expect("the workers spin, or the event never came back");
    assert_eq!(calls, 2);
}

#[tokio::test(start_paused = true)]
async fn a_retry_policy_that_panics_stops_no_worker() {
    let site = Site::memory(1);
    let seen = Recorder::default();
    let outbox = site
        .outbox()
        .workers(1)
        .on(
            "A",
            seen.answers(|delivery| if delivery.attempt == 1 { fails(delivery) } else { Outcome::Delivered }),
        )
        .retry(|_: u32, _: &str| -> Duration { panic!("no idea") })
        .start()
        .await
        .unwrap();
    let ids = site.write_all(&outbox, [plain("A"), plain("A")]).await;
    for id in &ids {
        site.until_done(id).await;
    }
}

/// A sink that takes batches and remembers them.
struct Batches {
    max: usize,
    timeout: Option<Duration>,
    seen: Mutex<Vec<Vec<Delivery>>>,
    /// What the next batch is answered, all of it.
    next: Mutex<Option<Outcome>>,
    answer: fn(&Delivery) -> Outcome,
    gate: Gate,
    /// How many outcomes are left out.
    missing: usize,
}

impl Batches {
    fn new(max: usize, answer: fn(&Delivery) -> Outcome) -> Self {
        Self {
            max,
            timeout: None,
            seen: Mutex::default(),
            next: Mutex::new(None),
            answer,
            gate: Gate::open(),
            missing: 0,
        }
    }

    fn sizes(&self) -> Vec<usize> {
        self.seen.lock().unwrap().iter().map(Vec::len).collect()
    }
}

impl Sink for Batches {
    fn traits(&self) -> SinkTraits {
        SinkTraits { batch_max: self.max, send_timeout: self.timeout, ..SinkTraits::SINK }
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            self.seen.lock().unwrap().push(batch.to_vec());
            self.gate.pass().await;
            let next = self.next.lock().unwrap().take();
            let mut outcomes: Vec<_> = batch
                .iter()
                .map(|delivery| next.clone().unwrap_or_else(|| (self.answer)(delivery)))
                .collect();
            outcomes.truncate(batch.len().saturating_sub(self.missing));
            outcomes
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_holds_at_most_batch_max_events_and_one_of_a_key() {
    let site = Site::memory(1);
    let sink = Arc::new(Batches::new(10, |_| Outcome::Delivered));
    let outbox = site.outbox().sink("Tested", sink.clone()).workers(1).poller(false).start().await.unwrap();
    // 25 without a key, and three keys of five events each.
    site.write_all(&outbox, (0..25).map(|n| postrider::Event::json_text("Tested", n.to_string()))).await;
    for n in 0..5 {
        site.write_all(&outbox, ["a", "b", "c"].map(|key| keyed(key, n))).await;
    }
    outbox.poll_once().await.unwrap();
    site.until_all_done(40).await;
    let batches = sink.seen.lock().unwrap().clone();
    assert!(sink.sizes().iter().all(|size| *size <= 10), "{:?}", sink.sizes());
    assert!(sink.sizes().contains(&10), "{:?}", sink.sizes());
    for batch in &batches {
        let mut keys: Vec<_> = batch.iter().filter_map(|delivery| delivery.key()).collect();
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all, "a batch holds two events of a key");
    }
    for key in ["a", "b", "c"] {
        let of_key: Vec<usize> = batches
            .iter()
            .flatten()
            .filter(|delivery| delivery.key() == Some(key))
            .map(crate::parts::number)
            .collect();
        assert_eq!(of_key, [0, 1, 2, 3, 4]);
    }
}

#[tokio::test(start_paused = true)]
async fn each_event_of_a_batch_has_its_own_outcome_and_a_missing_one_is_sent_alone() {
    let site = Site::memory(1);
    let mut sink = Batches::new(10, |delivery| match delivery.payload().as_text() {
        Some("0") => Outcome::rejected("no"),
        Some("1") => Outcome::retry("again"),
        _ => Outcome::Delivered,
    });
    sink.missing = 1;
    let sink = Arc::new(sink);
    let outbox = site
        .outbox()
        .sink("Tested", sink.clone())
        .workers(1)
        .retry(Backoff::fixed(secs(3600)))
        .poller(false)
        .start()
        .await
        .unwrap();
    let events = (0..4).map(|n| postrider::Event::json_text("Tested", n.to_string()));
    let ids = site.write_all(&outbox, events).await;
    outbox.poll_once().await.unwrap();
    site.until_done(&ids[2]).await;
    eventually("the last one was sent again", async || sink.sizes() == [4, 1]).await;
    assert_eq!(site.status(&ids[0]).await, EventStatus::Dead { attempts: 1, error: "no".to_owned() });
    assert!(
        matches!(site.status(&ids[1]).await, EventStatus::Waiting { attempts: 1, error: Some(e), .. } if e == "again")
    );
    // Nothing else was delivered since, so nobody knows whether that is its fault.
    eventually("it waits", async || {
        let missing = site.status(&ids[3]).await;
        matches!(missing, EventStatus::Waiting { attempts: 0, error: Some(e), .. } if e.contains("no outcome"))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_send_that_takes_too_long_is_unknown_and_comes_again() {
    // S3-10.9
    for beside_always in [false, true] {
        let site = Site::memory(1);
        let mut sink = Batches::new(10, |_| Outcome::Delivered);
        sink.timeout = Some(secs(3));
        sink.gate.close();
        let sink = Arc::new(sink);
        let mut builder = site.outbox().sink("A", sink.clone()).retry(Backoff::fixed(secs(3600)));
        if beside_always {
            builder = builder.always(async |_: Delivery| ());
        }
        let outbox = builder.start().await.unwrap();
        let began = Instant::now();
        let id = site.write(&outbox, plain("A")).await;
        let status = until_tried(&site, &id).await;
        assert!(
            // Nothing else was delivered meanwhile, so nobody knows whose fault it was.
            matches!(status, EventStatus::Waiting { attempts: 0, error: Some(e), .. } if e.contains("3s"))
        );
        assert!(began.elapsed() >= secs(3) && began.elapsed() < secs(4), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_panics_fails_every_event_of_its_batch() {
    let site = Site::memory(1);
    static PANICKED: AtomicBool = AtomicBool::new(false);
    let sink = Arc::new(Batches::new(10, |_| {
        assert!(PANICKED.swap(true, Relaxed), "the first time");
        Outcome::Delivered
    }));
    let outbox =
        site.outbox().sink("A", sink.clone()).workers(1).retry(Backoff::fixed(ms(10))).start().await.unwrap();
    let ids = site.write_all(&outbox, (0..5).map(|_| plain("A"))).await;
    for id in &ids {
        site.until_done(id).await;
    }
    assert!(sink.sizes().iter().sum::<usize>() == 10, "{:?}", sink.sizes());
}

#[tokio::test(start_paused = true)]
async fn the_errors_of_a_handler_are_kept_with_their_sources() {
    let site = Site::memory(1);
    let outbox = site
        .outbox()
        .on("A", async |_: Delivery| Err::<(), _>(Error::Hook("the cause".into())))
        .start()
        .await
        .unwrap();
    let id = site.write(&outbox, plain("A")).await;
    let status = until_tried(&site, &id).await;
    assert!(matches!(status, EventStatus::Waiting { error: Some(e), .. } if e.ends_with(": the cause")));
}
