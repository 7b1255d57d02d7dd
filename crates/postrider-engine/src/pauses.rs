//! Reads what operators have paused, and obeys.
//!
//! **State:** the list as it was last read, in the buffer. **Term:** it is read once a second, so every
//! instance obeys within about a second. **When it fails:** the last list holds for as long as a lease; after
//! that nothing is sent until it can be read. An engine that has never read it sends nothing either.

use std::{sync::Arc, time::Duration};

use postrider_core::{Error, Result, sink::error_chain};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::{lock, rejection_notices, shared::Shared, store_timeout::bounded};

/// How often the pauses are read.
const READ_EVERY: Duration = Duration::from_secs(1);

/// How often failures are logged at most.
const WARN_EVERY: Duration = Duration::from_secs(60);

pub(crate) async fn run(shared: Arc<Shared>) {
    if !shared.store.features().keeps.pauses {
        return;
    }
    let mut failures = ReadFailures::default();
    loop {
        tokio::time::sleep(READ_EVERY).await;
        match refresh(&shared).await {
            Ok(()) => failures = ReadFailures::default(),
            Err(error) => failures.add(&shared, &error),
        }
    }
}

/// Failed reads in a row.
#[derive(Default)]
struct ReadFailures {
    since: Option<Instant>,
    warned_at: Option<Instant>,
}

impl ReadFailures {
    fn add(&mut self, shared: &Shared, error: &Error) {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        if now - since >= shared.settings.lease {
            lock(&shared.buffer).wait_for_pauses();
        }
        if self.warned_at.is_none_or(|warned| now - warned >= WARN_EVERY) {
            self.warned_at = Some(now);
            let limit = shared.settings.lease;
            warn!(
                error = error_chain(error),
                "reading pauses failed: the known ones hold for {limit:?}, then nothing is sent"
            );
        }
    }
}

/// Reads the pauses, obeys, and notifies the other tasks of changes.
pub(crate) async fn refresh(shared: &Shared) -> Result<()> {
    if read(shared).await? {
        // Resumed events are ready to be sent or read, and those that went back to the table have made room.
        shared.work.notify_one();
        shared.wake.notify_one();
        shared.progress.notify_waiters();
    }
    Ok(())
}

/// Reads the pauses. Returns whether anything has changed. One read at a time, so that an older list never
/// replaces a newer one.
pub(crate) async fn read(shared: &Shared) -> Result<bool> {
    if !shared.store.features().keeps.pauses {
        return Ok(false);
    }
    let _turn = shared.pause_turn.lock().await;
    let pauses = bounded(shared, shared.store.pauses()).await?;
    let changes = lock(&shared.buffer).set_pauses(&pauses, &shared.routes);
    rejection_notices::update(shared, &pauses).await;
    let Some(changes) = changes else { return Ok(false) };
    changes.began.iter().for_each(|subject| info!(%subject, "paused"));
    changes.ended.iter().for_each(|subject| info!(%subject, "resumed"));
    Ok(true)
}
