//! Owns what is known of the destinations of a receiver: whether each is up, how fast it is, and whether it
//! takes anything at all.
//!
//! A sink may have many destinations: topics, streams, exchanges, URLs. One of them may be down, slow or broken
//! while the others work. Their number is bounded; the ones beyond it share one entry.

use std::{collections::HashMap, num::NonZeroU64, time::Duration};

use postrider_core::rng::Rng;
use tokio::time::Instant;

use crate::{
    brake::{AfterRejection, Brake},
    breaker::Breaker,
    delivery_history::{DeliveryHistory, SOON},
    faulty_keys::{FAILING_KEYS, FaultyKeys},
    hash::{self, QuickState},
    health_checks::HealthChecks,
    mutations::{self, Mutation},
    throttle::Throttle,
};

/// Most destinations of one receiver that have entries of their own.
const NAMED_MAX: usize = 256;

/// Most further destinations whose pace is known, because they asked for time.
const PACED_MAX: usize = 256;

/// A destination without traffic for this long may be forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

/// How often unused destinations are looked for at most.
const TIDIED_EVERY: Duration = Duration::from_secs(10);

/// Shortest and longest wait for a destination that is down: the longer it has been down, the longer.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Events come back this far apart, and none later than the maximum.
const TURN: Duration = Duration::from_millis(2);
const TURNS_MAX: Duration = Duration::from_secs(600);

/// A destination's name, hashed.
pub(crate) type DestinationId = NonZeroU64;

/// Returns the hash of a name.
pub(crate) fn destination_id(text: &str) -> DestinationId {
    NonZeroU64::MIN | hash::of_key(text)
}

/// Whether an event may go to a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    /// One event, alone, to see whether it is up again.
    Probe,
    /// Not now: the event waits elsewhere for this long.
    Wait(Duration),
}

#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) breaker: Breaker,
    pub(crate) throttle: Throttle,
    health_checks: HealthChecks,
    /// Since when it is down, and whether other events than probes wait for it.
    down_since: Option<Instant>,
    others_wait: bool,
    /// When the last of the events that wait for it comes back.
    turns_until: Option<Instant>,
    /// The key of the last event delivered here, when that was, and when the last event of another key was
    /// delivered. Both moments are counts of the receiver's deliveries.
    last_key: u64,
    last_at: u64,
    others_at: u64,
    /// Keys that failed since the last delivery, and how many failures.
    failing: Vec<u64>,
    failures: u32,
    faulty_keys: FaultyKeys,
    history: DeliveryHistory,
    brake: Brake,
    used_at: Option<Instant>,
}

impl Destination {
    pub(crate) fn new() -> Self {
        Self {
            breaker: Breaker::new(),
            throttle: Throttle::new(),
            health_checks: HealthChecks::default(),
            down_since: None,
            others_wait: false,
            turns_until: None,
            last_key: 0,
            last_at: 0,
            others_at: 0,
            failing: Vec::new(),
            failures: 0,
            faulty_keys: FaultyKeys::default(),
            history: DeliveryHistory::default(),
            brake: Brake::default(),
            used_at: None,
        }
    }

    /// A new one. If another process found that the receiver rejects everything, its first failure is enough.
    fn inheriting(inherits: bool) -> Self {
        let mut destination = Self::new();
        if inherits {
            destination.brake.inherit();
        }
        destination
    }

    /// Whether it had traffic recently.
    fn is_used(&self, now: Instant) -> bool {
        self.used_at.is_some_and(|at| now.saturating_duration_since(at) < FORGOTTEN_AFTER)
    }

    /// Whether nothing is known against it.
    fn is_plain(&self) -> bool {
        self.breaker.is_closed() && !self.throttle.is_limited() && self.brake.is_idle()
    }

    /// Records a delivered event with the receiver's count of deliveries.
    pub(crate) fn delivered(&mut self, key: u64, count: u64, sent_at: Instant) {
        self.history.delivered(key, sent_at);
        if key != self.last_key {
            (self.others_at, self.last_key) = (self.last_at, key);
        }
        self.last_at = count;
        self.brake.delivered(key);
        self.faulty_keys.delivered(key);
        self.answered();
    }

