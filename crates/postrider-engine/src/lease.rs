//! Keeping the right to deliver.
//!
//! **State:** the leases in the buffer, each with a local deadline. **Term:** a lease holds for `lease` on the
//! database's clock and is renewed each third of it; locally it counts from the moment before the renewal was sent, less
//! a tenth, so that this side believes it to end before the database does, as long as the database's clock does not jump. **When it fails:** a renewal that does
//! not come through is tried again; past the deadline nothing of the lane is sent, and what was under way can settle
//! only if nobody took the lane meanwhile.

use std::{sync::Arc, time::Duration};

use postrider_core::{rng::Rng, sink::error_chain, store::LeaseRequest};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::{engine::Shared, lock, patience::answer};

/// Longest wait before a lane that ran out elsewhere is tried for again.
const RETRY_MAX: Duration = Duration::from_secs(1);

pub(crate) struct Keeper {
    shared: Arc<Shared>,
    rng: Rng,
}

impl Keeper {
    pub(crate) fn new(shared: Arc<Shared>, rng: Rng) -> Self {
        Self { shared, rng }
    }

    /// Renews what is held, takes what is free, and says when to come again.
    pub(crate) async fn round(&mut self) -> Duration {
        let renew_every = self.shared.settings.lease / 3;
        self.give_up_old().await;
        let renewed = self.renew().await;
        let taken = if renewed { self.balance().await } else { None };
        let (owned, expired, hints) = {
            let buffer = lock(&self.shared.buffer);
            let hints = buffer.hints(&self.shared.settings);
            (buffer.lanes_owned(), buffer.is_expired(Instant::now()), hints)
        };
        self.shared.hints.offer(hints);
        self.shared.metrics.lanes_owned(owned as u64);
        match (renewed && !expired, taken) {
            // Something failed, or took longer than the lease: soon again.
            (false, _) | (true, None) => (renew_every / 4).min(RETRY_MAX),
            (true, Some(next_expiry)) => next_expiry.map_or(renew_every, |expiry| expiry.min(renew_every)),
        }
        .max(Duration::from_millis(1))
    }

    pub(crate) async fn run(mut self, mut pause: Duration) {
        loop {
            tokio::select! {
                biased;
                () = self.shared.lanes.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
            pause = self.round().await;
        }
    }

    /// False if the database did not answer.
    async fn renew(&self) -> bool {
        let leases = lock(&self.shared.buffer).leases();
        if leases.is_empty() {
            return true;
        }
        let deadline = self.deadline();
        let renewing = self.shared.store.renew(&leases, self.shared.settings.lease);
        match answer(&self.shared, renewing).await {
            Ok(held) => {
                let mut buffer = lock(&self.shared.buffer);
                let was_expired = buffer.is_expired(Instant::now());
                for lease in leases {
                    if held.contains(&lease.lane) {
                        buffer.extend(lease, deadline);
                    } else {
                        warn!(lane = lease.lane, "lane lost: another instance took it");
                        buffer.lose(lease);
                    }
                }
                drop(buffer);
                if was_expired {
                    self.shared.work.notify_one();
                    self.shared.wake.notify_one();
                }
                true
            }
            Err(error) => {
                warn!(%error, "could not renew the lease");
                false
            }
        }
    }

    /// Takes lanes up to a fair share and gives up what is over it. Says when the next lane of somebody else's could be
    /// had; the outer none if the database did not answer.
    async fn balance(&mut self) -> Option<Option<Duration>> {
        let Shared { store, settings, .. } = &*self.shared;
        if self.shared.stop_claiming.is_cancelled() {
            return Some(None);
        }
        let members = match answer(&self.shared, store.join(&settings.instance, settings.lease)).await {
            Ok(members) => members.max(1) as usize,
            Err(error) => {
                warn!(%error, "could not say that this instance is there");
                return None;
            }
        };
        let share = (store.features().lanes as usize).div_ceil(members);
        lock(&self.shared.buffer).drain_beyond(share);
        self.give_back_drained().await;
        let owned = lock(&self.shared.buffer).lanes_owned();
        if owned >= share { Some(None) } else { self.take(share - owned).await }
    }

    /// Gives up leases of a future that the database has lost, as far as it still believes in them: nobody has to wait until they run out.
    async fn give_up_old(&self) {
        let old = lock(&self.shared.buffer).old_leases();
        if old.is_empty() {
            return;
        }
        match answer(&self.shared, self.shared.store.release(&old)).await {
            Ok(()) => lock(&self.shared.buffer).gave_up(&old),
            Err(error) => warn!(error = error_chain(&error), "cannot give up old leases: will try again"),
        }
    }

    /// Gives back the lanes that are over the share, once nothing of them is under way.
    async fn give_back_drained(&self) {
        let drained = lock(&self.shared.buffer).drained_lanes();
        if drained.is_empty() {
            return;
        }
        match answer(&self.shared, self.shared.store.release(&drained)).await {
            Ok(()) => {
                debug!(lanes = drained.len(), "lanes given back to be shared");
                let mut buffer = lock(&self.shared.buffer);
                drained.iter().for_each(|(lease, _)| buffer.lose(*lease));
            }
            Err(error) => warn!(%error, "could not give back lanes: will try again"),
        }
    }

    async fn take(&mut self, most: usize) -> Option<Option<Duration>> {
        let deadline = self.deadline();
        let request = LeaseRequest {
            owner: self.shared.settings.instance.clone(),
            ttl: self.shared.settings.lease,
            nonces: self.rng.fork(),
            most,
        };
        match answer(&self.shared, self.shared.store.lease(&request)).await {
            Ok(leased) => {
                if !leased.taken.is_empty() {
                    debug!(lanes = leased.taken.len(), "lanes taken");
                    let mut buffer = lock(&self.shared.buffer);
                    leased.taken.iter().for_each(|&taken| buffer.own(taken, deadline));
                    drop(buffer);
                    self.shared.wake.notify_one();
                }
                Some(leased.next_expiry)
            }
            Err(error) => {
                warn!(%error, "could not ask for lanes");
                None
            }
        }
    }

    fn deadline(&self) -> Instant {
        let lease = self.shared.settings.lease;
        Instant::now() + (lease - lease / 10)
    }
}
