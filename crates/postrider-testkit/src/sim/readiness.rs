//! Somebody who asks an engine again and again whether it is ready.

use std::{sync::Arc, time::Duration};

use postrider_engine::Outbox;
use tokio::time::Instant;

use super::history::{Happening, History, Name};

/// How often it is asked.
pub(super) const EVERY: Duration = Duration::from_millis(50);

/// Notes each change of the answer, for so long. The task ends by itself.
pub(super) fn watch(outbox: &Outbox, by: &Name, lasts: Duration, history: &Arc<History>) {
    let (outbox, by, history) = (outbox.clone(), by.clone(), history.clone());
    let until = Instant::now() + lasts;
    tokio::spawn(async move {
        let mut last = None;
        while Instant::now() < until {
            let ready = outbox.health().is_ready();
            if last.replace(ready) != Some(ready) {
                history.note(Happening::Ready { by: by.clone(), ready });
            }
            tokio::time::sleep(EVERY).await;
        }
    });
}
