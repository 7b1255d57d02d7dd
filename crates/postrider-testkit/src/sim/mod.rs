//! The simulator: a whole run of writers, engine and faults, decided by one number.
//!
//! Time is tokio's and paused, so an hour takes a moment; ids, jitter, faults and the fates of events come from the
//! seed; one thread runs everything. So the same seed gives the same history, to the letter, and a seed that breaks a
//! promise breaks it again.
//!
//! ```
//! let report = postrider_testkit::sim::run(42);
//! assert!(report.violations.is_empty(), "{report}");
//! ```
//!
//! # Layout
//!
//! * `scenario`: the numbers of a run, drawn from its seed
//! * `faults`: a store that fails, stalls and loses its replies
//! * `writers`: business transactions, most of which commit
//! * `receiver`: the handler and its moods
//! * `history`: what happened, in order
//! * `check`: the promises, held against the history

mod check;
mod faults;
mod history;
mod receiver;
mod scenario;
mod writers;

use std::{fmt, sync::Arc, time::Duration};

use faults::FaultyStore;
use history::{Happening, History};
use postrider_core::{Backoff, metrics::Recording, rng::Rng, store::EventStatus};
use postrider_engine::{Outbox, memory::MemoryStore};
use scenario::Scenario;
use tokio::sync::watch;

/// What one run came to.
#[derive(Debug)]
pub struct Report {
    /// The seed that decided it.
    pub seed: u64,
    /// Promises that were broken; none in a good run.
    pub violations: Vec<String>,
    /// How much of everything happened, to see that a run was worth its time.
    pub tally: Tally,
    /// A number over the whole history: the same for the same seed.
    pub fingerprint: u64,
    history: String,
}

/// How much of everything happened in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Events whose transaction committed.
    pub committed: usize,
    /// Events whose transaction, or savepoint, was rolled back.
    pub rolled_back: usize,
    /// Times that an event took effect at the receiver.
    pub effects: usize,
    /// Effects beyond the first of an event.
    pub duplicates: usize,
    /// Failed attempts.
    pub failures: usize,
    /// Events that went dead.
    pub dead: usize,
    /// Crashes of the engine.
    pub crashes: usize,
    /// Faults of the database.
    pub faults: usize,
    /// Leases taken.
    pub leases: usize,
    /// Events that were handed over in memory.
    pub hot: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {} promises broken, {:?}", self.seed, self.violations.len(), self.tally)?;
        self.violations.iter().try_for_each(|violation| writeln!(f, "  {violation}"))?;
        write!(f, "history:\n{}", self.history)
    }
}

/// Runs the simulation that belongs to `seed`.
pub fn run(seed: u64) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    match runtime {
        Ok(runtime) => runtime.block_on(World::new(seed).run()),
        Err(error) => Report {
            seed,
            violations: vec![format!("no runtime: {error}")],
            tally: Tally::default(),
            fingerprint: 0,
            history: String::new(),
        },
    }
}

