//! Receivers that are down, in every way, and those beside them.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use postrider::{Backoff, BoxFuture, Delivery, Event, Outbox, Outcome, Sink, SinkTraits, store::EventStatus};
use tokio::time::Instant;

use crate::parts::{Doors, Recorder, Site, eventually, keyed, ms, number, on_every_store, pass, plain, secs};

on_every_store![
    a_receiver_that_is_down_holds_up_nobody_else_however_large_its_backlog,
    what_a_receiver_missed_comes_in_order_when_it_is_back,
];

/// How an outside system is when it is down.
#[derive(Debug, Clone, Copy)]
enum Way {
    Hangs,
    Refuses,
    Answers500,
    LosesAnswers,
    ForgetsOutcomes,
}

/// An outside system that is down, and comes back.
struct Outside {
    way: Way,
    down: AtomicBool,
    calls: AtomicUsize,
    took: Mutex<Vec<Delivery>>,
    batch_max: usize,
}

impl Outside {
    fn down(way: Way) -> Arc<Self> {
        let (down, calls, took) = (AtomicBool::new(true), AtomicUsize::new(0), Mutex::default());
        Arc::new(Self { way, down, calls, took, batch_max: 10 })
    }

    fn is_back(&self) {
        self.down.store(false, SeqCst);
    }

    fn numbers_of(&self, key: &str) -> Vec<usize> {
        let took = self.took.lock().unwrap();
        took.iter().filter(|delivery| delivery.key() == Some(key)).map(number).collect()
    }
}

impl Sink for Outside {
    fn traits(&self) -> SinkTraits {
        SinkTraits { batch_max: self.batch_max, send_timeout: Some(secs(2)), ..SinkTraits::SINK }
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            self.calls.fetch_add(1, SeqCst);
            if !self.down.load(SeqCst) {
                self.took.lock().unwrap().extend_from_slice(batch);
                return vec![Outcome::Delivered; batch.len()];
            }
            match self.way {
                Way::Hangs => std::future::pending().await,
                Way::Refuses => vec![Outcome::unavailable("connection refused"); batch.len()],
                Way::Answers500 => vec![Outcome::retry("500"); batch.len()],
                Way::LosesAnswers => vec![Outcome::unknown("connection reset"); batch.len()],
                Way::ForgetsOutcomes => Vec::new(),
            }
        })
    }
}

const WAYS: [Way; 5] = [Way::Hangs, Way::Refuses, Way::Answers500, Way::LosesAnswers, Way::ForgetsOutcomes];

