//! One process and its lives: started, crashed, stopped, started again.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use postrider_core::{Backoff, rng::Rng};
use postrider_engine::Outbox;

use super::{
    door::Killed,
    faults::FaultyStore,
    gauges::Gauges,
    history::{Happening, History, Name},
    lifecycle::{Change, Lifecycle},
    operate, readiness,
    receiver::{Receiver, To},
    scenario::Scenario,
};

/// The outboxes that are running, by instance: what writers hand their events to.
#[derive(Clone, Default)]
pub(super) struct Outboxes(Arc<Mutex<Vec<Option<Outbox>>>>);

impl Outboxes {
    fn set(&self, instance: usize, outbox: Option<Outbox>) {
        let mut outboxes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if outboxes.len() <= instance {
            outboxes.resize_with(instance + 1, || None);
        }
        if let Some(place) = outboxes.get_mut(instance) {
            *place = outbox;
        }
    }

    /// One that is running, if any is.
    pub(super) fn any(&self, rng: &mut Rng) -> Option<Outbox> {
        let outboxes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let running: Vec<&Outbox> = outboxes.iter().flatten().collect();
        let choice = rng.below(running.len() as u64) as usize;
        running.get(choice).map(|outbox| (*outbox).clone())
    }
}

pub(super) struct Instance {
    pub(super) number: usize,
    pub(super) rng: Rng,
    pub(super) scenario: Scenario,
    pub(super) store: FaultyStore,
    pub(super) receivers: Vec<Receiver>,
    pub(super) history: Arc<History>,
    pub(super) metrics: Arc<Gauges>,
    pub(super) outboxes: Outboxes,
}

/// An instance that is in its last life.
pub(super) struct Running {
    pub(super) outbox: Outbox,
    instance: Instance,
    killed: Killed,
}

impl Running {
    /// An event may still end the process after all else has healed: it is started anew, as an operator would.
    pub(super) async fn restart_if_killed(&mut self) {
        if self.killed.take() {
            self.instance.crash(&self.outbox);
            (self.outbox, self.killed) = self.instance.start().await;
        }
    }
}

impl Instance {
    /// Lives through all lives but the last, and begins that one.
    pub(super) async fn run(mut self) -> Running {
        if let Some(lifecycle) = self.scenario.lifecycle {
            return self.go_through(lifecycle).await;
        }
        let mut lives = self.rng.below(self.scenario.lives + 1);
        loop {
            let (outbox, killed) = self.start().await;
            self.outboxes.set(self.number, Some(outbox.clone()));
            if lives == 0 {
                return Running { outbox, instance: self, killed };
            }
            lives -= 1;
            let was_killed = self.live_a_while(&outbox, &killed).await;
            self.outboxes.set(self.number, None);
            if was_killed || self.rng.chance(0.7) {
                self.crash(&outbox);
            } else {
                self.stop(&outbox).await;
            }
            tokio::time::sleep(Duration::from_millis(self.rng.below(500))).await;
        }
    }

    /// Lives as a trial wants it, and begins its last life.
    async fn go_through(mut self, lifecycle: Lifecycle) -> Running {
        tokio::time::sleep(lifecycle.start(self.number)).await;
        let (mut outbox, mut killed) = self.start().await;
        if let Some(end) = lifecycle.end(self.number) {
            self.outboxes.set(self.number, Some(outbox.clone()));
            tokio::time::sleep(end.at).await;
            self.outboxes.set(self.number, None);
            match end.change {
                Change::Crash => self.crash(&outbox),
                Change::Stop | Change::Join => self.stop(&outbox).await,
            }
            (outbox, killed) = self.start().await;
        }
        self.outboxes.set(self.number, Some(outbox.clone()));
        Running { outbox, instance: self, killed }
    }

    async fn stop(&self, outbox: &Outbox) {
        let report = outbox.shutdown().await;
        let (given_back, interrupted) = (report.given_back, report.interrupted);
        self.history.note(Happening::Stopped { given_back, interrupted });
    }

    fn crash(&self, outbox: &Outbox) {
        outbox.engine().into_iter().for_each(|engine| engine.abort());
        self.history.note(Happening::Crashed);
    }

    async fn start(&mut self) -> (Outbox, Killed) {
        let killed = Killed::default();
        loop {
            let scenario = &self.scenario;
            let name = format!("engine-{}-{}", self.number, self.rng.below(1_000_000));
            let by: Name = name.as_str().into();
            let mut builder = Outbox::builder();
            for receiver in &self.receivers {
                // Routes to one receiver share its door.
                let door = receiver.door(by.clone(), &killed);
                for (event_type, _) in To::TYPES.iter().filter(|(_, to)| *to == receiver.to()) {
                    builder = builder.sink(*event_type, door.clone());
                }
            }
            let started = builder
                .store(self.store.of(&by))
                .metrics(self.metrics.clone())
                .workers(scenario.workers)
                .hot_queue(scenario.hot_queue)
                .cold_queue(scenario.cold_queue)
                .key_queue(scenario.key_queue)
                .handler_timeout(scenario.handler_timeout.unwrap_or(Duration::from_secs(300)))
                .claim_batch(scenario.claim_batch)
                .lease(scenario.lease)
                .poll(Duration::from_millis(5), scenario.poll_max)
                .retry(Backoff::new(Duration::from_millis(20)).max(Duration::from_secs(2)))
                .max_attempts(scenario.max_attempts)
                .retention(scenario.retention)
                // Beyond the end of the run: what only the backstop would find counts as stuck.
                .full_look_every(Duration::from_secs(86_400))
                .drain_timeout(scenario.drain_timeout)
                .unavailable_for(scenario.unavailable_for)
                .instance(name)
                .seed(self.rng.next_u64())
                .start()
                .await;
            match started {
                Ok(outbox) => {
                    killed.set_victim(&outbox);
                    if let Some(refusing) = scenario.refusing {
                        let lasts = refusing.to + scenario.lease + Duration::from_secs(10);
                        readiness::watch(&outbox, &by, lasts, &self.history);
                    }
                    self.history.note(Happening::Started(self.number));
                    return (outbox, killed);
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Lets the engine work, and an operator look after the dead. Says whether an event ended the process.
    async fn live_a_while(&mut self, outbox: &Outbox, killed: &Killed) -> bool {
        for _ in 0..1 + self.rng.below(4) {
            let pause = Duration::from_millis(self.rng.below(600));
            if tokio::time::timeout(pause, killed.wait()).await.is_ok() {
                return true;
            }
            operate(&mut self.rng, self.store.memory(), &self.history, outbox, 0.3).await;
            if self.rng.chance(self.scenario.clock_jump) {
                self.history.note(Happening::ClockJumped);
                self.store.jump(Duration::from_millis(self.rng.below(5000)));
            }
        }
        killed.take()
    }
}