    /// Returns the receiver's count of deliveries at the last one here.
    pub(crate) fn last_at(&self) -> u64 {
        self.last_at
    }

    /// Records a sign that it works, whatever it says of the event.
    pub(crate) fn answered(&mut self) {
        self.failing.clear();
        self.failures = 0;
        (self.down_since, self.others_wait, self.turns_until) = (None, false, None);
        self.breaker.answered();
    }

    /// Whether an event of another key was delivered since.
    pub(crate) fn is_alive_for(&self, key: u64, since: u64) -> bool {
        let last_of_others = if key == self.last_key { self.others_at } else { self.last_at };
        last_of_others > since || mutations::active(Mutation::OutageCounts)
    }

    /// Whether it is known to have worked for others when an event of this key was sent. An event that failed
    /// quickly was sent just now.
    pub(crate) fn worked_for_others(&self, key: u64, sent_at: Instant, now: Instant) -> bool {
        now.saturating_duration_since(sent_at) < SOON || self.history.worked_for_others(key, sent_at)
    }

    /// Whether other keys have failed since the last delivery and are not known to be faulty.
    pub(crate) fn fails_for_others(&self, key: u64) -> bool {
        self.faulty_keys.accusing_beside(key) > 0
    }

    /// Records a failure of an event while others were delivered.
    pub(crate) fn failed_beside_others(&mut self, key: u64) {
        self.faulty_keys.failed(key);
    }

    /// Records a failure of unknown cause. Returns how many there were in a row, and whether they are an
    /// outage.
    pub(crate) fn failed(&mut self, key: u64) -> (u32, bool) {
        self.failures = self.failures.saturating_add(1);
        if self.faulty_keys.failed(key) && !self.failing.contains(&key) {
            self.failing.push(key);
        }
        (self.failures, self.failing.len() >= FAILING_KEYS)
    }

    /// Whether so many other keys failed since the last delivery that it is an outage.
    pub(crate) fn is_out_for_others(&self, key: u64) -> bool {
        self.faulty_keys.accusing_beside(key) >= FAILING_KEYS
    }

    /// Records that it was unavailable for an event. Returns whether the event's key is known to be faulty.
    pub(crate) fn refused(&mut self, key: u64) -> bool {
        self.faulty_keys.failed(key);
        self.is_faulty(key)
    }

    /// Whether events of this key are known to fail while others are delivered.
    pub(crate) fn is_faulty(&self, key: u64) -> bool {
        self.faulty_keys.is_faulty(key)
    }

    /// Records that it rejected an event. Returns what becomes of the event.
    pub(crate) fn rejected(&mut self, key: u64) -> AfterRejection {
        self.brake.rejected(key)
    }

    /// Records an event that used up its attempts. Returns whether all do.
    pub(crate) fn exhausted(&mut self, key: u64) -> bool {
        self.brake.exhausted(key)
    }

    pub(crate) fn rejects_everything(&self) -> bool {
        self.brake.holds()
    }

    /// Lets rejected events die on an operator's word, or no longer.
    fn allow_rejections(&mut self, may: bool) {
        if may && self.brake.holds() {
            self.breaker.answered();
        }
        self.brake.release(may);
    }

    /// Opens its breaker. Returns for how long; tried events come after those that wait, since they may be what
    /// it objects to.
    pub(crate) fn down(&mut self, healthy: bool, now: Instant, rng: &mut Rng) -> Duration {
        self.failing.clear();
        self.down_since.get_or_insert(now);
        let pause = self.breaker.refused(healthy, now, rng);
        if self.others_wait { pause + spread_out(self.wait(now + pause), u64::MAX) } else { pause }
    }

    /// Returns how long an event waits while it is down.
    fn wait(&self, now: Instant) -> Duration {
        let down_for = self.down_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let opens = self.breaker.opens_at(now).map_or(Duration::ZERO, |at| at - now);
        (down_for / 2).clamp(WAIT_MIN, WAIT_MAX).max(opens.min(WAIT_MAX))
    }

    /// Closes its breaker: the receiver is down as a whole, and its breaker stands for all.
    fn covered(&mut self) {
        self.breaker.answered();
        (self.down_since, self.others_wait, self.turns_until) = (None, false, None);
    }