/// Everything in a run that outlives an engine.
struct World {
    seed: u64,
    rng: Rng,
    scenario: Scenario,
    memory: MemoryStore,
    store: FaultyStore,
    history: Arc<History>,
    metrics: Arc<Recording>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::seeded(seed);
        let scenario = Scenario::draw(&mut rng);
        let memory = MemoryStore::new(scenario.lanes);
        let history = Arc::new(History::default());
        let store = FaultyStore::new(memory.clone(), rng.fork(), scenario.faults, history.clone());
        Self { seed, rng, scenario, memory, store, history, metrics: Arc::default() }
    }

    async fn run(mut self) -> Report {
        let (outboxes, current) = watch::channel(None);
        let writers = writers::start(&mut self.rng, &self.scenario, &self.memory, &self.history, current);
        let receiver = receiver::Receiver::new(self.rng.fork(), self.scenario.moods, self.history.clone());
        let mut lives = self.scenario.lives;
        let outbox = loop {
            let outbox = self.start_engine(&receiver).await;
            outboxes.send_replace(Some(outbox.clone()));
            if lives == 0 {
                break outbox;
            }
            lives -= 1;
            self.live_a_while(&outbox).await;
            outboxes.send_replace(None);
            if self.rng.chance(0.7) {
                outbox.engine().into_iter().for_each(|engine| engine.abort());
                self.history.note(Happening::Crashed);
            } else {
                outbox.shutdown().await;
                self.history.note(Happening::Stopped);
            }
        };
        for writer in writers {
            let _ = writer.await;
        }
        self.store.heal();
        receiver.heal();
        self.history.note(Happening::Healed);
        let mut violations = self.drain(&outbox).await;
        outbox.shutdown().await;
        violations.extend(check::promises(&self.history, &self.scenario, &self.rows().await));
        let tally = Tally { hot: self.metrics.snapshot().hot_enqueued, ..self.history.tally() };
        let (fingerprint, history) = self.history.render();
        Report { seed: self.seed, violations, tally, fingerprint, history }
    }

    async fn start_engine(&mut self, receiver: &receiver::Receiver) -> Outbox {
        loop {
            let scenario = &self.scenario;
            let started = Outbox::builder()
                .store(self.store.clone())
                .metrics(self.metrics.clone())
                .otherwise(receiver.handler())
                .workers(scenario.workers)
                .hot_queue(scenario.hot_queue)
                .cold_queue(scenario.cold_queue)
                .claim_batch(scenario.claim_batch)
                .lease(scenario.lease)
                .poll(Duration::from_millis(5), Duration::from_millis(500))
                .retry(Backoff::new(Duration::from_millis(20)).max(Duration::from_secs(2)))
                .max_attempts(scenario.max_attempts)
                .retention(scenario.retention)
                .drain_timeout(Duration::from_secs(1))
                .instance(format!("engine-{}", self.rng.below(1_000_000)))
                .seed(self.rng.next_u64())
                .start()
                .await;
            match started {
                Ok(outbox) => {
                    self.history.note(Happening::Started);
                    return outbox;
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Lets the engine work, and an operator look after the dead.
    async fn live_a_while(&mut self, outbox: &Outbox) {
        for _ in 0..1 + self.rng.below(4) {
            tokio::time::sleep(Duration::from_millis(self.rng.below(600))).await;
            self.operate(outbox, 0.3).await;
        }
    }

    /// Redrives or discards some of the dead.
    async fn operate(&mut self, outbox: &Outbox, share: f64) {
        for letter in self.memory_dead().await {
            if !self.rng.chance(share) {
                continue;
            }
            let ids = [letter];
            // What is recorded before is what the checks allow for; the verb may fail or lose its reply.
            if self.rng.chance(0.5) {
                self.history.note(Happening::Discarding(ids[0].clone()));
                let _ = outbox.discard(&ids).await;
            } else {
                self.history.note(Happening::Redriving(ids[0].clone()));
                let _ = outbox.redrive(&ids).await;
            }
        }
    }

    async fn memory_dead(&self) -> Vec<postrider_core::EventId> {
        use postrider_core::Store as _;
        let dead = self.memory.dead(0, usize::MAX).await.unwrap_or_default();
        dead.into_iter().map(|letter| letter.id).collect()
    }

    /// Waits until nothing is left but the dead and what they hold up; then an operator discards those, and so on.
    async fn drain(&mut self, outbox: &Outbox) -> Vec<String> {
        const ROUNDS: usize = 4000;
        for _ in 0..ROUNDS {
            let rows = self.memory.rows();
            if rows.is_empty() {
                return Vec::new();
            }
            if rows.iter().all(|row| row.status == 3 || row.parked) {
                self.operate(outbox, 1.0).await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let rows = self.memory.rows();
        vec![format!(
            "stuck: {} events are neither delivered nor dead after all faults ended: {rows:?}",
            rows.len()
        )]
    }

    /// Where every event is at the end.
    async fn rows(&self) -> Vec<(postrider_core::EventId, EventStatus)> {
        use postrider_core::Store as _;
        let mut rows = Vec::new();
        for id in self.history.committed_ids() {
            let status = self.memory.status(&id).await.unwrap_or(EventStatus::Absent);
            rows.push((id, status));
        }
        rows
    }
}
