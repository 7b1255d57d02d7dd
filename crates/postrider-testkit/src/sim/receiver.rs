//! The receivers and their moods: a handler, a sink that is fed in batches, and one that two types of events share.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider_core::{BatchOrder, Delivery, Event, EventId, Outcome, SinkTraits, rng::Rng};
use tokio::time::Instant;

use super::{
    destinations::Destination,
    door::Killed,
    history::{Call, Happening, History, Name},
    outage::Whole,
    scenario::{HealthHabit, ReceiverScenario},
    too_fast::Buckets,
    writers::LONG_KEY,
};

/// Most events that one receiver refuses for good: fewer than an engine keeps as probes, or nothing could come through.
const POISONS_MAX: usize = 3;
/// Most events that fail every batch of one receiver: fewer than an engine takes for an outage.
const SPOILERS_MAX: usize = 3;
/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(86_400);

/// Where an event goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum To {
    Handler,
    Batch,
    Shared,
}

impl To {
    pub(super) const ALL: [Self; 3] = [Self::Handler, Self::Batch, Self::Shared];

    /// What operators call it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Handler => "handler",
            Self::Batch => "batch",
            Self::Shared => "shared",
        }
    }

    /// One of the types that go there.
    pub(super) fn a_type(self, rng: &mut Rng) -> &'static str {
        let types: Vec<&str> =
            Self::TYPES.iter().filter(|(_, to)| *to == self).map(|(name, _)| *name).collect();
        types.get(rng.below(types.len() as u64) as usize).copied().unwrap_or("Handled")
    }

    pub(super) fn any_type(rng: &mut Rng) -> &'static str {
        let place = rng.below(Self::TYPES.len() as u64) as usize;
        Self::TYPES.get(place).map_or("Handled", |(name, _)| *name)
    }

    /// The event types and where they go.
    pub(super) const TYPES: [(&'static str, Self); 4] = [
        ("Handled", Self::Handler),
        ("Batched", Self::Batch),
        ("SharedOne", Self::Shared),
        ("SharedOther", Self::Shared),
    ];
}

/// One outside system, which outlives every engine.
#[derive(Clone)]
pub(super) struct Receiver(Arc<Inner>);

struct Inner {
    scenario: ReceiverScenario,
    rng: Mutex<Rng>,
    /// What killers and poisons are told by.
    salt: u64,
    began: Instant,
    healed: AtomicBool,
    forgiving: AtomicBool,
    poisons: Mutex<BTreeSet<EventId>>,
    spoilers: Mutex<BTreeSet<EventId>>,
    buckets: Mutex<Buckets>,
    handler_timeout: Option<Duration>,
    calls: Mutex<Call>,
    history: Arc<History>,
}

/// What becomes of one event in a call that is answered event by event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Well,
    Fail,
    Reject,
    Defer,
    Unavailable,
    Unknown,
    /// It is told to come again after so long, because the receiver takes no more.
    TooFast(Duration),
    /// It may never have arrived, and the answer is that nobody knows.
    NoAnswer,
    /// An earlier event of its key in the batch was not delivered.
    Behind,
}

impl Mood {
    /// What becomes of an event whose destination does nothing but one wrong thing.
    fn of_one(whole: Whole) -> Self {
        match whole {
            Whole::Refuse => Self::Unavailable,
            Whole::Reject => Self::Reject,
            Whole::Lose | Whole::Hang { effect: true } => Self::Unknown,
            Whole::Hang { effect: false } => Self::NoAnswer,
            Whole::Fail | Whole::TooFew | Whole::Panic => Self::Fail,
        }
    }

    pub(super) fn has_effect(self) -> bool {
        matches!(self, Self::Well | Self::Unknown)
    }

    /// Whether the event has failed, and the receiver does not say for good.
    pub(super) fn is_failure(self) -> bool {
        matches!(self, Self::Fail | Self::Unknown | Self::NoAnswer)
    }

