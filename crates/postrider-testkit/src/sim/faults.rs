//! A store that fails before it acts, acts and loses its reply, or takes its time.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider_core::{
    BoxFuture, Error, EventId, Result, Store, StoreError, StoreErrorKind, Target,
    rng::Rng,
    store::{
        Change, Claim, Claimed, DeadLetter, EventStatus, Features, HeldKey, Hold, Lane, Lease, LeaseRequest,
        Leased, ListedEvent, Listing, Marked, Orphans, Pause, Paused, Peek, PeekWait, Renewed, Seq, Settled,
        Settlement, Stats, Subject, TypeCount,
    },
};
use postrider_engine::memory::MemoryStore;

use super::{
    history::{Happening, History, Name},
    mutated_store::MutatedStore,
    scenario::{FaultRates, Scenario},
    store_trouble::{Hung, Trouble},
    watch,
};

/// The store, as one life of an instance sees it.
#[derive(Clone)]
pub(super) struct FaultyStore {
    inner: MutatedStore,
    shared: Arc<Shared>,
}

struct Shared {
    rng: Mutex<Rng>,
    rates: FaultRates,
    lease: Duration,
    peeks: bool,
    /// Whether the database waits by itself until something was written.
    waits: bool,
    trouble: Trouble,
    healed: AtomicBool,
    offset: Mutex<Duration>,
    history: Arc<History>,
}

/// What happens to one call.
struct FaultPlan {
    refuse: bool,
    lose_reply: bool,
    before: Duration,
    after: Duration,
    /// It is never answered.
    hung: Option<Hung>,
}

impl FaultyStore {
    pub(super) fn new(inner: MemoryStore, rng: Rng, scenario: &Scenario, history: Arc<History>) -> Self {
        let shared = Shared {
            rng: Mutex::new(rng),
            rates: scenario.faults,
            lease: scenario.lease,
            peeks: scenario.peeks,
            waits: scenario.peeks_wait,
            trouble: Trouble::new(scenario.refusing, scenario.hung.clone()),
            healed: AtomicBool::new(false),
            offset: Mutex::default(),
            history,
        };
        Self { inner: MutatedStore::new(inner), shared: Arc::new(shared) }
    }

    /// The same store, for the life of this name.
    pub(super) fn of(&self, name: &Name) -> Self {
        Self { inner: self.inner.of(name), shared: self.shared.clone() }
    }

    /// The store behind it.
    pub(super) fn memory(&self) -> &MemoryStore {
        self.inner.memory()
    }

    /// The database's clock goes forward at once.
    pub(super) fn jump(&self, by: Duration) {
        let mut offset = self.shared.offset.lock().unwrap_or_else(PoisonError::into_inner);
        *offset += by;
        self.memory().set_clock_offset(*offset);
    }

    /// No more faults.
    pub(super) fn heal(&self) {
        self.shared.healed.store(true, Relaxed);
    }

    fn draw(&self, verb: &'static str) -> FaultPlan {
        let mut rng = self.shared.rng.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shared.healed.load(Relaxed) {
            let (before, after) = (Duration::ZERO, Duration::ZERO);
            return FaultPlan { refuse: false, lose_reply: false, before, after, hung: None };
        }
        let rates = self.shared.rates;
        let stall = if verb == "settle" { rates.stall.max(rates.stall_settle) } else { rates.stall };
        let mut pause = || {
            if rng.chance(stall) {
                Duration::from_millis(if rng.chance(0.5) { rng.below(3000) } else { rng.below(150) })
            } else if rng.chance(0.5) {
                Duration::from_micros(rng.below(3000))
            } else {
                Duration::ZERO
            }
        };
        let (before, after) = (pause(), pause());
        let trouble = &self.shared.trouble;
        FaultPlan {
            refuse: rng.chance(rates.refuse) || trouble.refuses(verb),
            lose_reply: rng.chance(rates.lose_reply),
            before,
            after,
            hung: trouble.hangs(verb),
        }
    }

