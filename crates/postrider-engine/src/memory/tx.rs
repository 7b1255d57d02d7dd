//! Transactions on the in-memory store.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use postrider_core::{
    BoxFuture, CallerTx, Error, Event, EventId, OwnedTx, Result, StoreError, StoreErrorKind, Target,
    TxSource,
    event::Due,
    store::Seq,
    tx::{Dialect, OnDuplicate, Placed},
};

use super::{MemoryStore, Shared, row::Row};

/// The marker of this store's transactions.
#[derive(Debug)]
pub enum Memory {}

/// A transaction on a [`MemoryStore`]: events, and a small area for business data that commits with them.
///
/// An event draws its place in the order when it is inserted and is seen when the transaction commits, so that a
/// transaction can commit behind others that began later, as on a database server. Dropping it rolls it back.
pub struct MemoryTx {
    shared: Arc<Shared>,
    number: u64,
    /// How often the store had gone back in time when it began.
    times_back: u64,
    rows: Vec<(Seq, Row)>,
    /// Places in `rows` by id.
    ids: BTreeMap<EventId, usize>,
    business: Vec<(String, String)>,
    /// How much of rows and business there was at each savepoint.
    savepoints: Vec<(usize, usize)>,
}

impl MemoryTx {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let times_back = shared.faults().times_back;
        Self {
            shared,
            times_back,
            number: NUMBERS.fetch_add(1, Relaxed),
            rows: Vec::new(),
            ids: BTreeMap::new(),
            business: Vec::new(),
            savepoints: Vec::new(),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Writes business data: seen by [`MemoryStore::get`] once this transaction has committed.
    pub fn put(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.business.push((name.into(), value.into()));
    }

    /// Business data as this transaction sees it.
    pub fn get(&self, name: &str) -> Option<String> {
        let own = self.business.iter().rev().find(|(put, _)| put == name).map(|(_, value)| value.clone());
        own.or_else(|| self.shared.lock().business.get(name).cloned())
    }

    /// Marks a point that one can go back to.
    pub fn savepoint(&mut self) {
        self.savepoints.push((self.rows.len(), self.business.len()));
    }

    /// Goes back to the latest savepoint, which stays. Without one, to the beginning.
    pub fn rollback_to_savepoint(&mut self) {
        let (rows, business) = self.savepoints.last().copied().unwrap_or_default();
        self.rows.truncate(rows);
        self.ids.retain(|_, place| *place < rows);
        self.business.truncate(business);
    }

    /// Inserts events, in order; all of them or none. As [`CallerTx::insert`].
    pub async fn insert(
        &mut self,
        target: &Target,
        events: &[Event],
        on_duplicate: OnDuplicate,
    ) -> Result<Vec<bool>> {
        self.insert_now(target, events, on_duplicate)
    }

    /// Commits. Fails, and rolls back, if another transaction has committed an id of this one meanwhile.
    pub async fn commit(self) -> Result<()> {
        self.commit_now()
    }

    /// Rolls back, as dropping it does.
    pub async fn rollback(self) {}

    fn insert_now(
        &mut self,
        target: &Target,
        events: &[Event],
        on_duplicate: OnDuplicate,
    ) -> Result<Vec<bool>> {
        target.require(Dialect::Memory, "memory")?;
        let now = self.shared.clock.now();
        let mut tables = self.shared.lock();
        self.check()?;
        let lanes = tables.lane_count();
        let (rows_before, mut fresh) = (self.rows.len(), Vec::with_capacity(events.len()));
        for event in events {
            let known = tables.seq_of(event.id().as_str()).is_some() || self.ids.contains_key(event.id());
            if known && on_duplicate == OnDuplicate::Fail {
                self.rows.truncate(rows_before);
                self.ids.retain(|_, place| *place < rows_before);
                return Err(Error::DuplicateId { id: Some(event.id().clone()) });
            }
            fresh.push(!known);
            if known {
                continue;
            }
            self.ids.insert(event.id().clone(), self.rows.len());
            let mut row = Row::new(Ok(event.clone()), lanes, now);
            row.lane = target.lane_hint(event).map_or(row.lane, |hint| hint % lanes);
            row.available_at = match event.due() {
                Due::AtOnce => now,
                Due::At(time) => time,
                Due::After(delay) => now.plus(delay),
            };
            self.rows.push((tables.draw_seq(self.number), row));
        }
        Ok(fresh)
    }

    /// An error if the store went back in time since it began, which ends every transaction.
    fn check(&self) -> Result<()> {
        if self.shared.faults().times_back == self.times_back {
            return Ok(());
        }
        let what = "the transaction has ended";
        Err(StoreError::new(StoreErrorKind::Unreachable, what, "an earlier state was restored").into())
    }

    fn commit_now(mut self) -> Result<()> {
        let mut tables = self.shared.lock();
        self.check()?;
        let taken = self.rows.iter().find(|(_, row)| tables.seq_of(row.id().as_str()).is_some());
        if let Some((_, row)) = taken {
            return Err(Error::DuplicateId { id: Some(row.id().clone()) });
        }
        for (seq, row) in std::mem::take(&mut self.rows) {
            tables.add(seq, row);
        }
        tables.business.extend(std::mem::take(&mut self.business));
        tables.close(self.number);
        Ok(())
    }
}

impl Drop for MemoryTx {
    fn drop(&mut self) {
        self.shared.lock().close(self.number);
    }
}

impl fmt::Debug for MemoryTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTx").field("events", &self.rows.len()).finish_non_exhaustive()
    }
}

impl CallerTx<Memory> for &mut MemoryTx {
    fn insert<'a>(
        self,
        target: &'a Target,
        events: &'a [Event],
        on_duplicate: OnDuplicate,
    ) -> BoxFuture<'a, Result<Vec<bool>>>
    where
        Self: 'a,
    {
        Box::pin(std::future::ready(self.insert_now(target, events, on_duplicate)))
    }
}

impl TxSource<Memory> for &MemoryStore {
    type Tx = MemoryTx;

    fn begin<'a>(self) -> BoxFuture<'a, Result<MemoryTx>>
    where
        Self: 'a,
    {
        Box::pin(std::future::ready(Ok(MemoryStore::begin(self))))
    }
}

impl OwnedTx for MemoryTx {
    type Conn = Self;

    fn conn(&mut self) -> &mut Self {
        self
    }

    fn insert<'a>(
        &'a mut self,
        target: &'a Target,
        events: &'a [Event],
        on_duplicate: OnDuplicate,
    ) -> BoxFuture<'a, Result<Vec<bool>>> {
        Box::pin(std::future::ready(self.insert_now(target, events, on_duplicate)))
    }

    fn read_back<'a>(
        &'a mut self,
        _target: &'a Target,
        ids: &'a [EventId],
    ) -> BoxFuture<'a, Result<Vec<Placed>>> {
        let place = |id: &EventId| {
            let (seq, row) = self.rows.get(*self.ids.get(id)?)?;
            Some(Placed { id: id.clone(), seq: *seq, lane: row.lane })
        };
        Box::pin(std::future::ready(Ok(ids.iter().filter_map(place).collect())))
    }

    fn commit(self) -> BoxFuture<'static, Result<()>> {
        Box::pin(std::future::ready(self.commit_now()))
    }

    fn rollback(self) -> BoxFuture<'static, Result<()>> {
        drop(self);
        Box::pin(std::future::ready(Ok(())))
    }
}
