//! The store conformance suite on the in-memory store, with one lane and with eight.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider_core::{Event, EventId, Result, Store, store::Lane, tx::OnDuplicate};
use postrider_engine::memory::{MemoryStore, MemoryTx};
use postrider_testkit::{
    conformance::{Failure, StoreHarness},
    store_conformance,
};

struct MemoryHarness<const LANES: u32> {
    store: MemoryStore,
    passed_us: AtomicU64,
    locked: Mutex<Option<EventId>>,
}

impl<const LANES: u32> StoreHarness for MemoryHarness<LANES> {
    type Tx = MemoryTx;

    async fn fresh() -> Result<Self, Failure> {
        let harness =
            Self { store: MemoryStore::new(LANES), passed_us: AtomicU64::new(0), locked: Mutex::default() };
        // Its clock cannot be set back to before its beginning.
        harness.pass(Duration::from_secs(365 * 86_400)).await?;
        Ok(harness)
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn pass(&self, time: Duration) -> Result<(), Failure> {
        let time_us = u64::try_from(time.as_micros())?;
        let passed_us = self.passed_us.fetch_add(time_us, Relaxed) + time_us;
        self.store.set_clock_offset(Duration::from_micros(passed_us));
        Ok(())
    }

    async fn set_back(&self, by: Duration) -> Result<(), Failure> {
        let by_us = u64::try_from(by.as_micros())?;
        let passed_us = self.passed_us.fetch_sub(by_us, Relaxed) - by_us;
        self.store.set_clock_offset(Duration::from_micros(passed_us));
        Ok(())
    }

    async fn begin(&self) -> Result<MemoryTx, Failure> {
        Ok(self.store.begin())
    }

    async fn insert(
        &self,
        tx: &mut MemoryTx,
        events: &[Event],
        on_duplicate: OnDuplicate,
    ) -> Result<Vec<bool>> {
        tx.insert(self.store.target(), events, on_duplicate).await
    }

    async fn put(&self, tx: &mut MemoryTx, name: &str) -> Result<(), Failure> {
        tx.put(name, "");
        Ok(())
    }

    async fn has(&self, name: &str) -> Result<bool, Failure> {
        Ok(self.store.get(name).is_some())
    }

    async fn fail_statement(&self, tx: &mut MemoryTx) -> Result<(), Failure> {
        let twice = Event::json_text("Twice", "{}").build()?;
        let failed = tx.insert(self.store.target(), &[twice.clone(), twice], OnDuplicate::Fail).await;
        assert!(failed.is_err());
        Ok(())
    }

    async fn savepoint(&self, tx: &mut MemoryTx) -> Result<(), Failure> {
        tx.savepoint();
        Ok(())
    }

    async fn rollback_to_savepoint(&self, tx: &mut MemoryTx) -> Result<(), Failure> {
        tx.rollback_to_savepoint();
        Ok(())
    }

    async fn commit(&self, tx: MemoryTx) -> Result<(), Failure> {
        Ok(tx.commit().await?)
    }

    async fn rollback(&self, tx: MemoryTx) -> Result<(), Failure> {
        tx.rollback().await;
        Ok(())
    }

    async fn lock_row(&self, event: &Event) -> Result<bool, Failure> {
        self.store.lock_row(event.id());
        *self.locked.lock().unwrap_or_else(PoisonError::into_inner) = Some(event.id().clone());
        Ok(true)
    }

    async fn lock_lane(&self, lane: Lane) -> Result<bool, Failure> {
        self.store.lock_lane(lane, true);
        Ok(LANES > 1)
    }

    async fn unlock_row(&self) -> Result<(), Failure> {
        (0..LANES).for_each(|lane| self.store.lock_lane(lane, false));
        let locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner).take();
        locked.iter().for_each(|id| self.store.unlock_row(id));
        Ok(())
    }

    async fn delete_row(&self, event: &Event) -> Result<bool, Failure> {
        self.store.delete_row(event.id());
        Ok(true)
    }

    async fn insert_undecodable(&self) -> Result<EventId, Failure> {
        Ok(self.store.insert_undecodable("Broken", "the headers are no JSON"))
    }
}

mod one_lane {
    use super::*;
    store_conformance!(MemoryHarness<1>);
}

mod eight_lanes {
    use super::*;
    store_conformance!(MemoryHarness<8>);
}
