//! The numbers of a run, drawn from its seed.

use std::time::Duration;

use postrider_core::rng::Rng;

use super::{mishap::Mishaps, outage::Outage, pausing::Break, receiver::To};

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
    pub(super) send_timeout: Duration,
    pub(super) moods: Moods,
    pub(super) outages: Vec<Outage>,
    pub(super) health: HealthHabit,
}

#[derive(Debug, Clone)]
pub(super) struct Scenario {
    /// Nothing goes wrong but one outage, or nothing but the pause of one sink: what that does to the others can be told.
    pub(super) calm: bool,
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
    /// How often a transaction stays open for long after it wrote.
    pub(super) commits_late: f64,
    /// How often an engine is crashed or stopped, at most, before it is left to drain.
    pub(super) lives: u64,
    pub(super) workers: usize,
    pub(super) hot_queue: usize,
    pub(super) cold_queue: usize,
    pub(super) claim_batch: usize,
    pub(super) max_attempts: u32,
    pub(super) lease: Duration,
    /// Whether the store lets engines peek. In simulated time that is most of what happens, so it is not always.
    pub(super) peeks: bool,
    pub(super) retention: Duration,
    pub(super) faults: FaultRates,
    pub(super) mishaps: Mishaps,
    pub(super) receivers: Vec<ReceiverScenario>,
    /// What an operator pauses.
    pub(super) breaks: Vec<Break>,
}

impl Scenario {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let calm = rng.chance(0.2);
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
        let kill = rate(0.05);
        let poison = rate(0.1);
        let mishaps = if calm { Mishaps::default() } else { Mishaps::draw(rng) };
        if mishaps.times_back > 0 {
            // What was settled in the lost future must arrive after it.
            faults.stall_settle = 0.3;
        }
        let unlucky = rng.below(3);
        let keys = 1 + rng.below(12);
        let unlucky_is_paused = rng.chance(0.5);
        let breaks = match To::ALL.get(unlucky as usize).filter(|_| unlucky_is_paused) {
            Some(&to) if calm => vec![Break::long(rng, to)],
            // What an operator said would be lost with the rest.
            _ if calm || mishaps.times_back > 0 => Vec::new(),
            _ => (0..rng.below(4)).map(|_| Break::draw(rng, keys)).collect(),
        };
        let poisoned = if rng.chance(0.5) { To::Batch } else { To::Shared };
        let receivers = (0..)
            .zip(To::ALL)
            .map(|(number, to)| {
                let outages = match (calm, number == unlucky) {
                    (true, true) => u64::from(!unlucky_is_paused),
                    (true, false) => 0,
                    (false, _) => rng.below(3),
                };
                let poison = if to == poisoned { poison } else { 0.0 };
                receiver(rng, to, wild, Moods { kill, poison, ..Moods::default() }, calm, outages)
            })
            .collect();
        // What waits in memory behind an event that cannot be sent, or settled, takes room from others. Where it matters who is held up
        // by whom, there is room enough.
        let queue = match (calm, poison > 0.0 || mishaps.leave_unsettled()) {
            (true, _) => 1000,
            (false, true) => 24,
            (false, false) => 1,
        };
        Self {
            calm,
            lanes: 1 << rng.below(4),
            returning: 1 << rng.below(5),
            // A claim that reads fewer rows than are refused for good would try those alone on a receiver that is down.
            scanned: if poison > 0.0 { 64 } else { 2 << rng.below(6) },
            instances: 1 + rng.below(3) as usize,
            clock_jump: if !calm && rng.chance(0.4) { 0.3 } else { 0.0 },
            keys,
            writers: 1 + rng.below(4),
            transactions_each: 5 + rng.below(20),
            commits_late: if rng.chance(0.4) { 0.1 } else { 0.0 },
            lives: if calm { 0 } else { rng.below(5) },
            workers: 1 + rng.below(5) as usize,
            hot_queue: 1 + rng.below(20) as usize,
            cold_queue: queue + rng.below(40) as usize,
            claim_batch: 1 + rng.below(20) as usize,
            max_attempts: 1 + rng.below(5) as u32,
            lease: Duration::from_millis(300 + rng.below(2000)),
            peeks: rng.chance(0.1),
            retention: if rng.chance(0.5) { Duration::ZERO } else { Duration::from_secs(3600) },
            faults,
            mishaps,
            receivers,
            breaks,
        }
    }
}

fn receiver(rng: &mut Rng, to: To, wild: f64, base: Moods, calm: bool, outages: u64) -> ReceiverScenario {
    let batch_max = match to {
        To::Handler => 1,
        To::Batch => 2 + rng.below(8) as usize,
        To::Shared => 1 + rng.below(2) as usize * rng.below(6) as usize,
    };
    let send_timeout = Duration::from_millis(100 + rng.below(900));
    let outages = (0..outages).map(|_| Outage::draw(rng, to, calm)).collect();
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
    if to != To::Handler {
        moods = Moods {
            hang: rate(0.1),
            fail_all: rate(0.2),
            refuse_all: rate(0.1),
            lose_answer: rate(0.1),
            too_few: rate(0.1),
            ..moods
        };
    }
    let keeps_order = batch_max > 1 && rng.chance(0.5);
    ReceiverScenario { to, batch_max, keeps_order, send_timeout, moods, outages, health }
}