    pub(super) fn answer(self) -> (&'static str, Outcome) {
        match self {
            Self::Well => ("delivered", Outcome::Delivered),
            Self::Fail => ("failed", Outcome::retry("not in the mood")),
            Self::Reject => ("rejected", Outcome::rejected("never")),
            Self::Defer => ("deferred", Outcome::deferred(Duration::from_millis(50))),
            Self::Unavailable => ("unavailable", Outcome::unavailable("down")),
            Self::TooFast(after) => ("too fast", Outcome::deferred(after)),
            Self::Unknown | Self::NoAnswer => ("unknown", Outcome::unknown("no answer")),
            Self::Behind => ("behind", Outcome::retry("behind one that was not delivered")),
        }
    }
}

/// What becomes of a call.
pub(super) struct SendPlan {
    pub(super) before: Duration,
    pub(super) after: Duration,
    pub(super) whole: Option<Whole>,
    pub(super) moods: Vec<Mood>,
    /// An event in it fails the batch, and says so or not.
    pub(super) spoiled: Option<Spoiled>,
    /// How many outcomes are returned, and whether the others took effect.
    pub(super) outcomes: usize,
    pub(super) rest_has_effect: bool,
}

/// What a batch is told that one of its events has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spoiled {
    /// That it failed as a whole.
    AsAWhole,
    /// The same of each event.
    Each,
}

impl Receiver {
    pub(super) fn new(
        mut rng: Rng,
        scenario: ReceiverScenario,
        handler_timeout: Option<Duration>,
        history: Arc<History>,
    ) -> Self {
        let salt = rng.next_u64();
        // Told apart without knowing each other.
        let calls = Mutex::new((scenario.to as u64) << 32);
        Self(Arc::new(Inner {
            scenario,
            rng: Mutex::new(rng),
            salt,
            began: Instant::now(),
            healed: AtomicBool::new(false),
            forgiving: AtomicBool::new(false),
            poisons: Mutex::default(),
            spoilers: Mutex::default(),
            buckets: Mutex::default(),
            handler_timeout,
            calls,
            history,
        }))
    }

    /// Takes everything from now on, but for its poisons.
    pub(super) fn heal(&self) {
        self.0.healed.store(true, Relaxed);
    }

    /// Takes its poisons too.
    pub(super) fn forgive(&self) {
        self.0.forgiving.store(true, Relaxed);
    }