    fn around<'a, T: Send + 'a>(
        &'a self,
        verb: &'static str,
        run: impl FnOnce() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        let plan = self.draw(verb);
        if verb == "settle" && plan.before > self.shared.lease {
            self.shared.history.note(Happening::SettleStalled);
        }
        Box::pin(async move {
            pass(plan.before).await;
            if plan.refuse {
                return Err(self.fault(verb, "refused"));
            }
            if let Some(hung) = plan.hung {
                self.shared.history.note(Happening::Fault(verb, "never answered"));
                if hung.takes_effect {
                    let _ = run().await;
                }
                return std::future::pending().await;
            }
            let result = run().await;
            // That the database went back is what a store finds out for itself.
            if result.as_ref().is_err_and(is_went_back) {
                return result;
            }
            pass(plan.after).await;
            if plan.lose_reply {
                return Err(self.fault(verb, "reply lost"));
            }
            result
        })
    }

    /// The same for a verb that changes something: a server carries out what it was sent, also if nobody waits for the answer any more.
    fn outliving<T: Send + 'static>(
        &self,
        verb: &'static str,
        run: impl FnOnce(MutatedStore) -> BoxFuture<'static, Result<T>> + Send + 'static,
    ) -> BoxFuture<'static, Result<T>> {
        let (this, history) = (self.clone(), self.shared.history.clone());
        let carried_out = tokio::spawn(async move { this.around(verb, || run(this.inner.clone())).await });
        Box::pin(async move {
            let mut cut_off = CutOff(Some((history, verb)));
            let answer = carried_out.await;
            cut_off.0 = None;
            answer.unwrap_or_else(|error| Err(StoreError::new(StoreErrorKind::Other, verb, error).into()))
        })
    }

    fn fault(&self, verb: &'static str, what: &'static str) -> Error {
        self.shared.history.note(Happening::Fault(verb, what));
        StoreError::new(StoreErrorKind::Unreachable, verb, what).into()
    }
}

fn is_went_back(error: &Error) -> bool {
    matches!(error, Error::Store(error) if error.kind() == StoreErrorKind::WentBack)
}

