//! Pauses: what an operator has told to wait.
//!
//! **State:** the list as it was last read, in the buffer. **Term:** it is read once a second, so that every instance obeys within about
//! that. **When it fails:** what was read last holds; an engine that has never read it sends nothing. While the database cannot be
//! reached, a lease runs out and ends what a pause cannot.

use std::{sync::Arc, time::Duration};

use postrider_core::{Result, sink::error_chain};
use tracing::{info, warn};

use crate::{engine::Shared, lock};

/// How often an engine looks at what is paused.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(crate) async fn run(shared: Arc<Shared>) {
    if !shared.store.features().keeps.pauses {
        return;
    }
    let mut failed = false;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let looked = look(&shared).await;
        if let Some(error) = looked.as_ref().err().filter(|_| !failed) {
            warn!(error = error_chain(error), "cannot read what is paused: what was known last holds");
        }
        failed = looked.is_err();
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
    let pauses = shared.store.pauses().await?;
    let changes = lock(&shared.buffer).set_pauses(&pauses, &shared.routes);
    let Some(changes) = changes else { return Ok(false) };
    changes.began.iter().for_each(|subject| info!(%subject, "paused"));
    changes.ended.iter().for_each(|subject| info!(%subject, "resumed"));
    Ok(true)
}
