//! The simulator: a whole run of writers, engine and faults, decided by one number.
//!
//! Time is tokio's and paused, so an hour takes a moment; ids, jitter, faults and the outcomes of events come from the
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
//! * `instance`: one process and its lives: started, crashed, stopped, started again; `lifecycle`: the lives in a trial that is about them
//! * `faults`: a store that fails, stalls and loses its replies; `commit`: transactions that lose theirs; `mishap`: a database that goes back in
//!   time, has locked rows and refuses outcomes; `store_trouble`: verbs that are refused for a while, and calls that are never answered
//! * `writers`: business transactions, most of which commit
//! * `trial`: runs in which one thing alone goes wrong; `staging`: what they change in their scenario
//! * `receiver`: the handler and the sinks, with their moods, `outage`s, `destinations` and limits (`too_fast`); `door`: one of them as an
//!   engine sees it
//! * `pausing`: an operator who pauses and resumes
//! * `history`: what happened, in order; `watch`, `gauges` and `readiness`: what is seen in passing; `tally`: how much of everything there was
//! * `check`: the promises, held against the history
//! * `mutated_store`: stores with a defect, which the checks must find

mod check;
mod commit;
mod destinations;
mod door;
mod faults;
mod gauges;
mod history;
mod instance;
mod lifecycle;
mod mishap;
mod mutated_store;
mod outage;
mod pausing;
mod readiness;
mod receiver;
mod scenario;
mod staging;
mod store_trouble;
mod tally;
mod too_fast;
mod trial;
mod watch;
mod writers;

use std::{fmt, sync::Arc, time::Duration};

use faults::FaultyStore;
use gauges::Gauges;
use history::{Entry, Happening, History};
use instance::{Instance, Outboxes, Running};
use mishap::Database;
use postrider_core::{EventId, Store, rng::Rng, store::EventStatus};
use postrider_engine::{Outbox, memory::MemoryStore};
use receiver::Receiver;
use scenario::Scenario;
pub use tally::Tally;

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
    receivers: Vec<Receiver>,
    history: Arc<History>,
    metrics: Arc<Gauges>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::seeded(seed);
        let scenario = Scenario::draw(&mut rng);
        let memory = MemoryStore::new(scenario.lanes);
        memory.return_at_most(scenario.returning);
        memory.scan_at_most(scenario.scanned);
        let history = Arc::new(History::default());
        let store = FaultyStore::new(memory.clone(), rng.fork(), &scenario, history.clone());
        let metrics = Arc::new(Gauges::new(history.clone(), scenario.hot_queue, scenario.cold_queue));
        let timeout = scenario.handler_timeout;
        let receiver = |each: &scenario::ReceiverScenario| {
            Receiver::new(rng.fork(), each.clone(), timeout, history.clone())
        };
        let receivers = scenario.receivers.iter().map(receiver).collect();
        Self { seed, rng, scenario, memory, store, receivers, history, metrics }
    }

    async fn run(mut self) -> Report {
        let outages = outage::note(&self.scenario, &self.history);
        let breaks = pausing::start(&self.scenario, &self.memory, &self.history);
        let (database, mishaps) =
            Database::start(&mut self.rng, self.scenario.mishaps, &self.memory, &self.history);
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
                receivers: self.receivers.clone(),
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
        let trouble = self.scenario.refusing.map(|refusing| tokio::spawn(refusing.over(self.scenario.lease)));
        for each in outages.into_iter().chain(breaks).chain(mishaps).chain(trouble) {
            let _ = each.await;
        }
        self.store.heal();
        self.receivers.iter().for_each(Receiver::heal);
        self.history.note(Happening::Healed);
        let mut violations = self.drain("but what is refused", &mut last, Some(&database)).await;
        self.receivers.iter().for_each(Receiver::forgive);
        database.forgive();
        violations.extend(self.drain("at all", &mut last, None).await);
        for instance in &last {
            instance.outbox.shutdown().await;
        }
        let entries = self.history.entries();
        violations.extend(check::promises(&entries, &self.scenario, &self.rows(&entries).await));
        let tally =
            Tally { hot: self.metrics.hot(), breakers: self.metrics.breakers(), ..self.history.tally() };
        let (fingerprint, history) = self.history.render();
        Report { seed: self.seed, violations, tally, fingerprint, history }
    }

    /// Waits until nothing is left but the dead and what they hold up; then an operator discards those, and so on. What a receiver or the
    /// database refuses for good may be excused.
    async fn drain(
        &mut self,
        of_what: &str,
        running: &mut [Running],
        excused: Option<&Database>,
    ) -> Vec<String> {
        const PAUSE: Duration = Duration::from_millis(250);
        const ROUNDS: usize = 2400;
        const QUIET_ROUNDS: usize = 40;
        let (mut rows, mut quiet) = (Vec::new(), 0);
        for _ in 0..ROUNDS {
            let before = rows.len();
            rows = self.memory.rows();
            if let Some(database) = excused {
                let mut excused = database.unsettled();
                excused.extend(self.receivers.iter().flat_map(Receiver::poisons));
                rows.retain(|row| !excused.contains(&row.id));
            }
            if rows.is_empty() {
                return Vec::new();
            }
            quiet = if rows.len() == before { quiet + 1 } else { 0 };
            // What stands behind the dead may not be known to, as long as nobody has to look at it.
            if (quiet >= QUIET_ROUNDS || rows.iter().all(|row| row.status == 3 || row.parked))
                && let Some(instance) = running.first()
            {
                operate(&mut self.rng, &self.memory, &self.history, &instance.outbox, 1.0).await;
            }
            for instance in running.iter_mut() {
                instance.restart_if_killed().await;
            }
            tokio::time::sleep(PAUSE).await;
        }
        vec![format!("stuck: nothing {of_what} should be left after all faults ended, but there is {rows:?}")]
    }

    /// Where every event is at the end.
    async fn rows(&self, entries: &[Entry]) -> Vec<(EventId, EventStatus)> {
        let mut rows = Vec::new();
        for entry in entries {
            if let Happening::Committed { id, .. } = &entry.what {
                let status = self.memory.status(id).await.unwrap_or(EventStatus::Absent);
                rows.push((id.clone(), status));
            }
        }
        rows
    }
}

/// Redrives or discards some of the dead.
async fn operate(rng: &mut Rng, memory: &MemoryStore, history: &History, outbox: &Outbox, share: f64) {
    for letter in memory.dead(0, usize::MAX).await.unwrap_or_default() {
        history.note(Happening::Dead(letter.id.clone()));
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