    /// Returns whether an event may go now, or how long it waits. `spread` separates events that wait together.
    fn gate(&mut self, spread: u64, now: Instant) -> Readiness {
        if !self.breaker.lets_through(now) {
            self.others_wait = true;
            return Readiness::Wait(self.turn(spread, now));
        }
        if self.throttle.opens_at(now).is_some() {
            return Readiness::Wait(self.throttle.next_turn(1, spread, now));
        }
        if self.breaker.is_closed() { Readiness::Ready } else { Readiness::Probe }
    }

    /// Returns how long an event waits for its turn to come back.
    fn turn(&mut self, spread: u64, now: Instant) -> Duration {
        let wait = self.wait(now);
        let turn = self.turns_until.map_or(now + wait, |until| until.max(now + wait));
        self.turns_until = Some(turn + TURN);
        let later = spread_out(wait, spread) - wait;
        (turn.saturating_duration_since(now) + later).min(TURNS_MAX)
    }
}

/// Returns up to half as long again, so that not all come back at once.
fn spread_out(wait: Duration, spread: u64) -> Duration {
    wait + wait.mul_f64((spread % 64) as f64 / 128.0)
}

/// The destinations of one receiver.
#[derive(Debug)]
pub(crate) struct Destinations {
    /// The only one of a receiver without names, and the one shared by those beyond the limit.
    only: Destination,
    named: HashMap<DestinationId, Destination, QuickState>,
    /// The paces of those that share an entry and have asked for time.
    paced: HashMap<DestinationId, Throttle, QuickState>,
    /// Whether another process reported that the receiver rejects everything, and nothing was delivered since.
    inherits: bool,
    /// Whether something was known against one of them at the last look.
    troubled: bool,
    /// When unused ones were last forgotten.
    tidied_at: Option<Instant>,
}

impl Destinations {
    pub(crate) fn new() -> Self {
        Self {
            only: Destination::new(),
            named: HashMap::default(),
            paced: HashMap::default(),
            inherits: false,
            troubled: false,
            tidied_at: None,
        }
    }

    /// Whether there is only one.
    pub(crate) fn is_one(&self) -> bool {
        self.named.is_empty()
    }

    /// Returns the health checks of one. A name without an entry has its own.
    pub(crate) fn health_checks(&self, name: Option<DestinationId>) -> HealthChecks {
        match name {
            Some(name) => self.named.get(&name).map(|known| known.health_checks.clone()).unwrap_or_default(),
            None => self.only.health_checks.clone(),
        }
    }

    pub(crate) fn only(&self) -> &Destination {
        &self.only
    }

    pub(crate) fn only_mut(&mut self) -> &mut Destination {
        &mut self.only
    }

    pub(crate) fn of(&self, name: Option<DestinationId>) -> &Destination {
        name.and_then(|name| self.named.get(&name)).unwrap_or(&self.only)
    }

    /// Returns the entry of a name, and creates it if there is room.
    pub(crate) fn of_mut(&mut self, name: Option<DestinationId>, now: Instant) -> &mut Destination {
        let Some(name) = name else {
            self.only.used_at = Some(now);
            return &mut self.only;
        };
        if self.named.len() >= NAMED_MAX && !self.named.contains_key(&name) {
            self.forget_unused(now);
        }
        let destination = if self.named.len() < NAMED_MAX || self.named.contains_key(&name) {
            let inherits = self.inherits;
            self.named.entry(name).or_insert_with(|| Destination::inheriting(inherits))
        } else {
            &mut self.only
        };
        destination.used_at = Some(now);
        destination
    }

    /// Makes room for another name. Looking at all of them for each event would cost more than sending it.
    fn forget_unused(&mut self, now: Instant) {
        if self.tidied_at.is_none_or(|at| now.saturating_duration_since(at) >= TIDIED_EVERY) {
            self.tidied_at = Some(now);
            self.named.retain(|_, known| known.is_used(now) || known.rejects_everything());
        }
    }

    /// Whether it shares an entry, because there are too many to tell apart. One that nothing is known of yet does not.
    pub(crate) fn is_shared(&self, name: Option<DestinationId>) -> bool {
        name.is_some_and(|name| self.named.len() >= NAMED_MAX && !self.named.contains_key(&name))
    }

