//! Writing through deadpool-postgres, whose transactions are those of tokio-postgres with a cache of statements beside them.

use deadpool_postgres::Transaction;
use postrider_core::{BoxFuture, CallerTx, Event, Result, Target, tx::OnDuplicate};

/// What the adapters of deadpool-postgres are known by to [`CallerTx`]. Callers never name it.
///
/// A client of the pool is no transaction, and is refused by the compiler:
///
/// ```compile_fail,E0277
/// # async fn f(client: &deadpool_postgres::Client, target: &postrider_core::Target, events: &[postrider_core::Event]) {
/// use postrider_core::{CallerTx, tx::OnDuplicate};
/// let _ = CallerTx::insert(client, target, events, OnDuplicate::Fail).await;
/// # }
/// ```
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
