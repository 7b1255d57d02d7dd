//! Renewing leases of which another session may have locked some.

use std::{future::Future, sync::Arc, time::Duration};

use postrider_core::{
    Result,
    store::{Lease, Renewed},
};
use tokio::time::Instant;

/// How long to wait before what was locked is tried again: a settle holds its lanes for milliseconds. Doubled each time, up to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(64));

/// Renews what can be renewed, and again what another session had locked, for `limit` in all. Waiting for a lock instead would leave the others without
/// their renewal.
pub(crate) async fn renewed<F>(
    limit: Duration,
    leases: &[Lease],
    renew: impl Fn(Arc<[Lease]>) -> F,
) -> Result<Renewed>
where
    F: Future<Output = Result<Renewed>>,
{
    let (until, mut pause) = (Instant::now() + limit, PAUSE.0);
    let mut all = renew(leases.into()).await?;
    while !all.locked.is_empty() && Instant::now() < until {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
        let left: Vec<Lease> =
            leases.iter().filter(|lease| all.locked.contains(&lease.lane)).copied().collect();
        // What was renewed is renewed, whatever becomes of the rest.
        let Ok(again) = renew(left.into()).await else { break };
        all.held.extend(again.held);
        all.locked = again.locked;
    }
    all.held.sort_unstable();
    Ok(all)
}
