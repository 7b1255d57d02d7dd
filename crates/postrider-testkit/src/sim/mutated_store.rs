//! A store with the [mutations](postrider_engine::mutations) of stores. While none is active, it is the store in memory.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use postrider_core::{
    BoxFuture, EventId, Result, Store, Target,
    store::{
        AcquiredLane, Claim, Claimed, DeadLetter, EventStatus, Features, HeldKey, Hold, Lane, Lease,
        LeaseRequest, Leased, ListedEvent, Listing, Marked, Orphans, Pause, Paused, Renewed, Seq, Settled,
        Settlement, Stats, Subject, TypeCount,
    },
};
use postrider_engine::{
    memory::MemoryStore,
    mutations::{self, Mutation},
};
use tokio::time::Instant;

use super::history::Name;

/// How long a row that was claimed by itself is kept for the instance that claimed it.
const ROW_LOCK: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub(super) struct MutatedStore {
    inner: MemoryStore,
    by: Name,
    row_locks: Arc<Mutex<BTreeMap<Seq, (Name, Instant)>>>,
}

impl MutatedStore {
    pub(super) fn new(inner: MemoryStore) -> Self {
        Self { inner, by: "".into(), row_locks: Arc::default() }
    }

    pub(super) fn of(&self, by: &Name) -> Self {
        Self { by: by.clone(), ..self.clone() }
    }

    /// Whose life it is.
    pub(super) fn by(&self) -> &Name {
        &self.by
    }

    pub(super) fn memory(&self) -> &MemoryStore {
        &self.inner
    }

    /// The tokens that pass the fence now, no matter which instance they belong to.
    fn passing(&self, leases: &[Lease]) -> Vec<Lease> {
        let held = self.inner.leases();
        let passing = |lease: &Lease| held.iter().find(|held| held.lane == lease.lane).copied();
        leases.iter().map(|lease| passing(lease).unwrap_or(*lease)).collect()
    }

    /// Gives everybody every lane.
    async fn lease_all(&self, request: &LeaseRequest) -> Result<Leased> {
        let mut leased = self.inner.lease(&LeaseRequest { most: usize::MAX, ..request.clone() }).await?;
        leased.taken.iter_mut().for_each(|taken| taken.suspect_to = 0);
        for lease in self.inner.leases() {
            if !leased.taken.iter().any(|taken| taken.lease.lane == lease.lane) {
                leased.taken.push(AcquiredLane { lease, suspect_to: 0 });
            }
        }
        Ok(leased)
    }

    /// Leaves the rows that somebody else has claimed, and locks the others.
    fn lock_rows(&self, claimed: &mut Claimed) {
        let mut locks = self.row_locks.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        for event in std::mem::take(&mut claimed.events) {
            let taken = locks.get(&event.seq).is_some_and(|(by, until)| *by != self.by && *until > now);
            if taken {
                claimed.again.push((event.lane, event.seq));
            } else {
                locks.insert(event.seq, (self.by.clone(), now + ROW_LOCK));
                claimed.events.push(event);
            }
        }
    }
}

impl MutatedStore {
    pub(super) fn features(&self) -> Features {
        self.inner.features()
    }

    pub(super) fn target(&self) -> &Target {
        self.inner.target()
    }

    pub(super) fn migrate(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.migrate()
    }

    pub(super) fn join<'a>(&'a self, instance: &'a str, ttl: Duration) -> BoxFuture<'a, Result<u32>> {
        if mutations::active(Mutation::ClaimByRow) {
            return Box::pin(std::future::ready(Ok(1)));
        }
        self.inner.join(instance, ttl)
    }

    pub(super) fn leave<'a>(&'a self, instance: &'a str) -> BoxFuture<'a, Result<()>> {
        self.inner.leave(instance)
    }

    pub(super) fn lease<'a>(&'a self, request: &'a LeaseRequest) -> BoxFuture<'a, Result<Leased>> {
        Box::pin(async move {
            if mutations::active(Mutation::ClaimByRow) {
                return self.lease_all(request).await;
            }
            let leased = self.inner.lease(request).await?;
            if mutations::active(Mutation::HoldsInMemory) {
                let lanes: Vec<Lane> = leased.taken.iter().map(|taken| taken.lease.lane).collect();
                self.inner.forget_holds(&lanes);
            }
            Ok(leased)
        })
    }

