//! Transactions whose commit takes its time, or loses its reply.

use std::time::Duration;

use postrider_core::{
    BoxFuture, Event, EventId, OwnedTx, Result, StoreError, StoreErrorKind, Target, TxSource,
    tx::{OnDuplicate, Placed},
};
use postrider_engine::memory::{MemoryStore, MemoryTx};

/// What becomes of a commit once it has taken effect.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommitFate {
    /// How long the reply takes.
    pub(super) reply_after: Duration,
    pub(super) lose_reply: bool,
}

/// Begins transactions with this outcome.
pub(super) struct Fated<'a>(pub(super) &'a MemoryStore, pub(super) CommitFate);

/// Marks what [`Fated`] begins.
pub(super) struct Simulated;

pub(super) struct FatedTx {
    inner: MemoryTx,
    outcome: CommitFate,
}

impl TxSource<Simulated> for Fated<'_> {
    type Tx = FatedTx;

    fn begin<'a>(self) -> BoxFuture<'a, Result<FatedTx>>
    where
        Self: 'a,
    {
        Box::pin(std::future::ready(Ok(FatedTx { inner: self.0.begin(), outcome: self.1 })))
    }
}

impl OwnedTx for FatedTx {
    type Conn = MemoryTx;

    fn conn(&mut self) -> &mut MemoryTx {
        &mut self.inner
    }

    fn insert<'a>(
        &'a mut self,
        target: &'a Target,
        events: &'a [Event],
        on_duplicate: OnDuplicate,
    ) -> BoxFuture<'a, Result<Vec<bool>>> {
        OwnedTx::insert(&mut self.inner, target, events, on_duplicate)
    }

    fn read_back<'a>(
        &'a mut self,
        target: &'a Target,
        ids: &'a [EventId],
    ) -> BoxFuture<'a, Result<Vec<Placed>>> {
        self.inner.read_back(target, ids)
    }

    fn commit(self) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            OwnedTx::commit(self.inner).await?;
            if !self.outcome.reply_after.is_zero() {
                tokio::time::sleep(self.outcome.reply_after).await;
            }
            if self.outcome.lose_reply {
                return Err(StoreError::new(StoreErrorKind::Unreachable, "commit", "reply lost").into());
            }
            Ok(())
        })
    }

    fn rollback(self) -> BoxFuture<'static, Result<()>> {
        OwnedTx::rollback(self.inner)
    }
}
