//! Renewing leases of which another session may have locked some.

use std::{future::Future, sync::Arc, time::Duration};

use postrider_core::{
    Result,
    store::{Lease, Renewed},
};

/// What a renewal does about a row that is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locked {
    Skip,
    Wait,
}

/// How long a settle of ours holds its lanes, as a rule.
const PAUSE: Duration = Duration::from_millis(2);

/// Renews what nobody has locked at once. The rest is waited for, each session's turn being soon where it is our own settles and claims that are in
/// the way; what is locked for longer than a wait may be is said to be. So a lane that somebody keeps locked leaves no other without its renewal.
pub(crate) async fn renewed<F>(leases: &[Lease], renew: impl Fn(Arc<[Lease]>, Locked) -> F) -> Result<Renewed>
where
    F: Future<Output = Result<Renewed>>,
{
    let mut all = renew(leases.into(), Locked::Skip).await?;
    for locked in [Locked::Skip, Locked::Wait] {
        if all.locked.is_empty() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        let left = leases.iter().filter(|lease| all.locked.contains(&lease.lane));
        // What was renewed is renewed, whatever becomes of the rest.
        let Ok(again) = renew(left.copied().collect(), locked).await else { break };
        all.held.extend(again.held);
        all.locked = again.locked;
    }
    all.held.sort_unstable();
    Ok(all)
}
