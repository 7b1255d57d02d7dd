//! How long the database is waited for.
//!
//! A connection can be dead without anybody noticing: the host has lost its power, or something between has forgotten about it. Whoever
//! waits for an answer then waits for ever. A verb that is given up may still be carried out; the engine repeats it as after a lost answer.

use std::time::Duration;

use postrider_core::{Result, StoreError, StoreErrorKind};

use crate::{engine::Shared, went_back};

/// An answer that comes later than after so many leases, and than this, comes no more. Leases have run out long before: it is not this
/// that keeps order.
const LEASES: u32 = 4;
const AT_LEAST: Duration = Duration::from_secs(30);

/// How long one that ends waits for each of its last words; its leases run out by themselves.
const FAREWELL: Duration = Duration::from_secs(5);

/// What a verb answers, or an error once nobody believes in an answer any more.
pub(crate) async fn answer<T>(shared: &Shared, verb: impl Future<Output = Result<T>>) -> Result<T> {
    let answered = within((shared.settings.lease * LEASES).max(AT_LEAST), verb).await;
    answered.inspect_err(|error| went_back::heed(shared, error))
}

/// The same for one that ends.
pub(crate) async fn farewell<T>(verb: impl Future<Output = Result<T>>) -> Result<T> {
    within(FAREWELL, verb).await
}

async fn within<T>(limit: Duration, verb: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(limit, verb).await {
        Ok(answered) => answered,
        Err(_) => {
            let what = format!("the database has not answered for {limit:?}");
            Err(StoreError::new(StoreErrorKind::Unreachable, what, "given up").into())
        }
    }
}
