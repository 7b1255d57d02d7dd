//! Frees keys whose head was deleted from the table.
//!
//! A key waits for the outcome of its head. A row that was deleted by hand has no outcome any more, so waiting
//! keys are searched for missing heads, a bounded number at a time.

use std::{sync::Arc, time::Duration};

use postrider_core::{
    Result,
    sink::error_chain,
    store::{HeldKey, Orphans},
};
use tracing::warn;

use crate::{lock, shared::Shared, store_timeout::bounded};

/// How often to search.
const EVERY: Duration = Duration::from_secs(10);

/// Most keys of one search: sixty thousand a minute.
const KEYS_MAX: usize = 10_000;

/// Most keys that one search logs by name. It logs the number of the others.
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
                warn!(error = error_chain(&error), "search for keys with a deleted head failed: retrying");
            }
        }
    }
}

/// Searches all waiting keys. Returns whether any was freed.
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
        warn!(key, lane, "head of the key was deleted: the key goes on without it");
    }
    let unnamed = found.freed.len().saturating_sub(NAMED_MAX);
    if unnamed > 0 {
        warn!(keys = unnamed, "heads of further keys were deleted: the keys go on without them");
    }
    if !found.freed.is_empty() {
        shared.wake.notify_one();
    }
    Ok(found)
}
