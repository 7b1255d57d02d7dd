//! A store with a door in front of, and another behind, the verbs of the engine.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use postrider::{
    BoxFuture, EventId, Result, Store, StoreError, StoreErrorKind, Target,
    store::{
        Admission, Claim, Claimed, DeadLetter, EventStatus, Features, Hold, Lane, Lease, LeaseRequest,
        Leased, ListedEvent, Listing, Marked, Pause, Paused, Peek, Renewed, RowSummary, Seq, Settled,
        Settlement, Stats, Subject, TypeCount,
    },
};

use tokio::{sync::Notify, time::Instant};

use super::Gate;

/// What stands around one verb.
pub(crate) struct Door {
    calls: Mutex<Vec<Instant>>,
    failing: AtomicBool,
    panicking: AtomicBool,
    pub(crate) before: Gate,
    pub(crate) after: Gate,
}

impl Door {
    fn new() -> Self {
        Self {
            calls: Mutex::default(),
            failing: AtomicBool::new(false),
            panicking: AtomicBool::new(false),
            before: Gate::open(),
            after: Gate::open(),
        }
    }

    /// How often the verb was called.
    pub(crate) fn calls(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    /// How long after the one before it each call came, in milliseconds, for the last so many calls.
    pub(crate) fn gaps_ms(&self, last: usize) -> Vec<u128> {
        let calls = self.calls.lock().unwrap();
        let gaps: Vec<u128> = calls.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
        gaps[gaps.len() - last..].to_vec()
    }

    /// From now on the verb fails, or works again.
    pub(crate) fn fail(&self, failing: bool) {
        self.failing.store(failing, SeqCst);
    }

    /// The next call panics.
    pub(crate) fn panic_once(&self) {
        self.panicking.store(true, SeqCst);
    }

    /// Whether the call that was to panic has come.
    pub(crate) fn has_panicked(&self) -> bool {
        !self.panicking.load(SeqCst)
    }

    async fn through<T>(&self, verb: BoxFuture<'_, Result<T>>) -> Result<T> {
        self.calls.lock().unwrap().push(Instant::now());
        self.before.pass().await;
        assert!(!self.panicking.swap(false, SeqCst), "the driver of a database");
        if self.failing.load(SeqCst) {
            return Err(
                StoreError::new(StoreErrorKind::Unreachable, "cannot do it", "the line is cut").into()
            );
        }
        let done = verb.await;
        self.after.pass().await;
        done
    }
}

/// The store behind its doors.
pub(crate) struct Doors {
    inner: Arc<dyn Store>,
    pub(crate) lease: Door,
    pub(crate) renew: Door,
    pub(crate) claim: Door,
    pub(crate) mark: Door,
    pub(crate) settle: Door,
    pub(crate) pauses: Door,
    pub(crate) release: Door,
    pub(crate) peek: Door,
    /// Whether peeks are let through; otherwise only polls and wake-ups find anything.
    pub(crate) peeks: AtomicBool,
    /// Announcements of others, which nobody has sent.
    pub(crate) heard: Notify,
    /// How many rows claims have asked about.
    pub(crate) asked: Arc<AtomicUsize>,
}

impl Doors {
    pub(crate) fn before(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner: store,
            lease: Door::new(),
            renew: Door::new(),
            claim: Door::new(),
            mark: Door::new(),
            settle: Door::new(),
            pauses: Door::new(),
            release: Door::new(),
            peek: Door::new(),
            peeks: AtomicBool::new(false),
            heard: Notify::new(),
            asked: Arc::default(),
        })
    }

    /// Every verb of the engine fails from now on, or works again.
    pub(crate) fn fail(&self, failing: bool) {
        let doors = [&self.lease, &self.renew, &self.claim, &self.mark, &self.settle, &self.pauses];
        doors.into_iter().for_each(|door| door.fail(failing));
    }
}

/// Counts the rows that a claim asks about.
#[derive(Debug)]
struct Counting {
    inner: Arc<dyn Admission>,
    asked: Arc<AtomicUsize>,
}

impl Admission for Counting {
    fn admits(&self, row: &RowSummary<'_>) -> bool {
        self.asked.fetch_add(1, SeqCst);
        self.inner.admits(row)
    }
}

