//! The numbers of a run, drawn from its seed.

use std::time::Duration;

use postrider_core::rng::Rng;

use super::{
    lifecycle::Lifecycle,
    mishap::Mishaps,
    outage::{Outage, Whole},
    pausing::Break,
    receiver::To,
    store_trouble::{Hung, Refusing},
    too_fast::Limit,
    trial::Trial,
};

/// How often the store misbehaves, for each call.
#[derive(Debug, Clone, Copy)]
pub(super) struct FaultRates {
    /// Fails without effect.
    pub(super) refuse: f64,
    /// Takes effect, and the reply is lost.
    pub(super) lose_reply: f64,
    /// Takes long, at times longer than a lease.
    pub(super) stall: f64,
    /// A settle takes long.
    pub(super) stall_settle: f64,
    /// For each commit of a business transaction: it takes effect, and the reply is lost.
    pub(super) lose_commit: f64,
}

/// How often a receiver is in which mood.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moods {
    /// For each event of a call that is answered event by event.
    pub(super) fail: f64,
    pub(super) reject: f64,
    pub(super) defer: f64,
    pub(super) unavailable: f64,
    /// It took effect and the answer is that nobody knows.
    pub(super) unknown: f64,
    /// For each call: what happens to all of its events.
    pub(super) panic: f64,
    pub(super) hang: f64,
    pub(super) fail_all: f64,
    pub(super) refuse_all: f64,
    pub(super) lose_answer: f64,
    pub(super) too_few: f64,
    /// For each event: it ends the process whenever it is delivered.
    pub(super) kill: f64,
    /// For each event without a key, of one outside receiver: it is refused whenever it is delivered, though nothing is wrong with the receiver.
    pub(super) poison: f64,
    /// For each event of an outside receiver: every batch fails that it is in, and it fails alone.
    pub(super) spoil: f64,
}

/// What a receiver says when it is asked how it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HealthHabit {
    /// Nobody can tell.
    Silent,
    /// Up, or down during an outage.
    Tells,
    /// Up, whatever is wrong.
    Lies,
    /// No answer at all.
    Hangs,
}

/// One receiver.
#[derive(Debug, Clone)]
pub(super) struct ReceiverScenario {
    pub(super) to: To,
    pub(super) batch_max: usize,
    /// Whether it keeps the order of keys within a batch.
    pub(super) keeps_order: bool,
    /// Most events of one key in a batch, whether a batch goes to one destination, and whether its limit is of events or of requests.
    pub(super) key_max: usize,
    pub(super) one_destination: bool,
    pub(super) limits_events: bool,
    pub(super) send_timeout: Duration,
    /// Most sends at a time.
    pub(super) concurrent: usize,
    /// How many parts it has that can be down by themselves.
    pub(super) destinations: u64,
    pub(super) limit: Option<Limit>,
    /// How long it takes for an event of the long key.
    pub(super) slow: Duration,
    /// Whether it fails most keys until the end.
    pub(super) failing_keys: bool,
    pub(super) moods: Moods,
    pub(super) outages: Vec<Outage>,
    pub(super) health: HealthHabit,
}

/// A claim that reads so many rows reads all that matter.
pub(super) const MANY_ROWS: usize = 64;

