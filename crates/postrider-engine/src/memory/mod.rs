//! The in-memory store: every verb of [`Store`], nothing on disk.
//!
//! State: a few maps under one lock, which is never held over an await. Term: as long as a handle or a transaction of it
//! lives. When it fails: it does not; what it held is gone with the process. It is for tests, for the simulator, and for
//! measuring what an engine could do on a database that costs nothing.
//!
//! Two runs with the same calls give the same answers: no order comes from a randomly seeded map, and time is tokio's, so
//! that it stands still where a test has paused it.
//!
//! * `tables` and `lane`: rows, and the sets of each lane that a claim reads; `rows`, `ids` and `seqs` are how they are kept
//! * `tx`: transactions, which events enter through
//! * `claim` with its `streams`, `settle`, `lease`, `operate`, `list`, `pause`: the verbs
//! * `aids`: what only tests want to see or do; `faults`: what can be wrong with a database

mod aids;
mod claim;
mod clock;
mod faults;
mod hash;
mod ids;
mod lane;
mod lease;
mod list;
mod operate;
mod pause;
mod peek;
mod row;
mod rows;
mod seqs;
mod settle;
mod streams;
mod tables;
#[cfg(test)]
mod tests;
mod tx;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub use aids::RawRow;
use clock::Clock;
use faults::Faults;
pub use faults::Snapshot;
use postrider_core::{
    BoxFuture, EventId, Result, Store, Target, Timestamp,
    store::{
        Claim, Claimed, DeadLetter, EventStatus, Features, HeldKey, Hold, Keeps, Lane, Lease, LeaseRequest,
        Leased, ListedEvent, Listing, Marked, Orphans, Pause, Paused, Peek, PeekWait, Renewed, Seq, Settled,
        Settlement, Stats, Subject, TypeCount, too_many_pauses,
    },
    tx::{Dialect, LaneHints, Prefix},
};
use tables::Tables;
pub use tx::{Memory, MemoryTx};

/// How often it is worth a peek. Each is a timer, of which paused time has to pass every one.
const PEEK_EVERY: Duration = Duration::from_millis(10);

/// An outbox in memory. Cloning it gives another handle to the same one.
///
/// ```
/// use postrider_core::{Event, Store, store::EventStatus, tx::{CallerTx, OnDuplicate}};
/// use postrider_engine::memory::MemoryStore;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let store = MemoryStore::new(8);
/// let event = Event::json_text("OrderPlaced", "{}").aggregate("Order", 42).build()?;
///
/// let mut tx = store.begin();
/// tx.put("order 42", "placed");
/// tx.insert(store.target(), std::slice::from_ref(&event), OnDuplicate::Fail).await?;
/// tx.commit().await?;
///
/// assert_eq!(store.get("order 42").as_deref(), Some("placed"));
/// assert_eq!(store.status(event.id()).await?, EventStatus::New);
/// # Ok::<(), postrider_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    target: Target,
    tables: Mutex<Tables>,
    /// Locked after the tables.
    faults: Mutex<Faults>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        // A panic of somebody who held the lock was not in the middle of a change that others could not read.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryStore {
    /// An empty outbox with so many lanes, at least one.
    pub fn new(lanes: u32) -> Self {
        let target = Target {
            dialect: Dialect::Memory,
            prefix: Prefix::default(),
            insert_one: String::new(),
            prepared: true,
            hints: LaneHints::default(),
        };
        let tables = Mutex::new(Tables::new(lanes.max(1)));
        Self {
            shared: Arc::new(Shared { clock: Clock::default(), target, tables, faults: Mutex::default() }),
        }
    }

    /// Begins a transaction. Dropping it rolls it back.
    pub fn begin(&self) -> MemoryTx {
        MemoryTx::new(Arc::clone(&self.shared))
    }

    /// What committed transactions last [put](MemoryTx::put) under this name.
    pub fn get(&self, name: &str) -> Option<String> {
        self.shared.lock().business.get(name).cloned()
    }

    /// This store's clock.
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Sets how far this store's clock is ahead of the time that tokio has counted since the store was made.
    pub fn set_clock_offset(&self, offset: Duration) {
        self.shared.clock.set_offset(offset);
    }

    /// Answers a verb at once: the lock is taken and given back before anybody waits.
    fn answer<'a, T: Send + 'a>(
        &self,
        verb: impl FnOnce(&mut Tables, Timestamp) -> T,
    ) -> BoxFuture<'a, Result<T>> {
        let answer = verb(&mut self.shared.lock(), self.shared.clock.now());
        Box::pin(std::future::ready(Ok(answer)))
    }

    /// The same for a verb that can be refused.
    fn try_answer<'a, T: Send + 'a>(
        &self,
        verb: impl FnOnce(&mut Tables, &mut Faults, Timestamp) -> Result<T>,
    ) -> BoxFuture<'a, Result<T>> {
        let (mut tables, now) = (self.shared.lock(), self.shared.clock.now());
        Box::pin(std::future::ready(verb(&mut tables, &mut self.shared.faults(), now)))
    }
}

impl Store for MemoryStore {
    fn features(&self) -> Features {
        Features {
            lanes: self.shared.lock().lane_count(),
            shared_clock: true,
            late_commits: true,
            keeps: Keeps::ALL,
        }
    }

