//! What the suite asks of a store's tests.

use std::{future::Future, sync::Arc, time::Duration};

use postrider_core::{
    Event, EventId, Result, Store,
    store::{Lane, Seq},
    tx::OnDuplicate,
};

use super::Failure;

/// A store under test, with the transactions that a program would write through.
///
/// Beside its events a transaction writes business rows: names in a table of the harness's own. They are what atomicity is
/// judged by.
pub trait StoreHarness: Sized + Send + Sync + 'static {
    /// A caller's transaction that is open. Dropping it rolls it back.
    type Tx: Send;

    /// Whether the store can [peek](Store::peek).
    const PEEKS: bool = true;

    /// An empty, migrated store that no other test sees.
    fn fresh() -> impl Future<Output = Result<Self, Failure>> + Send;

    /// The store.
    fn store(&self) -> Arc<dyn Store>;

    /// Lets time pass for the store, without sleeping: by moving its clock, or by moving every stored time back.
    fn pass(&self, time: Duration) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Sets the store's clock back: every time that is stored lies so much further ahead.
    fn set_back(&self, _by: Duration) -> impl Future<Output = Result<(), Failure>> + Send {
        std::future::ready(Err("this harness cannot set its clock back".into()))
    }

    /// Begins a transaction that will write.
    fn begin(&self) -> impl Future<Output = Result<Self::Tx, Failure>> + Send;

    /// Inserts events through the driver's [`CallerTx`](postrider_core::CallerTx).
    fn insert(
        &self,
        tx: &mut Self::Tx,
        events: &[Event],
        on_duplicate: OnDuplicate,
    ) -> impl Future<Output = Result<Vec<bool>>> + Send;

    /// Writes a business row.
    fn put(&self, tx: &mut Self::Tx, name: &str) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Whether this business row is committed.
    fn has(&self, name: &str) -> impl Future<Output = Result<bool, Failure>> + Send;

    /// Runs a statement that fails, and says nothing of it.
    fn fail_statement(&self, tx: &mut Self::Tx) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Sets a savepoint.
    fn savepoint(&self, tx: &mut Self::Tx) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Goes back to the savepoint.
    fn rollback_to_savepoint(&self, tx: &mut Self::Tx) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Commits. Some databases answer Ok and have rolled back; the table is the truth.
    fn commit(&self, tx: Self::Tx) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Rolls back.
    fn rollback(&self, tx: Self::Tx) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Commits a row that decodes to no event (malformed headers, say), and gives its id.
    fn insert_undecodable(&self) -> impl Future<Output = Result<EventId, Failure>> + Send;

    /// Commits a plain `INSERT` that another program would send, in SQL that every database understands; none where the table is not
    /// ours or understands no SQL.
    fn insert_plain(&self, _sql: &str) -> impl Future<Output = Option<Result<(), Failure>>> + Send {
        async { None }
    }

    /// Locks the row of an event from another transaction, as `SELECT … FOR UPDATE` in somebody's terminal does, until it is
    /// [unlocked](StoreHarness::unlock_row). False if the database knows no locks of rows.
    fn lock_row(&self, event: &Event) -> impl Future<Output = Result<bool, Failure>> + Send {
        let _ = event;
        std::future::ready(Ok(false))
    }

    /// Locks the row of a lane in the same way. False if the database knows no locks of rows, or the store has one lane.
    fn lock_lane(&self, lane: Lane) -> impl Future<Output = Result<bool, Failure>> + Send {
        let _ = lane;
        std::future::ready(Ok(false))
    }

    /// Ends the lock.
    fn unlock_row(&self) -> impl Future<Output = Result<(), Failure>> + Send {
        std::future::ready(Ok(()))
    }

    /// Deletes the row of an event, as a `DELETE` in somebody's terminal does. False if the table is not ours.
    fn delete_row(&self, _event: &Event) -> impl Future<Output = Result<bool, Failure>> + Send {
        std::future::ready(Ok(false))
    }

    /// Takes all events back that were written, and their numbers, as a failover that lost them would. False if that cannot be done.
    fn go_back(&self) -> impl Future<Output = Result<bool, Failure>> + Send {
        std::future::ready(Ok(false))
    }

    /// Has the next event drawn this number, as an `ALTER TABLE` would. False if nobody can say which number that is.
    fn number_from(&self, _seq: Seq) -> impl Future<Output = Result<bool, Failure>> + Send {
        std::future::ready(Ok(false))
    }

    /// Writes events in one transaction and commits it.
    fn write(&self, events: &[Event]) -> impl Future<Output = Result<(), Failure>> + Send {
        async move {
            let mut tx = self.begin().await?;
            self.insert(&mut tx, events, OnDuplicate::Fail).await?;
            self.commit(tx).await
        }
    }
}