#[derive(Debug, Clone)]
pub(super) struct Scenario {
    /// The only thing that goes wrong, and where; none if anything may.
    pub(super) trial: Option<(Trial, To)>,
    pub(super) lanes: u32,
    /// Most events of a key that come back by one claim.
    pub(super) returning: usize,
    /// Most rows that one claim reads.
    pub(super) scanned: usize,
    /// How many engines there are at once.
    pub(super) instances: usize,
    /// How often the database's clock jumps forward, for each look.
    pub(super) clock_jump: f64,
    pub(super) keys: u64,
    pub(super) writers: u64,
    pub(super) transactions_each: u64,
    /// Longest pause of a writer between two transactions.
    pub(super) writer_pause: Duration,
    /// How often a transaction stays open for long after it wrote.
    pub(super) commits_late: f64,
    /// How often an engine is crashed or stopped, at most, before it is left to drain.
    pub(super) lives: u64,
    /// The same in a trial that is about it.
    pub(super) lifecycle: Option<Lifecycle>,
    pub(super) workers: usize,
    pub(super) hot_queue: usize,
    pub(super) cold_queue: usize,
    /// Most events that wait in memory behind one of their key.
    pub(super) key_queue: usize,
    /// The type of a key with very many events, and how many.
    pub(super) long_key: Option<(&'static str, u64)>,
    /// How long a handler may take, where that is short.
    pub(super) handler_timeout: Option<Duration>,
    pub(super) claim_batch: usize,
    pub(super) max_attempts: u32,
    /// How long an event may fail without anybody knowing why; zero for any time.
    pub(super) unavailable_for: Duration,
    pub(super) lease: Duration,
    pub(super) drain_timeout: Duration,
    pub(super) poll_max: Duration,
    /// Whether the store lets engines peek. In simulated time that is most of what happens, so it is not always.
    pub(super) peeks: bool,
    /// Whether the database waits by itself until something was written, as PostgreSQL does.
    pub(super) peeks_wait: bool,
    pub(super) retention: Duration,
    pub(super) faults: FaultRates,
    /// What the database refuses in a trial, and which calls it never answers.
    pub(super) refusing: Option<Refusing>,
    pub(super) hung: Vec<Hung>,
    pub(super) mishaps: Mishaps,
    pub(super) receivers: Vec<ReceiverScenario>,
    /// What an operator pauses.
    pub(super) breaks: Vec<Break>,
}

impl Scenario {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let trial = Trial::draw(rng).map(|trial| (trial, trial.victim(rng)));
        let calm = trial.is_some();
        // Calm runs and wild ones: a bug may need either to show itself.
        let wild = if calm { 0.0 } else { rng.next_f64() };
        let mut rate = |most: f64| if rng.chance(0.5) { most * wild * rng.next_f64() } else { 0.0 };
        let mut faults = FaultRates {
            refuse: rate(0.2),
            lose_reply: rate(0.1),
            stall: rate(0.05),
            stall_settle: rate(0.2),
            lose_commit: rate(0.2),
        };
        let (kill, poison, spoil) = (rate(0.05), rate(0.15), rate(0.1));
        let mishaps = if calm { Mishaps::default() } else { Mishaps::draw(rng) };
        if mishaps.times_back > 0 {
            // What was settled in the lost future must arrive after it.
            faults.stall_settle = 0.3;
        }
        let rejects = matches!(trial, Some((Trial::Rejects | Trial::Broken, _)));
        let keys = if rejects { 12 + rng.below(12) } else { 1 + rng.below(12) };
        let breaks = match trial {
            Some((Trial::Pause, to)) => vec![Break::long(rng, to)],
            // What an operator said would be lost with the rest.
            _ if calm || mishaps.times_back > 0 => Vec::new(),
            _ => (0..rng.below(4)).map(|_| Break::draw(rng, keys)).collect(),
        };
        let poisoned = if rng.chance(0.5) { To::Batch } else { To::Shared };
        let receivers = To::ALL.map(|to| {
            let poison = if to == poisoned { poison } else { 0.0 };
            let receiver =
                ReceiverScenario::draw(rng, to, wild, Moods { kill, poison, spoil, ..Moods::default() });
            match trial {
                None => receiver.with_troubles(rng),
                Some((trial, victim)) if victim == to => receiver.on_trial(trial, rng).staged(trial, rng),
                Some(_) => receiver,
            }
        });
        // What waits in memory behind an event that cannot be sent, or settled, takes room from others. Where it matters who is held up
        // by whom, there is room enough.
        let is_long = matches!(trial, Some((Trial::LongKey, _)));
        let queue = match (calm, poison > 0.0 || mishaps.leave_unsettled()) {
            _ if is_long => 32,
            (true, _) => 1000,
            (false, true) => 24,
            (false, false) => 1,
        };
        let busy = matches!(
            trial,
            Some((
                Trial::Rejects | Trial::TooFast | Trial::Spoilers | Trial::Broken | Trial::HangingDestination,
                _
            ))
        );
        let scenario = Self {
            trial,
            lanes: 1 << rng.below(4),
            returning: 1 << rng.below(5),
            // A claim that reads fewer rows than are refused for good would try those alone on a receiver that is down; and one that reads fewer than
            // a long key has takes many claims to find the others.
            scanned: if poison > 0.0 || is_long { MANY_ROWS } else { 2 << rng.below(6) },
            instances: 1 + rng.below(3) as usize,
            clock_jump: if !calm && rng.chance(0.4) { 0.3 } else { 0.0 },
            keys,
            writers: if busy { 4 } else { 1 + rng.below(4) },
            transactions_each: if busy { 15 } else { 5 } + rng.below(20),
            writer_pause: Duration::from_millis(50),
            commits_late: if rng.chance(0.4) { 0.1 } else { 0.0 },
            lives: if calm { 0 } else { rng.below(5) },
            lifecycle: None,
            workers: 1 + rng.below(5) as usize,
            hot_queue: 1 + rng.below(20) as usize,
            cold_queue: queue + rng.below(40) as usize,
            key_queue: if is_long || rng.chance(0.8) { 1 + rng.below(8) } else { 32 } as usize,
            long_key: match trial {
                Some((Trial::LongKey, to)) => Some((to.a_type(rng), 100 + rng.below(40))),
                None if rng.chance(0.2) => Some((To::any_type(rng), 20 + rng.below(40))),
                _ => None,
            },
            handler_timeout: match trial {
                Some((Trial::Hangs, _)) => Some(Duration::from_millis(30 + rng.below(300))),
                None if rng.chance(0.5) => Some(Duration::from_millis(30 + rng.below(1000))),
                _ => None,
            },
            claim_batch: 1 + rng.below(20) as usize,
            max_attempts: 1 + rng.below(5) as u32,
            unavailable_for: Duration::from_secs(86_400),
            lease: Duration::from_millis(300 + rng.below(2000)),
            drain_timeout: Duration::from_secs(1),
            poll_max: Duration::from_millis(500),
            peeks: rng.chance(0.1),
            peeks_wait: false,
            retention: if rng.chance(0.5) { Duration::ZERO } else { Duration::from_secs(3600) },
            faults,
            refusing: None,
            hung: Vec::new(),
            mishaps,
            receivers: receivers.into(),
            breaks,
        };
        let mut scenario = scenario.staged(rng);
        scenario.peeks_wait = rng.chance(0.5);
        scenario
    }

