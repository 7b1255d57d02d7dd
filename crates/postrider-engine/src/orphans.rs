//! Orphans: a key goes on whose head somebody has deleted from the table.
//!
//! A key waits until the outcome of its head frees it. A row that was deleted by hand has no outcome any more, so the keys that wait are searched
//! for heads that are gone, a bounded number of them at a time.

use std::{sync::Arc, time::Duration};

use postrider_core::{
    Result,
    sink::error_chain,
    store::{HeldKey, Orphans},
};
use tracing::warn;

use crate::{engine::Shared, lock, store_timeout::bounded};

/// How often to search.
const EVERY: Duration = Duration::from_secs(10);

/// Most keys that one search looks at: sixty thousand a minute.
const KEYS_MAX: usize = 10_000;

/// Most keys that one search names in the log; of the others it gives the number.
const NAMED_MAX: usize = 100;

pub(crate) async fn run(shared: Arc<Shared>) {
    let mut after = None;
    loop {
        tokio::time::sleep(EVERY).await;
        if lock(&shared.buffer).lanes_owned() == 0 {
            continue;
        }
        match search(&shared, after.as_ref()).await {
            Ok(found) => after = found.next,
            Err(error) => {
                warn!(
                    error = error_chain(&error),
                    "search for keys whose head was deleted failed: will try again"
                );
            }
        }
    }
}

/// Searches through all keys that wait. Says whether any was freed.
pub(crate) async fn free_all(shared: &Shared) -> Result<bool> {
    let (mut after, mut any) = (None, false);
    loop {
        let found = search(shared, after.as_ref()).await?;
        any |= !found.freed.is_empty();
        match found.next {
            Some(next) => after = Some(next),
            None => return Ok(any),
        }
    }
}

async fn search(shared: &Shared, after: Option<&HeldKey>) -> Result<Orphans> {
    let found = bounded(shared, shared.store.free_orphans(after, KEYS_MAX)).await?;
    for HeldKey { lane, key } in found.freed.iter().take(NAMED_MAX) {
        let key = key.as_str();
        warn!(key, lane, "the event that this key waited for was deleted: the key goes on without it");
    }
    let unnamed = found.freed.len().saturating_sub(NAMED_MAX);
    if unnamed > 0 {
        warn!(keys = unnamed, "the events that more keys waited for were deleted: they go on without them");
    }
    if !found.freed.is_empty() {
        shared.wake.notify_one();
    }
    Ok(found)
}
