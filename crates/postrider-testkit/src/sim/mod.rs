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
//! * `instance`: one process and its lives: started, crashed, stopped, started again
//! * `faults`: a store that fails, stalls and loses its replies
//! * `writers`: business transactions, most of which commit
//! * `receiver`: the handler and its moods
//! * `history`: what happened, in order
//! * `check`: the promises, held against the history

mod check;
mod faults;
mod history;
mod instance;
mod receiver;
mod scenario;
mod writers;

use std::{fmt, sync::Arc, time::Duration};

use faults::FaultyStore;
use history::{Happening, History};
use instance::{Instance, Outboxes, Running};
use postrider_core::{EventId, Store, metrics::Recording, rng::Rng, store::EventStatus};
use postrider_engine::{Outbox, memory::MemoryStore};
use receiver::Receiver;
use scenario::Scenario;

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
    /// Crashes of engines.
    pub crashes: usize,
    /// Faults of the database.
    pub faults: usize,
    /// Jumps of the database's clock.
    pub jumps: usize,
    /// Crashes that an event brought about.
    pub kills: usize,
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
        // The world is made inside: outside of the runtime its clock would begin at the host's time.
        Ok(runtime) => runtime.block_on(async { World::new(seed).run().await }),
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
        let receiver = Receiver::new(self.rng.fork(), self.scenario.moods, self.history.clone());
        let outboxes = Outboxes::default();
        let writers =
            writers::start(&mut self.rng, &self.scenario, &self.memory, &self.history, outboxes.clone());
        let mut instances = Vec::new();
        for number in 0..self.scenario.instances {
            let instance = Instance {
                number,
                rng: self.rng.fork(),
                scenario: self.scenario.clone(),
                store: self.store.clone(),
                receiver: receiver.clone(),
                history: self.history.clone(),
                metrics: self.metrics.clone(),
                outboxes: outboxes.clone(),
            };
            instances.push(tokio::spawn(instance.run()));
        }
        for writer in writers {
            let _ = writer.await;
        }
        let mut last = Vec::new();
        for instance in instances {
            last.extend(instance.await);
        }
        self.store.heal();
        receiver.heal();
        self.history.note(Happening::Healed);
        let mut violations = self.drain(&receiver, &mut last).await;
        for instance in &last {
            instance.outbox.shutdown().await;
        }
        violations.extend(check::promises(&self.history, &self.scenario, &self.rows().await));
        let tally = Tally { hot: self.metrics.snapshot().hot_enqueued, ..self.history.tally() };
        let (fingerprint, history) = self.history.render();
        Report { seed: self.seed, violations, tally, fingerprint, history }
    }

    /// Waits until nothing is left but the dead and what they hold up; then an operator discards those, and so on.
    async fn drain(&mut self, receiver: &Receiver, running: &mut [Running]) -> Vec<String> {
        const ROUNDS: usize = 4000;
        for _ in 0..ROUNDS {
            let rows = self.memory.rows();
            if rows.is_empty() {
                return Vec::new();
            }
            if rows.iter().all(|row| row.status == 3 || row.parked)
                && let Some(instance) = running.first()
            {
                operate(&mut self.rng, &self.memory, &self.history, &instance.outbox, 1.0).await;
            }
            for instance in running.iter_mut() {
                instance.restart_if_killed(receiver).await;
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
    async fn rows(&self) -> Vec<(EventId, EventStatus)> {
        let mut rows = Vec::new();
        for id in self.history.committed_ids() {
            let status = self.memory.status(&id).await.unwrap_or(EventStatus::Absent);
            rows.push((id, status));
        }
        rows
    }
}

/// Redrives or discards some of the dead.
async fn operate(rng: &mut Rng, memory: &MemoryStore, history: &History, outbox: &Outbox, share: f64) {
    for letter in memory.dead(0, usize::MAX).await.unwrap_or_default() {
        if !rng.chance(share) {
            continue;
        }
        // What is recorded before is what the checks allow for; the verb may fail or lose its reply.
        if rng.chance(0.5) {
            history.note(Happening::Discarding(letter.id.clone()));
            let _ = outbox.discard([letter.id]).await;
        } else {
            history.note(Happening::Redriving(letter.id.clone()));
            let _ = outbox.redrive([letter.id]).await;
        }
    }
}