impl Store for Doors {
    fn features(&self) -> Features {
        self.inner.features()
    }

    fn target(&self) -> &Target {
        self.inner.target()
    }

    fn migrate(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.migrate()
    }

    fn join<'a>(&'a self, instance: &'a str, ttl: Duration) -> BoxFuture<'a, Result<u32>> {
        self.inner.join(instance, ttl)
    }

    fn leave<'a>(&'a self, instance: &'a str) -> BoxFuture<'a, Result<()>> {
        self.inner.leave(instance)
    }

    fn mark_sent<'a>(&'a self, marks: &'a [(Lease, Seq)]) -> BoxFuture<'a, Result<Marked>> {
        Box::pin(self.mark.through(Box::pin(async move { self.inner.mark_sent(marks).await })))
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> BoxFuture<'a, Result<Leased>> {
        // The memory store acts when the verb is called, not when it is polled: the call itself has to wait.
        Box::pin(self.lease.through(Box::pin(async move { self.inner.lease(request).await })))
    }

    fn renew<'a>(&'a self, leases: &'a [Lease], ttl: Duration) -> BoxFuture<'a, Result<Renewed>> {
        Box::pin(self.renew.through(Box::pin(async move { self.inner.renew(leases, ttl).await })))
    }

    fn release<'a>(&'a self, lanes: &'a [(Lease, Seq)]) -> BoxFuture<'a, Result<Vec<Lane>>> {
        Box::pin(self.release.through(Box::pin(async move { self.inner.release(lanes).await })))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Claimed>> {
        let mut claim = claim.clone();
        let inner = claim.admission.take();
        claim.admission = inner.map(|inner| Arc::new(Counting { inner, asked: self.asked.clone() }) as _);
        Box::pin(self.claim.through(Box::pin(async move { self.inner.claim(&claim).await })))
    }

    fn peek(&self) -> BoxFuture<'_, Result<Option<Peek>>> {
        if !self.peeks.load(SeqCst) {
            return Box::pin(std::future::ready(Ok(None)));
        }
        Box::pin(self.peek.through(Box::pin(async move { self.inner.peek().await })))
    }

    fn settle<'a>(
        &'a self,
        leases: &'a [Lease],
        settlements: &'a [Settlement],
        retention: Duration,
    ) -> BoxFuture<'a, Result<Settled>> {
        Box::pin(
            self.settle
                .through(Box::pin(async move { self.inner.settle(leases, settlements, retention).await })),
        )
    }

    fn dead(&self, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<DeadLetter>>> {
        self.inner.dead(after, limit)
    }

    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Vec<ListedEvent>>> {
        self.inner.list(listing)
    }

    fn count_by_type(&self, types: usize) -> BoxFuture<'_, Result<Vec<TypeCount>>> {
        self.inner.count_by_type(types)
    }

    fn redrive<'a>(&'a self, ids: &'a [EventId]) -> BoxFuture<'a, Result<u64>> {
        self.inner.redrive(ids)
    }

    fn discard<'a>(&'a self, ids: &'a [EventId]) -> BoxFuture<'a, Result<u64>> {
        self.inner.discard(ids)
    }

    fn purge(&self, retention: Duration, limit: usize) -> BoxFuture<'_, Result<u64>> {
        self.inner.purge(retention, limit)
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats>> {
        self.inner.stats()
    }

    fn status<'a>(&'a self, id: &'a EventId) -> BoxFuture<'a, Result<EventStatus>> {
        self.inner.status(id)
    }

    fn why<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Hold>>> {
        self.inner.why(key)
    }

    fn pause<'a>(&'a self, subject: &'a Subject, reason: &'a str) -> BoxFuture<'a, Result<Paused>> {
        self.inner.pause(subject, reason)
    }

    fn resume<'a>(&'a self, subject: &'a Subject) -> BoxFuture<'a, Result<Option<Pause>>> {
        self.inner.resume(subject)
    }

    fn pauses(&self) -> BoxFuture<'_, Result<Vec<Pause>>> {
        Box::pin(self.pauses.through(Box::pin(async move { self.inner.pauses().await })))
    }

    fn notified(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.heard.notified().await;
            Ok(())
        })
    }
}