    /// Returns the pace of a destination.
    pub(crate) fn throttle(&self, name: Option<DestinationId>) -> &Throttle {
        let own = name.filter(|_| self.is_shared(name)).and_then(|name| self.paced.get(&name));
        own.unwrap_or_else(|| &self.of(name).throttle)
    }

    pub(crate) fn throttle_mut(&mut self, name: Option<DestinationId>, now: Instant) -> &mut Throttle {
        match name.filter(|known| self.is_shared(name) && self.paced.contains_key(known)) {
            Some(name) => self.paced.entry(name).or_insert_with(Throttle::new),
            None => &mut self.of_mut(name, now).throttle,
        }
    }

    /// Returns the pace of a destination that asks for time. None if it shares an entry and too many of those
    /// have asked before.
    pub(crate) fn throttle_of_its_own(
        &mut self,
        name: Option<DestinationId>,
        now: Instant,
    ) -> Option<&mut Throttle> {
        self.note_trouble();
        if let Some(name) = name.filter(|_| self.is_shared(name)) {
            if self.paced.len() >= PACED_MAX && !self.paced.contains_key(&name) {
                self.paced.retain(|_, throttle| throttle.opens_at(now).is_some());
                if self.paced.len() >= PACED_MAX {
                    return None;
                }
            }
            return Some(self.paced.entry(name).or_insert_with(Throttle::new));
        }
        Some(&mut self.of_mut(name, now).throttle)
    }

    /// Records that something is known against one of them.
    pub(crate) fn note_trouble(&mut self) {
        self.troubled = true;
    }

    /// Whether something is known against any of them, so that every event needs a check.
    pub(crate) fn are_troubled(&mut self) -> bool {
        if self.troubled {
            let is_limited = self.paced.values().any(Throttle::is_limited);
            self.troubled =
                is_limited || !self.only.is_plain() || self.named.values().any(|known| !known.is_plain());
        }
        self.troubled && !self.is_one()
    }

    /// Returns whether an event may go to this destination now.
    pub(crate) fn gate(&mut self, name: Option<DestinationId>, spread: u64, now: Instant) -> Readiness {
        match self.of_mut(name, now).gate(spread, now) {
            Readiness::Ready if self.throttle(name).opens_at(now).is_some() => {
                Readiness::Wait(self.throttle_mut(name, now).next_turn(1, spread, now))
            }
            gate => gate,
        }
    }

    /// Whether the only one is down, or all with recent traffic.
    pub(crate) fn are_all_down(&self, now: Instant) -> bool {
        let is_down = |known: &Destination| !known.breaker.is_closed();
        if self.is_one() {
            return true;
        }
        // One alone says nothing of others that had no traffic yet, such as after a start.
        let used: Vec<&Destination> = self.named.values().filter(|known| known.is_used(now)).collect();
        used.len() > 1 && used.into_iter().all(is_down) && (!self.only.is_used(now) || is_down(&self.only))
    }

    /// Closes their breakers: the receiver is down as a whole, and its breaker stands for all.
    pub(crate) fn cover(&mut self) {
        self.only.covered();
        self.named.values_mut().for_each(Destination::covered);
    }

    /// Takes over that the receiver rejects everything, as another process reported.
    pub(crate) fn inherit(&mut self) {
        self.inherits = true;
        self.all_mut().for_each(|known| known.brake.inherit());
    }

    /// Whether that was taken over, and nothing was delivered since.
    pub(crate) fn inherits(&self) -> bool {
        self.inherits
    }

    /// Ends what was taken over: something was delivered.
    pub(crate) fn end_inheritance(&mut self) {
        if std::mem::take(&mut self.inherits) {
            self.all_mut().for_each(|known| known.brake.end_inheritance());
        }
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Destination> {
        std::iter::once(&mut self.only).chain(self.named.values_mut())
    }

    pub(crate) fn allow_rejections(&mut self, may: bool) {
        self.inherits &= !may;
        self.only.allow_rejections(may);
        self.named.values_mut().for_each(|known| known.allow_rejections(may));
    }

    pub(crate) fn rejects_everything(&self) -> bool {
        self.only.rejects_everything() || self.named.values().any(Destination::rejects_everything)
    }
}
