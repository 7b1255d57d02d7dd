//! How long the database is waited for.
//!
//! A connection can be dead without anybody noticing: the host has lost its power, or something between has forgotten about it. A verb that is given
//! up may still be carried out; the engine repeats it as after a lost answer.

use std::time::Duration;

use postrider_core::{Result, StoreError, StoreErrorKind};

use crate::{
    engine::Shared,
    mutations::{self, Mutation},
    rewind,
};

/// The shortest time that a database is given, however short the lease is.
const SHARE_MIN: Duration = Duration::from_secs(2);

/// How long a purge may take: it holds no lane, and deletes as much as there is.
const PURGE: Duration = Duration::from_secs(60);

/// How long one that ends waits for each of its last verbs; its leases run out by themselves.
const FAREWELL: Duration = Duration::from_secs(5);

/// What a verb answers within a third of the lease: so a renewal that was not answered is repeated while the lease holds. Stores have limits of their own
/// a little below, and say what they waited for.
pub(crate) async fn bounded<T>(shared: &Shared, verb: impl Future<Output = Result<T>>) -> Result<T> {
    let answered = within((shared.settings.lease / 3).max(SHARE_MIN), verb).await;
    answered.inspect_err(|error| rewind::handle(shared, error))
}

/// The same for a purge.
pub(crate) async fn bounded_purge<T>(verb: impl Future<Output = Result<T>>) -> Result<T> {
    within(PURGE, verb).await
}

/// The same for one that ends.
pub(crate) async fn bounded_farewell<T>(verb: impl Future<Output = Result<T>>) -> Result<T> {
    within(FAREWELL, verb).await
}

async fn within<T>(limit: Duration, verb: impl Future<Output = Result<T>>) -> Result<T> {
    if mutations::active(Mutation::VerbsWithoutLimit) {
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