/// Notes that somebody gave up waiting for the answer of a verb.
struct CutOff(Option<(Arc<History>, &'static str)>);

impl Drop for CutOff {
    fn drop(&mut self) {
        if let Some((history, verb)) = self.0.take() {
            history.note(Happening::CutOff(verb));
        }
    }
}

async fn pass(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

impl Store for FaultyStore {
    fn features(&self) -> Features {
        self.inner.features()
    }

    fn target(&self) -> &Target {
        self.inner.target()
    }

    fn migrate(&self) -> BoxFuture<'_, Result<()>> {
        self.around("migrate", || self.inner.migrate())
    }

    fn join<'a>(&'a self, instance: &'a str, ttl: Duration) -> BoxFuture<'a, Result<u32>> {
        self.around("join", move || self.inner.join(instance, ttl))
    }

    fn leave<'a>(&'a self, instance: &'a str) -> BoxFuture<'a, Result<()>> {
        self.around("leave", move || self.inner.leave(instance))
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> BoxFuture<'a, Result<Leased>> {
        self.around("lease", move || {
            let before = watch::held_lanes(self.memory());
            let leased = self.inner.lease(request);
            Box::pin(async move {
                let leased = leased.await?;
                if !leased.taken.is_empty() {
                    // Whatever an earlier lease left unsettled may come again from here on.
                    let lanes: Vec<Lane> = leased.taken.iter().map(|taken| taken.lease.lane).collect();
                    let again = leased.taken.iter().filter(|taken| taken.lease.token.epoch > 1);
                    let held = again.filter(|taken| before.contains(&taken.lease.lane)).count();
                    let by = request.owner.as_str().into();
                    self.shared.history.note(Happening::Leased { by, lanes, held });
                }
                Ok(leased)
            })
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Lease], ttl: Duration) -> BoxFuture<'a, Result<Renewed>> {
        let leases = leases.to_vec();
        self.outliving("renew", move |inner| Box::pin(async move { inner.renew(&leases, ttl).await }))
    }

    fn mark_sent<'a>(&'a self, marks: &'a [(Lease, Seq)]) -> BoxFuture<'a, Result<Marked>> {
        let marks = marks.to_vec();
        self.outliving("mark_sent", move |inner| Box::pin(async move { inner.mark_sent(&marks).await }))
    }

    fn release<'a>(&'a self, lanes: &'a [(Lease, Seq)]) -> BoxFuture<'a, Result<Vec<Lane>>> {
        let lanes = lanes.to_vec();
        self.outliving("release", move |inner| Box::pin(async move { inner.release(&lanes).await }))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Claimed>> {
        self.around("claim", move || {
            Box::pin(async move {
                let (claim, skipped) = watch::skipped(claim);
                let claimed = self.inner.claim(&claim).await;
                skipped.note(&self.shared.history);
                claimed
            })
        })
    }

    fn peek(&self) -> BoxFuture<'_, Result<Option<Peek>>> {
        match self.shared.peeks {
            true => self.around("peek", || self.memory().peek()),
            false => Box::pin(std::future::ready(Ok(None))),
        }
    }

    fn peek_from(&self, wait: PeekWait) -> BoxFuture<'_, Result<Option<Peek>>> {
        match self.shared.peeks && self.shared.waits {
            true => self.around("peek", move || self.memory().peek_from(wait)),
            false => self.peek(),
        }
    }

    fn settle<'a>(
        &'a self,
        leases: &'a [Lease],
        settlements: &'a [Settlement],
        retention: Duration,
    ) -> BoxFuture<'a, Result<Settled>> {
        // An attempt that is written down before it is made.
        let counted = settlements.iter().find(|each| matches!(each.change, Change::Attempt { .. }));
        let note = move |what: fn(Name, Seq) -> Happening| {
            if let Some(counted) = counted {
                self.shared.history.note(what(self.inner.by().clone(), counted.seq));
            }
        };
        note(Happening::Counting);
        let (owned, shared) = ((leases.to_vec(), settlements.to_vec()), self.shared.clone());
        let settle = move |inner: MutatedStore| -> BoxFuture<'static, Result<Settled>> {
            let (leases, settlements) = owned;
            Box::pin(async move {
                let settled = inner.settle(&leases, &settlements, retention, shared.lease).await?;
                watch::fence(inner.memory(), &leases, &settled, &shared.history);
                watch::died(inner.by(), &settlements, &settled, &shared.history);
                Ok(settled)
            })
        };
        let settled = self.outliving("settle", settle);
        Box::pin(async move {
            let settled = settled.await;
            note(Happening::Counted);
            settled
        })
    }

    fn dead(&self, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<DeadLetter>>> {
        self.around("dead", move || self.inner.dead(after, limit))
    }

    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Vec<ListedEvent>>> {
        self.around("list", move || self.inner.list(listing))
    }

    fn count_by_type(&self, types: usize) -> BoxFuture<'_, Result<Vec<TypeCount>>> {
        self.around("count_by_type", move || self.inner.count_by_type(types))
    }

    fn redrive<'a>(&'a self, ids: &'a [EventId]) -> BoxFuture<'a, Result<u64>> {
        self.around("redrive", move || self.inner.redrive(ids))
    }

    fn discard<'a>(&'a self, ids: &'a [EventId]) -> BoxFuture<'a, Result<u64>> {
        self.around("discard", move || self.inner.discard(ids))
    }

    /// Without faults: nobody deletes rows here, and each fault that could be drawn would change all later ones.
    fn free_orphans<'a>(
        &'a self,
        after: Option<&'a HeldKey>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Orphans>> {
        self.inner.free_orphans(after, limit)
    }

    fn purge(&self, retention: Duration, limit: usize) -> BoxFuture<'_, Result<u64>> {
        self.around("purge", move || self.inner.purge(retention, limit))
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats>> {
        self.around("stats", || self.inner.stats())
    }

    fn status<'a>(&'a self, id: &'a EventId) -> BoxFuture<'a, Result<EventStatus>> {
        self.around("status", move || self.inner.status(id))
    }

    fn why<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Hold>>> {
        self.around("why", move || self.inner.why(key))
    }

    fn pause<'a>(&'a self, subject: &'a Subject, reason: &'a str) -> BoxFuture<'a, Result<Paused>> {
        self.around("pause", move || self.inner.pause(subject, reason))
    }

    fn resume<'a>(&'a self, subject: &'a Subject) -> BoxFuture<'a, Result<Option<Pause>>> {
        self.around("resume", move || self.inner.resume(subject))
    }

    fn pauses(&self) -> BoxFuture<'_, Result<Vec<Pause>>> {
        Box::pin(async move {
            let pauses = self.around("pauses", || self.inner.pauses()).await?;
            let subjects = pauses.iter().map(|pause| pause.subject.clone()).collect();
            self.shared.history.note(Happening::SawPauses { by: self.inner.by().clone(), subjects });
            Ok(pauses)
        })
    }
}