    /// What it refuses for good.
    pub(super) fn poisons(&self) -> BTreeSet<EventId> {
        self.0.poisons.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn to(&self) -> To {
        self.0.scenario.to
    }

    pub(super) fn history(&self) -> &Arc<History> {
        &self.0.history
    }

    pub(super) fn traits(&self) -> SinkTraits {
        match self.to() {
            To::Handler => SinkTraits::HANDLER,
            _ => SinkTraits {
                batch_max: self.0.scenario.batch_max,
                order: match self.0.scenario.keeps_order {
                    true => BatchOrder::Prefix,
                    false => BatchOrder::Independent,
                },
                key_max: self.0.scenario.key_max,
                one_destination: self.0.scenario.one_destination,
                send_timeout: Some(self.0.scenario.send_timeout),
                concurrent: Some(self.0.scenario.concurrent),
                ..SinkTraits::SINK
            },
        }
    }

    pub(super) fn next_call(&self) -> Call {
        let mut calls = self.0.calls.lock().unwrap_or_else(PoisonError::into_inner);
        *calls += 1;
        *calls
    }

    /// Its door into one life of an instance.
    pub(super) fn door(&self, by: Name, killed: &Killed) -> Arc<super::door::Door> {
        Arc::new(super::door::Door::new(self.clone(), by, killed.clone()))
    }

    /// How long a call may take, where anybody ends it.
    pub(super) fn time_limit(&self) -> Option<Duration> {
        match self.to() {
            To::Handler => self.0.handler_timeout,
            _ => Some(self.0.scenario.send_timeout),
        }
    }

    pub(super) fn destination(&self, event: &Event) -> Destination {
        self.0.scenario.destination(event.key(), event.id())
    }

    /// What the engine calls the destination of an event.
    pub(super) fn destination_name(&self, event: &Event) -> Option<String> {
        self.0.scenario.name_of(self.destination(event))
    }

    /// What is wrong with the whole receiver, or with one of its destinations by itself.
    fn outage(&self, destination: Option<Destination>) -> Option<Whole> {
        let now = Instant::now() - self.0.began;
        let mut outages = self.0.scenario.outages.iter();
        outages.find(|outage| outage.hits(now, destination)).map(|outage| outage.whole)
    }

    /// Whether it says that it is up, as far as this destination goes; none if it gives no answer.
    pub(super) fn is_up(&self, destination: Option<Destination>) -> Option<Option<bool>> {
        match self.0.scenario.health {
            HealthHabit::Silent => Some(None),
            HealthHabit::Tells => {
                let down = self.outage(None).or_else(|| self.outage(Some(destination?)));
                Some(Some(down.is_none()))
            }
            HealthHabit::Lies => Some(Some(true)),
            HealthHabit::Hangs => None,
        }
    }

    /// Decided by the event alone, so that it is one wherever and whenever it is delivered.
    pub(super) fn is_killer(&self, delivery: &Delivery) -> bool {
        self.is_one(delivery, 0, self.0.scenario.moods.kill)
    }

    fn is_one(&self, delivery: &Delivery, salt: u64, rate: f64) -> bool {
        let fold = |hash: u64, byte| hash.rotate_left(7) ^ u64::from(byte);
        let seed = delivery.id().as_str().bytes().fold(self.0.salt ^ salt, fold);
        Rng::seeded(seed).chance(rate)
    }

    /// Whether this event is refused for good. A killer is bad enough.
    fn is_poison(&self, delivery: &Delivery) -> bool {
        let rate = if delivery.key().is_none() { self.0.scenario.moods.poison } else { 0.0 };
        if self.0.forgiving.load(Relaxed) || !self.is_one(delivery, 1, rate) || self.is_killer(delivery) {
            return false;
        }
        let mut poisons = self.0.poisons.lock().unwrap_or_else(PoisonError::into_inner);
        let known = poisons.contains(delivery.id());
        if !known && poisons.len() < POISONS_MAX {
            poisons.insert(delivery.id().clone());
            self.0.history.note(Happening::Poison(delivery.id().clone()));
            return true;
        }
        known
    }

    /// Whether this event fails every batch that it is in.
    fn is_spoiler(&self, delivery: &Delivery) -> bool {
        let rate = self.0.scenario.moods.spoil;
        if self.0.healed.load(Relaxed) || !self.is_one(delivery, 2, rate) {
            return false;
        }
        let mut spoilers = self.0.spoilers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = spoilers.contains(delivery.id());
        if !known && spoilers.len() < SPOILERS_MAX {
            spoilers.insert(delivery.id().clone());
            self.0.history.note(Happening::Spoiler(delivery.id().clone()));
            return true;
        }
        known
    }

    /// Takes tokens for a call, where the receiver is limited: those that get none are told to come again.
    fn limit(&self, batch: &[Delivery], moods: &mut [Mood]) {
        let (now, scenario) = (Instant::now(), &self.0.scenario);
        let Some(limit) = scenario.limit.as_ref().filter(|_| !self.0.healed.load(Relaxed)) else { return };
        let mut buckets = self.0.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut requests: BTreeMap<Destination, Result<(), Duration>> = BTreeMap::new();
        for (delivery, mood) in batch.iter().zip(moods) {
            let destination = self.destination(delivery);
            if !limit.holds_at(now - self.0.began, destination) {
                continue;
            }
            let known = requests.get(&destination).filter(|_| !scenario.limits_events).copied();
            let taken = known.unwrap_or_else(|| buckets.take(limit, now));
            requests.insert(destination, taken);
            if let Err(after) = taken {
                *mood = Mood::TooFast(after);
            }
        }
    }

    /// Draws what becomes of a call.
    pub(super) fn draw(&self, batch: &[Delivery]) -> SendPlan {
        let poisoned: Vec<bool> = batch.iter().map(|delivery| self.is_poison(delivery)).collect();
        let spoilers: Vec<bool> = batch.iter().map(|delivery| self.is_spoiler(delivery)).collect();
        let mut rng = self.0.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let quick = rng.chance(0.2);
        let mut pause = |most_us: u64| Duration::from_micros(if quick { 0 } else { rng.below(most_us) });
        let (mut before, mut after) = (pause(4000), pause(2000));
        let healed = self.0.healed.load(Relaxed);
        let outage = self.outage(None);
        let whole = if healed { None } else { outage.or_else(|| self.whole(&mut rng)) };
        if matches!((self.to(), whole), (To::Handler, Some(Whole::Hang { .. }))) {
            // Where its time is limited it never ends by itself; else it does, long after the lease.
            after = match self.0.handler_timeout {
                Some(_) => FOR_EVER,
                None => Duration::from_millis(500 + rng.below(5000)),
            };
        }
        let mood = |(poisoned, delivery): (bool, &Delivery)| match poisoned {
            true => Mood::Unavailable,
            false if healed => Mood::Well,
            false if self.0.scenario.fails(self.to(), delivery.key()) => Mood::Fail,
            false => self.mood(&mut rng),
        };
        let mut moods: Vec<Mood> = poisoned.into_iter().zip(batch).map(mood).collect();
        if !healed {
            let down = |delivery: &Delivery| self.outage(Some(self.destination(delivery)));
            for (mood, down) in moods.iter_mut().zip(batch.iter().map(down)) {
                if let Some(Whole::Hang { .. }) = down {
                    // It waits for what does not come, and says in time what it knows of the others.
                    after = after.max(self.0.scenario.send_timeout.mul_f64(0.9));
                }
                *mood = down.map_or(*mood, Mood::of_one);
            }
        }
        self.limit(batch, &mut moods);
        if self.0.scenario.keeps_order {
            keep_order(batch, &mut moods);
        }
        let spoiler = spoilers.iter().any(|spoiler| *spoiler);
        let spoiled = spoiler.then(|| if rng.chance(0.5) { Spoiled::AsAWhole } else { Spoiled::Each });
        if batch.iter().any(|delivery| delivery.key() == Some(LONG_KEY)) && !healed {
            before += self.0.scenario.slow;
        }
        let few = match (whole, outage) {
            (Some(Whole::TooFew), None) => rng.below(batch.len() as u64) as usize,
            (Some(Whole::TooFew), Some(_)) => 0,
            _ => batch.len(),
        };
        SendPlan { before, after, whole, moods, spoiled, outcomes: few, rest_has_effect: rng.chance(0.5) }
    }

    fn whole(&self, rng: &mut Rng) -> Option<Whole> {
        let moods = &self.0.scenario.moods;
        let all = [
            (moods.panic, Whole::Panic),
            (moods.hang / 2.0, Whole::Hang { effect: true }),
            (moods.hang / 2.0, Whole::Hang { effect: false }),
            (moods.fail_all, Whole::Fail),
            (moods.refuse_all, Whole::Refuse),
            (moods.lose_answer, Whole::Lose),
            (moods.too_few, Whole::TooFew),
        ];
        pick(rng, all)
    }

    fn mood(&self, rng: &mut Rng) -> Mood {
        let moods = &self.0.scenario.moods;
        let all = [
            (moods.fail, Mood::Fail),
            (moods.reject, Mood::Reject),
            (moods.defer, Mood::Defer),
            (moods.unavailable, Mood::Unavailable),
            (moods.unknown, Mood::Unknown),
        ];
        pick(rng, all).unwrap_or(Mood::Well)
    }
}

/// Once an event of a key was not delivered, no later one of that key is.
fn keep_order(batch: &[Delivery], moods: &mut [Mood]) {
    let mut stopped = BTreeSet::new();
    for (delivery, mood) in batch.iter().zip(moods) {
        let Some(key) = delivery.key() else { continue };
        if stopped.contains(key) {
            *mood = Mood::Behind;
        } else if *mood != Mood::Well {
            stopped.insert(key);
        }
    }
}

fn pick<T: Copy, const N: usize>(rng: &mut Rng, all: [(f64, T); N]) -> Option<T> {
    let mut point = rng.next_f64();
    for (rate, one) in all {
        if point < rate {
            return Some(one);
        }
        point -= rate;
    }
    None
}
