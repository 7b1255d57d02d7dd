//! Receivers that reject everything: told to operators by a pause in the table, which they can end.
//!
//! The engine itself keeps such a receiver's events alive and tries one of them now and then. The pause is how `status` knows, and how an operator
//! says that what it rejects is to die after all.

use std::collections::BTreeSet;

use postrider_core::{
    sink::error_chain,
    store::{Pause, Subject},
};
use tracing::{info, warn};

use crate::{engine::Shared, lock, time_limit::answer};

/// Why it is there, as whoever asks is told.
const REASON: &str = "it rejected ten events of different keys and took none: they wait, and one of them is tried now and then";

/// What has changed since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// These reject everything, and nobody has said so.
    pub(crate) tell: Vec<String>,
    /// These take something again.
    pub(crate) end: Vec<String>,
    /// What these reject is to die, an operator says.
    pub(crate) lifted: Vec<String>,
}

/// Tells what has changed, and obeys what an operator has. What is not written is told again with the next look.
pub(crate) async fn look(shared: &Shared, pauses: &[Pause]) {
    let told: BTreeSet<&str> = pauses
        .iter()
        .filter_map(|pause| match &pause.subject {
            Subject::Rejected(name) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    let changes = lock(&shared.buffer).rejecting(&told, &shared.routes);
    for sink in changes.tell {
        match answer(shared, shared.store.pause(&Subject::Rejected(sink.clone()), REASON)).await {
            Ok(_) => {
                lock(&shared.buffer).told_rejecting(&sink, &shared.routes);
                warn!(
                    sink,
                    "a sink rejects everything: what goes to it waits, and nothing more dies until it takes something"
                );
            }
            Err(error) => {
                warn!(error = error_chain(&error), sink, "cannot tell that a sink rejects everything")
            }
        }
    }
    for sink in changes.end {
        match answer(shared, shared.store.resume(&Subject::Rejected(sink.clone()))).await {
            Ok(_) => info!(sink, "a sink no longer rejects everything"),
            Err(error) => {
                warn!(error = error_chain(&error), sink, "cannot tell that a sink takes events again")
            }
        }
    }
    if !changes.lifted.is_empty() {
        info!(sinks = ?changes.lifted, "an operator says that what is rejected is to die");
        shared.work.notify_one();
        shared.wake.notify_one();
    }
}