    fn target(&self) -> &Target {
        &self.shared.target
    }

    fn migrate(&self) -> BoxFuture<'_, Result<()>> {
        self.answer(|_, _| ())
    }

    fn join<'a>(&'a self, instance: &'a str, ttl: Duration) -> BoxFuture<'a, Result<u32>> {
        self.answer(|tables, now| lease::join(tables, instance, now, ttl))
    }

    fn leave<'a>(&'a self, instance: &'a str) -> BoxFuture<'a, Result<()>> {
        self.answer(|tables, _| lease::leave(tables, instance))
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> BoxFuture<'a, Result<Leased>> {
        self.try_answer(|tables, faults, now| {
            let leased = lease::lease(tables, request, now);
            faults.note_tokens(&leased, &request.owner);
            Ok(leased)
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Lease], ttl: Duration) -> BoxFuture<'a, Result<Renewed>> {
        self.answer(|tables, now| lease::renew(tables, leases, now, ttl))
    }

    fn mark_sent<'a>(&'a self, marks: &'a [(Lease, Seq)]) -> BoxFuture<'a, Result<Marked>> {
        self.answer(|tables, _| lease::mark_sent(tables, marks))
    }

    fn release<'a>(&'a self, lanes: &'a [(Lease, Seq)]) -> BoxFuture<'a, Result<Vec<Lane>>> {
        self.answer(|tables, _| lease::release(tables, lanes))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Claimed>> {
        self.try_answer(|tables, faults, now| {
            faults.check(claim)?;
            Ok(claim::claim(tables, claim, now, faults))
        })
    }

    fn peek(&self) -> BoxFuture<'_, Result<Option<Peek>>> {
        self.answer(|tables, _| Some(Peek { last: tables.last_seq(), every: PEEK_EVERY, waited: false }))
    }

    fn peek_from(&self, wait: PeekWait) -> BoxFuture<'_, Result<Option<Peek>>> {
        Box::pin(async move {
            let last = peek::moved(wait, || self.shared.lock().last_seq()).await;
            Ok(Some(Peek { last, every: PEEK_EVERY, waited: true }))
        })
    }

    fn settle<'a>(
        &'a self,
        leases: &'a [Lease],
        settlements: &'a [Settlement],
        retention: Duration,
    ) -> BoxFuture<'a, Result<Settled>> {
        self.try_answer(|tables, faults, now| {
            settle::settle(tables, leases, settlements, retention, now, faults)
        })
    }

    fn dead(&self, after: Seq, limit: usize) -> BoxFuture<'_, Result<Vec<DeadLetter>>> {
        self.answer(|tables, _| operate::dead(tables, after, limit))
    }

    fn redrive<'a>(&'a self, ids: &'a [EventId]) -> BoxFuture<'a, Result<u64>> {
        self.answer(|tables, now| operate::redrive(tables, ids, now))
    }

    fn discard<'a>(&'a self, ids: &'a [EventId]) -> BoxFuture<'a, Result<u64>> {
        self.answer(|tables, _| operate::discard(tables, ids))
    }

    fn free_orphans<'a>(
        &'a self,
        after: Option<&'a HeldKey>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Orphans>> {
        self.answer(|tables, _| tables.free_orphans(after, limit))
    }

    fn purge(&self, retention: Duration, limit: usize) -> BoxFuture<'_, Result<u64>> {
        self.answer(|tables, now| operate::purge(tables, now.minus(retention), limit))
    }

    fn stats(&self) -> BoxFuture<'_, Result<Stats>> {
        self.answer(|tables, now| operate::stats(tables, now))
    }

    fn list<'a>(&'a self, listing: &'a Listing) -> BoxFuture<'a, Result<Vec<ListedEvent>>> {
        self.answer(|tables, now| list::list(tables, listing, now))
    }

    fn count_by_type(&self, types: usize) -> BoxFuture<'_, Result<Vec<TypeCount>>> {
        self.answer(|tables, _| list::count_by_type(tables, types))
    }

    fn status<'a>(&'a self, id: &'a EventId) -> BoxFuture<'a, Result<EventStatus>> {
        self.answer(|tables, now| operate::status(tables, id, now))
    }

    fn why<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Hold>>> {
        self.answer(|tables, _| operate::why(tables, key))
    }

    fn pause<'a>(&'a self, subject: &'a Subject, reason: &'a str) -> BoxFuture<'a, Result<Paused>> {
        if let Err(error) = subject.check() {
            return Box::pin(std::future::ready(Err(error.into())));
        }
        let paused = self.answer(|tables, now| pause::pause(tables, subject, reason, now));
        Box::pin(async move { paused.await?.ok_or_else(too_many_pauses) })
    }

    fn resume<'a>(&'a self, subject: &'a Subject) -> BoxFuture<'a, Result<Option<Pause>>> {
        self.answer(|tables, _| pause::resume(tables, subject))
    }

    fn pauses(&self) -> BoxFuture<'_, Result<Vec<Pause>>> {
        self.answer(|tables, _| pause::pauses(tables))
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = self.shared.lock();
        f.debug_struct("MemoryStore")
            .field("lanes", &tables.lane_count())
            .field("rows", &tables.rows.len())
            .finish_non_exhaustive()
    }
}
