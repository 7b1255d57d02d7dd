//! Receivers as they are: with several destinations, limits, one event that they choke on, and days on which they reject everything.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider::{
    Backoff, BoxFuture, Delivery, Event, EventBuilder, Health, Outcome, Sink, SinkTraits, named,
    store::{EventStatus, Subject},
};
use tokio::time::Instant;

use crate::parts::{Site, eventually, keyed, ms, number, pass, secs};

/// Answers a batch.
type Answer = dyn Fn(&[Delivery]) -> Vec<Outcome> + Send + Sync;

/// An outside system that answers as it is told. Its destinations are the tenants of the events, and those whose names begin with "hangs" never
/// answer.
struct Receiver {
    answer: Mutex<Arc<Answer>>,
    takes: Duration,
    traits: SinkTraits,
    health: Health,
    /// Whether those that hang do so now.
    hanging: AtomicBool,
    /// What it took, and when.
    took: Mutex<Vec<(Instant, Delivery)>>,
    /// How often each event was sent.
    sent: Mutex<BTreeMap<String, usize>>,
}

impl Receiver {
    fn answering(answer: impl Fn(&Delivery) -> Outcome + Send + Sync + 'static) -> Self {
        Self::answering_batches(move |batch| batch.iter().map(&answer).collect())
    }

    fn answering_batches(answer: impl Fn(&[Delivery]) -> Vec<Outcome> + Send + Sync + 'static) -> Self {
        Self {
            answer: Mutex::new(Arc::new(answer)),
            takes: ms(1),
            traits: SinkTraits { batch_max: 1, ..SinkTraits::SINK },
            health: Health::Unknown,
            hanging: AtomicBool::new(true),
            took: Mutex::default(),
            sent: Mutex::default(),
        }
    }

    fn batch(mut self, batch_max: usize) -> Self {
        self.traits.batch_max = batch_max;
        self
    }

    fn healthy(mut self) -> Self {
        self.health = Health::Up;
        self
    }

    fn taking(mut self, takes: Duration) -> Self {
        self.takes = takes;
        self
    }

    fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }

    /// From now on it takes everything.
    fn mend(&self) {
        *self.answer.lock().unwrap() = Arc::new(|batch: &[Delivery]| vec![Outcome::Delivered; batch.len()]);
    }

    fn took(&self) -> usize {
        self.took.lock().unwrap().len()
    }

    /// How long the events that satisfy this waited, from the longest to the shortest.
    fn took_at(&self, wanted: impl Fn(&Delivery) -> bool) -> Vec<Instant> {
        let took = self.took.lock().unwrap();
        took.iter().filter(|(_, delivery)| wanted(delivery)).map(|(at, _)| *at).collect()
    }

    fn sends_of(&self, key: &str) -> usize {
        self.sent.lock().unwrap().get(key).copied().unwrap_or(0)
    }
}

impl Sink for Receiver {
    fn traits(&self) -> SinkTraits {
        self.traits
    }

    fn destination(&self, event: &Event) -> Option<String> {
        event.tenant_id().map(str::to_owned)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            for key in batch.iter().filter_map(|delivery| delivery.key()) {
                *self.sent.lock().unwrap().entry(key.to_owned()).or_default() += 1;
            }
            pass(self.takes).await;
            let hangs =
                |delivery: &Delivery| delivery.tenant_id().is_some_and(|name| name.starts_with("hangs"));
            if batch.iter().any(hangs) && self.hanging.load(Relaxed) {
                std::future::pending::<()>().await;
            }
            let answer = self.answer.lock().unwrap().clone();
            let outcomes = answer(batch);
            let delivered =
                batch.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == Outcome::Delivered);
            self.took
                .lock()
                .unwrap()
                .extend(delivered.map(|(delivery, _)| (Instant::now(), delivery.clone())));
            outcomes
        })
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(std::future::ready(self.health.clone()))
    }
}

/// An event of a key that goes to the destination of this name.
fn at(tenant: &str, key: &str, n: usize) -> EventBuilder {
    keyed(key, n).tenant(tenant)
}

/// Takes so many requests a second, and says "too fast" to others.
fn limited(rate: f64) -> impl Fn(&Delivery) -> Outcome + Send + Sync + 'static {
    let state = Mutex::new((rate, None::<Instant>));
    move |_| {
        let (now, mut state) = (Instant::now(), state.lock().unwrap());
        let passed = state.1.map_or(Duration::ZERO, |then| now - then).as_secs_f64();
        let tokens = (state.0 + passed * rate).min(rate);
        let takes = tokens >= 1.0;
        *state = (if takes { tokens - 1.0 } else { tokens }, Some(now));
        if takes { Outcome::Delivered } else { Outcome::deferred(secs(1)) }
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_limits_its_rate_gets_what_it_allows_and_nothing_dies() {
    for batch in [1, 100] {
        let site = Site::memory(4);
        let receiver = Receiver::answering(limited(20.0)).batch(batch).shared();
        let outbox = site.outbox().sink("Tested", receiver.clone()).max_attempts(3).start().await.unwrap();
        let began = Instant::now();
        site.write_all(&outbox, (0..6000).map(|n| keyed(&format!("k{}", n % 500), n))).await;
        while receiver.took() < 6000 {
            assert!(began.elapsed() < secs(333), "{} after {:?}", receiver.took(), began.elapsed());
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
        assert!(began.elapsed() < secs(200), "{} after {:?}", receiver.took(), began.elapsed());
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
        assert!((stats.dead, receiver.took()) <= (13, 987), "{name}: {stats:?}");
        let counted =
            receiver.took.lock().unwrap().iter().filter(|(_, delivery)| delivery.attempt > 1).count();
        assert_eq!(counted, 0, "{name}: an innocent event was counted");
    }
}

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
async fn a_notice_of_an_instance_that_is_gone_goes_away_when_the_sink_takes_something() {
    for mended_before_the_restart in [false, true] {
        let site = Site::memory(4);
        let receiver = Receiver::answering(|_| Outcome::rejected("400")).shared();
        let told = async || site.store.pauses().await.unwrap().len();
        let start =
            async || site.outbox().sink("Tested", named("shop", receiver.clone())).start().await.unwrap();
        let first = start().await;
        site.write_all(&first, (0..50).map(|n| keyed(&format!("k{n}"), n))).await;
        eventually("operators are told", async || told().await == 1).await;
        first.shutdown().await;
        if mended_before_the_restart {
            receiver.mend();
        }
        let _second = start().await;
        pass(secs(200)).await;
        assert_eq!(told().await, 1, "it has taken nothing, or that is not long ago");
        receiver.mend();
        pass(secs(200)).await;
        assert_eq!(told().await, 0, "mended before the restart: {mended_before_the_restart}");
    }
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
