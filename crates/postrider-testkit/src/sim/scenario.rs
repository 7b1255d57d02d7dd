//! The numbers of a run, drawn from its seed.

use std::time::Duration;

use postrider_core::rng::Rng;

/// How often the store misbehaves, for each call.
#[derive(Debug, Clone, Copy)]
pub(super) struct FaultRates {
    /// Fails without effect.
    pub(super) refuse: f64,
    /// Takes effect, and the reply is lost.
    pub(super) lose_reply: f64,
    /// Takes long, at times longer than a lease.
    pub(super) stall: f64,
}

/// How often the receiver is in which mood, for each attempt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moods {
    pub(super) fail: f64,
    pub(super) panic: f64,
    pub(super) reject: f64,
    pub(super) defer: f64,
    pub(super) unavailable: f64,
    /// It took effect and the answer is that nobody knows.
    pub(super) unknown: f64,
    pub(super) hang: f64,
    /// For each event: it ends the process whenever it is delivered.
    pub(super) kill: f64,
}

#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) lanes: u32,
    /// How many engines there are at once.
    pub(super) instances: usize,
    /// How often the database's clock jumps forward, for each look.
    pub(super) clock_jump: f64,
    pub(super) keys: u64,
    pub(super) writers: u64,
    pub(super) transactions_each: u64,
    /// How often an engine is crashed or stopped, at most, before it is left to drain.
    pub(super) lives: u64,
    pub(super) workers: usize,
    pub(super) hot_queue: usize,
    pub(super) cold_queue: usize,
    pub(super) claim_batch: usize,
    pub(super) max_attempts: u32,
    pub(super) lease: Duration,
    pub(super) retention: Duration,
    pub(super) faults: FaultRates,
    pub(super) moods: Moods,
}

impl Scenario {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        // Calm runs and wild ones: a bug may need either to show itself.
        let wild = rng.next_f64();
        let mut rate = |most: f64| if rng.chance(0.5) { most * wild * rng.next_f64() } else { 0.0 };
        let faults = FaultRates { refuse: rate(0.2), lose_reply: rate(0.1), stall: rate(0.05) };
        let moods = Moods {
            fail: rate(0.5),
            panic: rate(0.1),
            reject: rate(0.1),
            defer: rate(0.1),
            unavailable: rate(0.1),
            unknown: rate(0.1),
            hang: rate(0.02),
            kill: rate(0.05),
        };
        Self {
            lanes: 1 << rng.below(4),
            instances: 1 + rng.below(3) as usize,
            clock_jump: if rng.chance(0.3) { 0.2 } else { 0.0 },
            keys: 1 + rng.below(12),
            writers: 1 + rng.below(4),
            transactions_each: 5 + rng.below(20),
            lives: rng.below(5),
            workers: 1 + rng.below(5) as usize,
            hot_queue: 1 + rng.below(20) as usize,
            cold_queue: 1 + rng.below(40) as usize,
            claim_batch: 1 + rng.below(20) as usize,
            max_attempts: 1 + rng.below(5) as u32,
            lease: Duration::from_millis(300 + rng.below(2000)),
            retention: if rng.chance(0.5) { Duration::ZERO } else { Duration::from_secs(3600) },
            faults,
            moods,
        }
    }
}
