//! Pauses: what an operator has told to wait.
//!
//! **State:** the list as it was last read, in the buffer. **Term:** it is read once a second, so that every instance obeys within about
//! that. **When it fails:** what was read last holds for as long as a lease; then nothing is sent until it can be read again. An engine that
//! has never read it sends nothing either.

use std::{sync::Arc, time::Duration};

use postrider_core::{Error, Result, sink::error_chain};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::{engine::Shared, lock, rejection_notices, store_timeout::bounded};

/// How often an engine looks at what is paused.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often it is told that this fails.
const TELL_EVERY: Duration = Duration::from_secs(60);

pub(crate) async fn run(shared: Arc<Shared>) {
    if !shared.store.features().keeps.pauses {
        return;
    }
    let mut failures = ReadFailures::default();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        match look(&shared).await {
            Ok(()) => failures = ReadFailures::default(),
            Err(error) => failures.add(&shared, &error),
        }
    }
}

/// Looks in a row that have failed.
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
        if self.warned_at.is_none_or(|told| now - told >= TELL_EVERY) {
            self.warned_at = Some(now);
            let limit = shared.settings.lease;
            warn!(
                error = error_chain(error),
                "cannot read what is paused: what was known holds for {limit:?}, then nothing is sent"
            );
        }
    }
}

/// Reads what is paused, obeys, and tells the others if something has changed.
pub(crate) async fn look(shared: &Shared) -> Result<()> {
    if read(shared).await? {
        // What was resumed is there to be sent, or to be read; and what was left to the table has made room.
        shared.work.notify_one();
        shared.wake.notify_one();
        shared.progress.notify_waiters();
    }
    Ok(())
}

/// Reads what is paused, and says whether something has changed. One at a time, so that an older list never follows a newer one.
pub(crate) async fn read(shared: &Shared) -> Result<bool> {
    if !shared.store.features().keeps.pauses {
        return Ok(false);
    }
    let _turn = shared.pause_turn.lock().await;
    let pauses = bounded(shared, shared.store.pauses()).await?;
    let changes = lock(&shared.buffer).set_pauses(&pauses, &shared.routes);
    rejection_notices::look(shared, &pauses).await;
    let Some(changes) = changes else { return Ok(false) };
    changes.began.iter().for_each(|subject| info!(%subject, "paused"));
    changes.ended.iter().for_each(|subject| info!(%subject, "resumed"));
    Ok(true)
}
