//! What a trial of processes, of the database, or of single events changes in its scenario.

use std::time::Duration;

use postrider_core::rng::Rng;

use super::{
    lifecycle::{Change, Lifecycle},
    receiver::To,
    scenario::{HealthHabit, MANY_ROWS, ReceiverScenario, Scenario},
    store_trouble::{Hung, Refusing},
    trial::Trial,
};

impl Scenario {
    /// Sets the stage for its trial.
    pub(super) fn staged(mut self, rng: &mut Rng) -> Self {
        let Some((trial, to)) = self.trial else { return self };
        match trial {
            Trial::FailingKeys => {
                // So many attempts that none of the failing events is dead before the end.
                self.max_attempts = 1000;
                self.keys = 30 + rng.below(10);
                self.write_for_long(2, 2000);
            }
            Trial::Suspects => {
                self.lifecycle = Some(Lifecycle::draw(Change::Crash, rng));
                self.instances = 1 + rng.below(2) as usize;
                self.long_key = Some((to.a_type(rng), 60 + rng.below(40)));
                // When an event was written tells whether it can be a suspect.
                self.commits_late = 0.0;
                self.scanned = MANY_ROWS;
                self.write_for_long(3, 1000);
            }
            Trial::Stop | Trial::Join => {
                let change = if trial == Trial::Stop { Change::Stop } else { Change::Join };
                self.lifecycle = Some(Lifecycle::draw(change, rng));
                self.drain_timeout = Duration::from_secs(if trial == Trial::Stop { 20 } else { 1 });
                (self.lanes, self.instances) = (8, 2);
                self.long_key = Some((to.a_type(rng), 2));
                self.write_for_long(3, 400);
            }
            Trial::RefusedAlone => {
                let limit = if rng.chance(0.3) { 0 } else { 1000 + rng.below(2000) };
                self.unavailable_for = Duration::from_millis(limit);
                // Each process has a clock of its own.
                self.instances = 1;
                self.write_for_long(4, 1600);
            }
            Trial::HungVerbs => {
                self.lease = Duration::from_secs(6);
                self.hung = (0..1 + rng.below(2)).map(|_| Hung::draw(rng)).collect();
            }
            Trial::Peeks => {
                self.peeks = true;
                self.poll_max = Duration::from_secs(60);
                self.commits_late = 0.0;
                self.write_for_long(1, 30_000);
            }
            Trial::StoreRefuses => {
                // Who has no lane claims nothing.
                self.lanes = 8;
                self.refusing = Some(Refusing::draw(rng, self.lease));
            }
            _ => {}
        }
        self
    }

    /// So many writers pause for up to so many milliseconds between their transactions.
    fn write_for_long(&mut self, writers: u64, pause_ms_max: u64) {
        self.writers = writers;
        self.writer_pause = Duration::from_millis(pause_ms_max);
        self.transactions_each = self.transactions_each.max(15);
    }
}

impl ReceiverScenario {
    /// What a trial changes in the receiver that it happens to.
    pub(super) fn staged(mut self, trial: Trial, rng: &mut Rng) -> Self {
        match trial {
            Trial::FailingKeys => {
                (self.destinations, self.health) = (1, HealthHabit::Lies);
                self.failing_keys = true;
            }
            Trial::Suspects => self.slow = Duration::from_millis(100 + rng.below(200)),
            Trial::Stop | Trial::Join => {
                // A destination has only one send under way until it has delivered something.
                self.destinations = 1;
                self.slow = Duration::from_millis(15_000 + rng.below(10_000));
                self.send_timeout = Duration::from_secs(60);
            }
            Trial::RefusedAlone => self.moods.poison = 0.3,
            _ => {}
        }
        self
    }

    /// Whether it fails all events of this key, whatever happens.
    pub(super) fn fails(&self, to: To, key: Option<&str>) -> bool {
        let hash = |key: &str| key.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31) ^ u64::from(byte));
        self.failing_keys && self.to == to && key.is_some_and(|key| !hash(key).is_multiple_of(4))
    }
}