    pub(super) fn renew<'a>(&'a self, leases: &'a [Lease], ttl: Duration) -> BoxFuture<'a, Result<Renewed>> {
        self.inner.renew(leases, ttl)
    }

    pub(super) fn mark_sent<'a>(&'a self, marks: &'a [(Lease, Seq)]) -> BoxFuture<'a, Result<Marked>> {
        self.inner.mark_sent(marks)
    }

    pub(super) fn release<'a>(&'a self, lanes: &'a [(Lease, Seq)]) -> BoxFuture<'a, Result<Vec<Lane>>> {
        // A lane that everybody has is not one's own to give back.
        let lanes = if mutations::active(Mutation::ClaimByRow) { &[] } else { lanes };
        self.inner.release(lanes)
    }

    pub(super) async fn claim(&self, claim: &Claim) -> Result<Claimed> {
        let mut claimed = self.inner.claim(claim).await?;
        if mutations::active(Mutation::ClaimByRow) {
            self.lock_rows(&mut claimed);
        }
        Ok(claimed)
    }

    /// `lease` says how long a lane can be held without being renewed.
    pub(super) async fn settle(
        &self,
        leases: &[Lease],
        settlements: &[Settlement],
        retention: Duration,
        lease: Duration,
    ) -> Result<Settled> {
        if mutations::active(Mutation::FenceNotLocked) {
            let compared = self.inner.settle(leases, &[], retention).await?;
            if !compared.lost.is_empty() {
                return Ok(compared);
            }
            tokio::time::sleep(lease / 4).await;
        }
        if mutations::active(Mutation::NoFence) || mutations::active(Mutation::FenceNotLocked) {
            return self.inner.settle(&self.passing(leases), settlements, retention).await;
        }
        self.inner.settle(leases, settlements, retention).await
    }

    pub(super) fn dead(&self, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<DeadLetter>>> {
        self.inner.dead(after, limit)
    }

    pub(super) fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Vec<ListedEvent>>> {
        self.inner.list(listing)
    }

    pub(super) fn count_by_type(&self, types: usize) -> BoxFuture<'_, Result<Vec<TypeCount>>> {
        self.inner.count_by_type(types)
    }

    pub(super) fn redrive<'a>(&'a self, ids: &'a [EventId]) -> BoxFuture<'a, Result<u64>> {
        self.inner.redrive(ids)
    }

    pub(super) fn discard<'a>(&'a self, ids: &'a [EventId]) -> BoxFuture<'a, Result<u64>> {
        self.inner.discard(ids)
    }

    pub(super) fn free_orphans<'a>(
        &'a self,
        after: Option<&'a HeldKey>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Orphans>> {
        self.inner.free_orphans(after, limit)
    }

    pub(super) fn purge(&self, retention: Duration, limit: usize) -> BoxFuture<'_, Result<u64>> {
        self.inner.purge(retention, limit)
    }

    pub(super) fn stats(&self) -> BoxFuture<'_, Result<Stats>> {
        self.inner.stats()
    }

    pub(super) fn status<'a>(&'a self, id: &'a EventId) -> BoxFuture<'a, Result<EventStatus>> {
        self.inner.status(id)
    }

    pub(super) fn why<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Hold>>> {
        self.inner.why(key)
    }

    pub(super) fn pause<'a>(
        &'a self,
        subject: &'a Subject,
        reason: &'a str,
    ) -> BoxFuture<'a, Result<Paused>> {
        self.inner.pause(subject, reason)
    }

    pub(super) fn resume<'a>(&'a self, subject: &'a Subject) -> BoxFuture<'a, Result<Option<Pause>>> {
        self.inner.resume(subject)
    }

    pub(super) fn pauses(&self) -> BoxFuture<'_, Result<Vec<Pause>>> {
        self.inner.pauses()
    }
}
