//! Giving lanes back of which another session may have locked some.

use std::{future::Future, sync::Arc, time::Duration};

use postrider_core::{
    Result,
    store::{Lane, Lease, Seq},
};

/// The first and the longest wait for what is locked. A claim of ours holds its lanes for less than all of them together, and anyone who gives lanes back
/// has leases to renew.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// Gives back what nobody has locked at once, and tries the rest again for a moment. Answers with the lanes that stayed locked.
pub(crate) async fn released<F>(
    lanes: &[(Lease, Seq)],
    release: impl Fn(Arc<[(Lease, Seq)]>) -> F,
) -> Result<Vec<Lane>>
where
    F: Future<Output = Result<Vec<Lane>>>,
{
    let mut locked = release(lanes.into()).await?;
    let mut pause = PAUSE;
    while !locked.is_empty() && pause <= PAUSE_MAX {
        tokio::time::sleep(pause).await;
        pause *= 2;
        let left = lanes.iter().filter(|(lease, _)| locked.contains(&lease.lane));
        // What was given back is given back, whatever becomes of the rest.
        let Ok(again) = release(left.copied().collect()).await else { break };
        locked = again;
    }
    Ok(locked)
}