#[tokio::test(start_paused = true)]
async fn an_outage_longer_than_all_retries_together_kills_nothing_whatever_way_it_is_down() {
    for way in WAYS {
        let site = Site::memory(4);
        let outside = Outside::down(way);
        let outbox = site
            .outbox()
            .sink("Down", outside.clone())
            .max_attempts(3)
            .retry(Backoff::fixed(ms(10)))
            .start()
            .await
            .unwrap();
        let of_keys = (0..300).map(|n| Event::json_text("Down", n.to_string()).key(format!("k{}", n % 20)));
        site.write_all(&outbox, of_keys).await;
        site.write_all(&outbox, (0..50).map(|n| Event::json_text("Down", n.to_string()))).await;
        // Three attempts with ten milliseconds between them would have been over long ago.
        pass(secs(600)).await;
        let stats = site.store.stats().await.unwrap();
        assert_eq!((stats.dead, stats.done), (0, 0), "{way:?}");
        outside.is_back();
        site.until_all_done(350).await;
        let stats = site.store.stats().await.unwrap();
        assert_eq!((stats.dead, stats.pending), (0, 0), "{way:?}");
        for key in 0..20 {
            let of_key = outside.numbers_of(&format!("k{key}"));
            let mut sorted = of_key.clone();
            sorted.sort_unstable();
            assert_eq!((of_key.len(), &of_key), (15, &sorted), "{way:?}");
        }
        let attempts: Vec<u32> =
            outside.took.lock().unwrap().iter().map(|delivery| delivery.attempt).collect();
        assert!(attempts.iter().all(|attempt| *attempt == 1), "{way:?}: an outage cost an attempt");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_writes_next_to_nothing_to_the_database() {
    let site = Site::memory(1);
    let doors = Doors::before(site.store.clone());
    let outside = Outside::down(Way::Refuses);
    let outbox =
        Outbox::builder().shared_store(doors.clone()).sink("Down", outside.clone()).start().await.unwrap();
    site.write_all(&outbox, (0..5000).map(|_| plain("Down"))).await;
    pass(secs(600)).await;
    assert_eq!(doors.settle.calls(), 0, "a refused event is not settled");
    outside.is_back();
    // The longest pause between two probes.
    pass(secs(90)).await;
    site.until_all_done(5000).await;
}

#[tokio::test(start_paused = true)]
async fn a_second_system_is_fed_at_full_speed_while_the_first_hangs() {
    for way in WAYS {
        let site = Site::memory(4);
        let (down, up) = (Outside::down(way), Outside::down(way));
        up.is_back();
        let outbox =
            site.outbox().sink("Down", down.clone()).sink("Up", up.clone()).workers(2).start().await.unwrap();
        site.write_all(&outbox, (0..3000).map(|_| plain("Down"))).await;
        // Long enough for every worker that could hang to hang.
        pass(secs(10)).await;
        let began = Instant::now();
        site.write_all(&outbox, (0..3000).map(|_| plain("Up"))).await;
        site.until_all_done(3000).await;
        assert!(began.elapsed() < secs(2), "{way:?}: it took {:?}", began.elapsed());
        assert_eq!(site.store.stats().await.unwrap().dead, 0);
    }
}

async fn a_receiver_that_is_down_holds_up_nobody_else_however_large_its_backlog(site: Site) {
    let (outside, seen) = (Outside::down(Way::Refuses), Recorder::default());
    let outbox = site
        .outbox()
        .sink("Down", outside.clone())
        .on("Up", seen.delivers())
        .cold_queue(10)
        .start()
        .await
        .unwrap();
    site.write_all(&outbox, (0..500).map(|_| plain("Down"))).await;
    for _ in 0..3 {
        let id = site.write(&outbox, plain("Up")).await;
        site.until_done(&id).await;
    }
    outside.is_back();
    site.until_all_done(503).await;
}

async fn what_a_receiver_missed_comes_in_order_when_it_is_back(site: Site) {
    // Every key has events for both; those for the one that is up must not overtake.
    let (outside, seen) = (Outside::down(Way::Refuses), Recorder::default());
    let outbox = site
        .outbox()
        .sink("Down", outside.clone())
        .on("Tested", seen.delivers())
        .cold_queue(20)
        .start()
        .await
        .unwrap();
    for n in 0..30 {
        for key in ["a", "b", "c"] {
            let event =
                if n % 3 == 1 { Event::json_text("Down", n.to_string()).key(key) } else { keyed(key, n) };
            site.write(&outbox, event).await;
        }
    }
    let free = site.write(&outbox, keyed("d", 0)).await;
    site.until_done(&free).await;
    let early: Vec<usize> = seen.seen().iter().filter(|d| d.key() != Some("d")).map(number).collect();
    assert_eq!(early, [0, 0, 0], "what stands behind an event that waits must wait");
    outside.is_back();
    site.until_all_done(91).await;
    for key in ["a", "b", "c"] {
        let of_key = |deliveries: &[Delivery]| -> Vec<usize> {
            deliveries.iter().filter(|d| d.key() == Some(key)).map(number).collect()
        };
        let ours: Vec<usize> = (0..30).filter(|n| n % 3 != 1).collect();
        assert_eq!(of_key(&seen.seen()), ours);
        assert_eq!(outside.numbers_of(key), (0..30).filter(|n| n % 3 == 1).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_type_with_a_backlog_does_not_hold_up_another_and_loses_nothing() {
    let site = Site::memory(1);
    let seen = Recorder::default();
    let outbox = site
        .outbox()
        .on("Slow", async |_: Delivery| pass(secs(1)).await)
        .on("Quick", seen.delivers())
        .cold_queue(40)
        .workers(4)
        .start()
        .await
        .unwrap();
    site.write_all(&outbox, (0..120).map(|_| plain("Slow"))).await;
    for _ in 0..5 {
        let began = Instant::now();
        let id = site.write(&outbox, plain("Quick")).await;
        site.until_done(&id).await;
        assert!(began.elapsed() < secs(2), "{:?}", began.elapsed());
        pass(secs(3)).await;
    }
    site.until_all_done(125).await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_does_not_take_the_last_worker() {
    let site = Site::memory(1);
    let seen = Recorder::default();
    let outbox = site
        .outbox()
        .on("Hangs", async |_: Delivery| std::future::pending::<()>().await)
        .on("Works", seen.delivers())
        .workers(2)
        .start()
        .await
        .unwrap();
    site.write_all(&outbox, (0..10).map(|_| plain("Hangs"))).await;
    pass(secs(1)).await;
    site.write_all(&outbox, (0..10).map(|_| plain("Works"))).await;
    site.until_all_done(10).await;
}

/// A sink that always fails one event, and takes all others.
struct Picky {
    outcome: Outcome,
}

impl Sink for Picky {
    fn traits(&self) -> SinkTraits {
        SinkTraits { batch_max: 10, ..SinkTraits::SINK }
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        let answer = |delivery: &Delivery| match delivery.key() {
            Some("poison") => self.outcome.clone(),
            _ => Outcome::Delivered,
        };
        Box::pin(std::future::ready(batch.iter().map(answer).collect()))
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_always_fails_while_others_are_delivered_is_dead_after_its_attempts() {
    for outcome in [Outcome::retry("500"), Outcome::unknown("no answer")] {
        let site = Site::memory(1);
        let sink = Arc::new(Picky { outcome: outcome.clone() });
        let outbox = site
            .outbox()
            .sink("Tested", sink)
            .max_attempts(3)
            .retry(Backoff::fixed(ms(10)))
            .start()
            .await
            .unwrap();
        let poison = site.write(&outbox, keyed("poison", 0)).await;
        eventually("the poison is dead", async || {
            site.write_all(&outbox, (0..5).map(|n| keyed(&format!("k{n}"), n))).await;
            matches!(site.status(&poison).await, EventStatus::Dead { attempts: 3, .. })
        })
        .await;
        eventually("all others are done", async || site.store.stats().await.unwrap().pending == 0).await;
        assert_eq!(site.store.stats().await.unwrap().dead, 1, "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_alone_is_refused_costs_no_attempt_and_is_dead_after_a_day() {
    let site = Site::memory(1);
    let sink = Arc::new(Picky { outcome: Outcome::unavailable("503") });
    let outbox = site.outbox().sink("Tested", sink).max_attempts(3).start().await.unwrap();
    let poison = site.write(&outbox, keyed("poison", 0)).await;
    for hour in 0..26 {
        for _ in 0..60 {
            site.write_all(&outbox, (0..3).map(|n| keyed(&format!("k{n}"), n))).await;
            pass(secs(60)).await;
        }
        let is_dead = match site.status(&poison).await {
            EventStatus::Dead { attempts: 0, .. } => true,
            EventStatus::New | EventStatus::Waiting { attempts: 0, .. } => false,
            other => panic!("an attempt was counted: {other:?}"),
        };
        assert_eq!(is_dead, hour >= 24, "after {hour} hours");
    }
}

#[tokio::test(start_paused = true)]
async fn probes_rotate_keys_so_that_one_refused_event_does_not_keep_a_receiver_shut() {
    let site = Site::memory(1);
    let sink = Arc::new(Picky { outcome: Outcome::unavailable("503") });
    let outbox = site.outbox().sink("Tested", sink).workers(1).start().await.unwrap();
    // It comes first and alone, so the receiver seems to be down; the next probe shows that it is not.
    site.write(&outbox, keyed("poison", 0)).await;
    pass(ms(50)).await;
    let other = site.write(&outbox, keyed("other", 0)).await;
    site.until_done(&other).await;
}

#[tokio::test(start_paused = true)]
async fn routes_to_one_receiver_share_its_breaker() {
    let site = Site::memory(1);
    let outside = Outside::down(Way::Refuses);
    let outbox = site.outbox().sink("A", outside.clone()).sink("B", outside.clone()).start().await.unwrap();
    site.write(&outbox, plain("A")).await;
    eventually("it was asked", async || outside.calls.load(SeqCst) > 0).await;
    let calls = outside.calls.load(SeqCst);
    site.write(&outbox, plain("B")).await;
    pass(ms(90)).await;
    assert_eq!(outside.calls.load(SeqCst), calls, "it said that it is down, and was asked again at once");
    outside.is_back();
    site.until_all_done(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_due_event_that_a_claim_brought_while_it_was_in_memory_is_met_again_when_a_receiver_goes_down() {
    // Found by the simulator: a claim that began before the event did left it to the next round, and no claim that passes rows over goes round.
    let site = Site::memory(1);
    let (doors, seen) = (Doors::before(site.store.clone()), Recorder::default());
    let puts_off = seen.answers(|_| Outcome::deferred(ms(50)));
    let outbox = site
        .outbox()
        .shared_store(doors.clone())
        .on("Late", puts_off)
        .sink("Tested", Outside::down(Way::Refuses))
        .claim_batch(2)
        .full_look_every(secs(86_400))
        .start()
        .await
        .unwrap();
    doors.claim.before.close();
    let claims = doors.claim.before.arrivals();
    outbox.wake();
    eventually("a claim waits", async || doors.claim.before.arrivals() > claims).await;
    for _ in 0..2 {
        site.write_hot(&outbox, plain("Late")).await;
    }
    seen.reaches(2).await;
    site.write_all(&outbox, (0..2).map(|n| keyed(&format!("key {n}"), n))).await;
    pass(ms(200)).await;
    doors.claim.before.let_through();
    // Both come again, and again.
    let comes = |id: &postrider::EventId| seen.ids().iter().filter(|seen| *seen == id).count();
    let ids = seen.ids();
    eventually("both come again", async || ids.iter().all(|id| comes(id) >= 3)).await;
}

/// A receiver that works, and is out for a while at this moment: it hangs, or answers 500.
struct Flapping {
    way: Way,
    out: (Instant, Instant),
    takes: std::time::Duration,
    lost: AtomicUsize,
}

impl Sink for Flapping {
    fn traits(&self) -> SinkTraits {
        let (send_timeout, concurrent) = (Some(secs(10)), Some(20));
        SinkTraits { batch_max: 1, send_timeout, concurrent, ..SinkTraits::SINK }
    }

    fn send<'a>(&'a self, _: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let is_out = || (self.out.0..self.out.1).contains(&Instant::now());
            if is_out() && matches!(self.way, Way::Hangs) {
                self.lost.fetch_add(1, SeqCst);
                return std::future::pending().await;
            }
            pass(self.takes).await;
            match is_out() {
                true => {
                    self.lost.fetch_add(1, SeqCst);
                    vec![Outcome::retry("500")]
                }
                false => vec![Outcome::Delivered],
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_begins_or_ends_while_events_are_sent_kills_none_of_them() {
    for (way, lasts, takes) in [
        (Way::Hangs, secs(8), ms(20)),
        (Way::Hangs, secs(3), ms(20)),
        (Way::Answers500, secs(8), ms(20)),
        (Way::Answers500, ms(50), ms(20)),
        (Way::Answers500, secs(8), ms(300)),
        (Way::Hangs, secs(8), ms(300)),
    ] {
        let site = Site::memory(4);
        let began = Instant::now() + secs(5);
        let out = (began, began + lasts);
        let receiver = Arc::new(Flapping { way, out, takes, lost: AtomicUsize::new(0) });
        let builder = site.outbox().sink("Tested", receiver.clone()).workers(20).max_attempts(1);
        let outbox = builder.start().await.unwrap();
        for n in 0..600 {
            site.write(&outbox, keyed(&format!("k{n}"), n)).await;
            pass(ms(20)).await;
        }
        pass(secs(120)).await;
        let stats = site.store.stats().await.unwrap();
        assert_eq!((stats.dead, stats.done), (0, 600), "{way:?} for {lasts:?}, {takes:?}");
        assert!(receiver.lost.load(SeqCst) > 0, "{way:?} for {lasts:?}: it was out");
    }
}
