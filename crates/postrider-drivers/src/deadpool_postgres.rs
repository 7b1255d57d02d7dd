//! Writing through deadpool-postgres, whose transactions are those of tokio-postgres with a cache of statements beside them.

use deadpool_postgres::Transaction;
use postrider_core::{BoxFuture, CallerTx, Event, Result, Target, tx::OnDuplicate};

/// What the adapters of deadpool-postgres are known by to [`CallerTx`]. Callers never name it.
#[derive(Debug, Clone, Copy)]
pub struct DeadpoolPostgres;

impl CallerTx<DeadpoolPostgres> for &Transaction<'_> {
    fn insert<'a>(
        self,
        target: &'a Target,
        events: &'a [Event],
        on_duplicate: OnDuplicate,
    ) -> BoxFuture<'a, Result<Vec<bool>>>
    where
        Self: 'a,
    {
        let tx: &tokio_postgres::Transaction<'_> = self;
        tx.insert(target, events, on_duplicate)
    }
}