    /// Whether one thing alone goes wrong.
    #[cfg(test)]
    pub(super) fn is_calm(&self) -> bool {
        self.trial.is_some()
    }

    pub(super) fn receiver(&self, to: To) -> Option<&ReceiverScenario> {
        self.receivers.iter().find(|receiver| receiver.to == to)
    }
}

impl ReceiverScenario {
    fn draw(rng: &mut Rng, to: To, wild: f64, base: Moods) -> Self {
        let batch_max = match to {
            To::Handler => 1,
            To::Batch => 2 + rng.below(8) as usize,
            To::Shared => 1 + rng.below(2) as usize * rng.below(6) as usize,
        };
        let send_timeout = Duration::from_millis(100 + rng.below(900));
        let health = match rng.below(10) {
            0..4 => HealthHabit::Silent,
            4..8 => HealthHabit::Tells,
            8 => HealthHabit::Lies,
            _ => HealthHabit::Hangs,
        };
        let mut rate = |most: f64| if rng.chance(0.5) { most * wild * rng.next_f64() } else { 0.0 };
        let mut moods = Moods {
            fail: rate(0.4),
            reject: rate(0.1),
            defer: rate(0.1),
            unavailable: rate(0.1),
            unknown: rate(0.1),
            panic: rate(0.1),
            hang: rate(0.03),
            ..base
        };
        if to == To::Handler {
            moods.spoil = 0.0;
        } else {
            moods = Moods {
                hang: rate(0.1),
                fail_all: rate(0.2),
                refuse_all: rate(0.1),
                lose_answer: rate(0.1),
                too_few: rate(0.1),
                ..moods
            };
        }
        let many = to != To::Handler && rng.chance(0.3);
        let keeps_order = batch_max > 1 && rng.chance(0.5);
        Self {
            to,
            batch_max,
            keeps_order,
            key_max: if rng.chance(0.5) { 1 + rng.below(4) as usize } else { usize::MAX },
            one_destination: rng.chance(0.5),
            limits_events: !keeps_order && rng.chance(0.5),
            send_timeout,
            concurrent: 10,
            destinations: if many { 2 + rng.below(3) } else { 1 },
            limit: None,
            slow: Duration::ZERO,
            failing_keys: false,
            moods,
            outages: Vec::new(),
            health,
        }
    }

    /// What may go wrong where anything may.
    fn with_troubles(mut self, rng: &mut Rng) -> Self {
        self.outages = (0..rng.below(3)).map(|_| Outage::draw(rng, &self)).collect();
        if self.to != To::Handler && rng.chance(0.15) {
            let lasts_ms = 1000 + rng.below(5000);
            self.limit = Some(Limit::draw(rng, self.destinations, lasts_ms));
        }
        self.slow = Duration::from_millis(rng.below(20));
        self
    }

    /// The one thing that goes wrong with it.
    fn on_trial(mut self, trial: Trial, rng: &mut Rng) -> Self {
        match trial {
            Trial::Outage => {
                let whole = Whole::draw(rng, self.to);
                self.outages.push(Outage::long(rng, whole));
            }
            Trial::LongKey => self.slow = Duration::from_millis(100 + rng.below(200)),
            Trial::OneDestination => {
                self.destinations = 2 + rng.below(3);
                let one = Some(rng.below(self.destinations));
                let whole = Whole::draw_for_one(rng);
                self.outages.push(Outage { destination: one, ..Outage::long(rng, whole) });
            }
            Trial::HangingDestination => {
                self.destinations = 3;
                self.one_destination |= rng.chance(0.5);
                self.concurrent = 4 + rng.below(8) as usize;
                // Where a send mixes destinations, all of it ends with its deadline.
                self.send_timeout = Duration::from_secs(if self.has_one_destination() { 60 } else { 5 });
                let whole = Whole::Hang { effect: rng.chance(0.5) };
                self.outages.push(Outage { destination: Some(0), ..Outage::long(rng, whole) });
            }
            Trial::TooFast => {
                let lasts_ms = 60_000 + rng.below(60_000);
                self.limit = Some(Limit::draw(rng, self.destinations, lasts_ms));
            }
            Trial::Spoilers => self.moods.spoil = 0.1,
            Trial::Rejects => {
                let one = (self.destinations > 1 && rng.chance(0.5)).then_some(0);
                self.outages.push(Outage { destination: one, ..Outage::long(rng, Whole::Reject) });
            }
            Trial::Broken => {
                self.health = HealthHabit::Lies;
                self.outages.push(Outage::long(rng, Whole::Fail));
            }
            Trial::Hangs => self.moods.hang = 0.1,
            _ => {}
        }
        self
    }
}
