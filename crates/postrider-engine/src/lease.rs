//! Keeps the leases: renews those that are held and balances the lanes between instances.
//!
//! **State:** the leases in the buffer, each with a local deadline. **Term:** a lease holds for `lease` on the
//! database's clock, and is renewed every third of that. Locally it counts from the moment before the renewal
//! was sent, less a tenth. So this side considers it ended before the database does, as long as the database's
//! clock does not jump. **When it fails:** a failed renewal is retried. Past the deadline nothing of the lane
//! is sent, and running sends can settle only if nobody has taken the lane. A lane whose row another session
//! has locked is retried until its lease is about to end, and then it alone is given up.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use postrider_core::{
    rng::Rng,
    sink::error_chain,
    store::{Lane, Lease, LeaseRequest, Seq},
};
use tokio::time::Instant;
use tracing::{debug, error, warn};

use crate::{catch::catch, lock, shared::Shared, store_timeout::bounded};

/// Longest wait before something that failed, was locked or ran out elsewhere is retried.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// How often locked lanes are logged at most.
const WARN_EVERY: Duration = Duration::from_secs(60);

pub(crate) struct LeaseKeeper {
    shared: Arc<Shared>,
    rng: Rng,
    warned_of_locks: Option<Instant>,
}

/// The result of asking for lanes.
struct LaneBalance {
    /// When the next lane of another instance may be free.
    next_expiry: Option<Duration>,
    /// Whether free lanes are locked.
    locked: bool,
}

impl LaneBalance {
    const CONTENT: Self = Self { next_expiry: None, locked: false };
}

impl LeaseKeeper {
    pub(crate) fn new(shared: Arc<Shared>, rng: Rng) -> Self {
        Self { shared, rng, warned_of_locks: None }
    }

    /// Renews the held lanes and takes free ones. Returns when to come again.
    pub(crate) async fn round(&mut self) -> Duration {
        let renew_every = self.shared.settings.lease / 3;
        let soon = self.soon();
        self.give_up_old().await;
        let renewed = self.renew().await;
        let balanced = if renewed.is_some() { self.balance().await } else { None };
        let (owned, expired, hints) = {
            let buffer = lock(&self.shared.buffer);
            let hints = buffer.hints(&self.shared.settings);
            (buffer.lanes_owned(), buffer.is_expired(Instant::now()), hints)
        };
        self.shared.hints.offer(hints);
        self.shared.metrics.lanes_owned(owned as u64);
        match (renewed, balanced) {
            // Something failed, is locked, or took longer than the lease.
            (Some(true), Some(balanced)) if !expired && !balanced.locked => {
                balanced.next_expiry.map_or(renew_every, |expiry| expiry.min(renew_every))
            }
            _ => soon,
        }
        .max(Duration::from_millis(1))
    }

