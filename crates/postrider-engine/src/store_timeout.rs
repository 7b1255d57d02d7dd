//! Limits how long the engine waits for the store.
//!
//! A connection can be dead without notice: the host lost power, or a device in between forgot it. A call that
//! is given up may still take effect; the engine repeats it as after a lost answer.

use std::time::Duration;

use postrider_core::{Result, StoreError, StoreErrorKind};

use crate::{
    mutations::{self, Mutation},
    rewind,
    shared::Shared,
};

/// Shortest time limit, however short the lease is.
const SHARE_MIN: Duration = Duration::from_secs(2);

/// Time limit of a purge: it holds no lane, and deletes as much as there is.
const PURGE: Duration = Duration::from_secs(60);

/// Time limit of each last call of an engine that ends. Its leases run out by themselves.
const FAREWELL: Duration = Duration::from_secs(5);

/// Limits a call to a third of the lease, so that an unanswered renewal is repeated while the lease holds.
/// Stores have slightly shorter limits of their own, and report what they waited for.
pub(crate) async fn bounded<T>(shared: &Shared, verb: impl Future<Output = Result<T>>) -> Result<T> {
    let answered = within((shared.settings.lease / 3).max(SHARE_MIN), verb).await;
    answered.inspect_err(|error| rewind::handle(shared, error))
}

/// Limits a purge.
pub(crate) async fn bounded_purge<T>(verb: impl Future<Output = Result<T>>) -> Result<T> {
    within(PURGE, verb).await
}

/// Limits a last call of an engine that ends.
pub(crate) async fn bounded_farewell<T>(verb: impl Future<Output = Result<T>>) -> Result<T> {
    within(FAREWELL, verb).await
}

async fn within<T>(limit: Duration, verb: impl Future<Output = Result<T>>) -> Result<T> {
    if mutations::active(Mutation::StoreCallsWithoutLimit) {
        return verb.await;
    }
    match tokio::time::timeout(limit, verb).await {
        Ok(answered) => answered,
        Err(_) => {
            let what = format!("the database has not answered for {limit:?}");
            Err(StoreError::new(StoreErrorKind::Unreachable, what, "given up").into())
        }
    }
}