    /// Runs until it is dropped. A panic ends a round and not the leases: the next round renews them.
    pub(crate) async fn run(mut self, mut pause: Duration) {
        loop {
            tokio::select! {
                biased;
                () = self.shared.lanes.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
            let round = catch(pin!(self.round())).await;
            pause = match round {
                Ok(pause) => pause,
                Err(panic) => {
                    error!(%panic, "lease round panicked: the next round goes on");
                    self.soon()
                }
            };
        }
    }

    /// Returns whether all leases were renewed; none if the database did not answer.
    async fn renew(&mut self) -> Option<bool> {
        let leases = lock(&self.shared.buffer).leases();
        if leases.is_empty() {
            return Some(true);
        }
        // As long as the next renewal that meets a lock may take, with the pause before it.
        let (deadline, margin) = (self.deadline(), self.shared.settings.lease / 4);
        let renewing = self.shared.store.renew(&leases, self.shared.settings.lease);
        match bounded(&self.shared, renewing).await {
            Ok(renewed) => {
                let now = Instant::now();
                let mut buffer = lock(&self.shared.buffer);
                let was_expired = buffer.is_expired(now);
                let (mut locked, mut given_up): (usize, Vec<Lease>) = (0, Vec::new());
                for lease in leases {
                    if renewed.held.contains(&lease.lane) {
                        buffer.extend(lease, deadline);
                    } else if renewed.locked.contains(&lease.lane) {
                        locked += 1;
                        // The other lanes must not stop at its deadline.
                        if buffer.deadline(lease).is_some_and(|deadline| deadline <= now + margin) {
                            buffer.lose(lease);
                            given_up.push(lease);
                        }
                    } else {
                        warn!(lane = lease.lane, "lane lost: another instance took it");
                        buffer.lose(lease);
                    }
                }
                drop(buffer);
                if locked > 0 {
                    self.warn_of_locks(locked, "lanes cannot be renewed");
                }
                for lease in given_up {
                    warn!(
                        lane = lease.lane,
                        "lane given up: another session has locked its row for as long as its lease"
                    );
                }
                if was_expired {
                    self.shared.work.notify_one();
                    self.shared.wake.notify_one();
                }
                match renewed.held.is_empty() {
                    false => self.shared.health_tracker.renewed(),
                    true if locked > 0 => self.shared.health_tracker.locked_out(locked),
                    // Others have all of them now. Asking for lanes shows what this instance can have.
                    true => {}
                }
                Some(locked == 0)
            }
            Err(error) => {
                warn!(error = error_chain(&error), "lease renewal failed: retrying");
                self.shared.health_tracker.renewal_failed(&error);
                None
            }
        }
    }

    /// Warns from time to time of locked lanes.
    fn warn_of_locks(&mut self, lanes: usize, what: &str) {
        let now = Instant::now();
        if self.warned_of_locks.is_none_or(|warned| now - warned >= WARN_EVERY) {
            self.warned_of_locks = Some(now);
            warn!(lanes, "{what}: another session has locked their rows, retrying");
        }
    }

    /// Takes lanes up to a fair share and drains those beyond it. None if the database did not answer.
    async fn balance(&mut self) -> Option<LaneBalance> {
        let Shared { store, settings, .. } = &*self.shared;
        if self.shared.stop_claiming.is_cancelled() {
            return Some(LaneBalance::CONTENT);
        }
        let members = match bounded(&self.shared, store.join(&settings.instance, settings.lease)).await {
            Ok(members) => members.max(1) as usize,
            Err(error) => {
                warn!(error = error_chain(&error), "membership heartbeat failed: retrying");
                self.shared.health_tracker.renewal_failed(&error);
                return None;
            }
        };
        self.shared.members.store(members, Relaxed);
        let share = (store.features().lanes as usize).div_ceil(members);
        lock(&self.shared.buffer).drain_beyond(share, Instant::now(), settings.drain_timeout);
        self.give_back_drained().await;
        let owned = lock(&self.shared.buffer).lanes_owned();
        if owned >= share {
            self.shared.health_tracker.lanes_locked(0);
            return Some(LaneBalance::CONTENT);
        }
        self.take(share - owned).await
    }

    /// Gives up leases from before a rewind that the database still knows, so that nobody waits until they run
    /// out.
    async fn give_up_old(&self) {
        let old = lock(&self.shared.buffer).old_leases();
        if old.is_empty() {
            return;
        }
        match bounded(&self.shared, self.shared.store.release(&old)).await {
            Ok(locked) => {
                let given_up = without(old, &locked);
                lock(&self.shared.buffer).forget_old_leases(&given_up);
            }
            Err(error) => warn!(error = error_chain(&error), "giving up old leases failed: retrying"),
        }
    }

    /// Gives back the lanes beyond the share that have nothing under way. A locked one goes on draining.
    async fn give_back_drained(&self) {
        let drained = lock(&self.shared.buffer).drained_lanes();
        if drained.is_empty() {
            return;
        }
        match bounded(&self.shared, self.shared.store.release(&drained)).await {
            Ok(locked) => {
                let given_back = without(drained, &locked);
                debug!(
                    lanes = given_back.len(),
                    locked = locked.len(),
                    "lanes given back to other instances"
                );
                let mut buffer = lock(&self.shared.buffer);
                given_back.iter().for_each(|(lease, _)| buffer.lose(*lease));
            }
            Err(error) => warn!(error = error_chain(&error), "giving lanes back failed: retrying"),
        }
    }

    async fn take(&mut self, most: usize) -> Option<LaneBalance> {
        let deadline = self.deadline();
        let request = LeaseRequest {
            owner: self.shared.settings.instance.clone(),
            ttl: self.shared.settings.lease,
            nonces: self.rng.fork(),
            most,
        };
        match bounded(&self.shared, self.shared.store.lease(&request)).await {
            Ok(leased) => {
                if !leased.taken.is_empty() {
                    debug!(lanes = leased.taken.len(), "lanes taken");
                    let mut buffer = lock(&self.shared.buffer);
                    leased.taken.iter().for_each(|&taken| buffer.own(taken, deadline));
                    drop(buffer);
                    self.shared.wake.notify_one();
                }
                if leased.locked > 0 {
                    self.warn_of_locks(leased.locked, "lanes cannot be taken");
                }
                self.shared.health_tracker.lanes_locked(leased.locked);
                let owns_none = lock(&self.shared.buffer).lanes_owned() == 0;
                match (leased.taken.is_empty(), owns_none) {
                    (true, true) if leased.locked > 0 => self.shared.health_tracker.locked_out(leased.locked),
                    // An engine on standby has nothing to renew.
                    (false, _) | (true, true) => self.shared.health_tracker.renewed(),
                    (true, false) => {}
                }
                Some(LaneBalance { next_expiry: leased.next_expiry, locked: leased.locked > 0 })
            }
            Err(error) => {
                warn!(error = error_chain(&error), "taking lanes failed: retrying");
                if lock(&self.shared.buffer).lanes_owned() == 0 {
                    self.shared.health_tracker.renewal_failed(&error);
                }
                None
            }
        }
    }

    /// Returns when to retry after a failure or a lock: several times within the rest of a lease.
    fn soon(&self) -> Duration {
        (self.shared.settings.lease / 12).min(RETRY_MAX)
    }

    fn deadline(&self) -> Instant {
        let lease = self.shared.settings.lease;
        Instant::now() + (lease - lease / 10)
    }
}

/// Returns the lanes that are not locked.
pub(crate) fn without(mut lanes: Vec<(Lease, Seq)>, locked: &[Lane]) -> Vec<(Lease, Seq)> {
    lanes.retain(|(lease, _)| !locked.contains(&lease.lane));
    lanes
}
