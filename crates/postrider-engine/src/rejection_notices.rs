//! Receivers that reject everything: told to operators by a pause in the table, and what operators say to it.
//!
//! The engine itself keeps such a receiver's events alive and tries one of them now and then. The pause is how `status` knows. An operator who wants
//! them to die pauses the brake, which every instance obeys for an hour.

use std::{collections::BTreeMap, time::Duration};

use postrider_core::{
    sink::error_chain,
    store::{Pause, Subject},
};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::{engine::Shared, lock, store_timeout::bounded};

/// Why it is there, as whoever asks is told.
const REASON: &str = "it failed events of ten or more different keys and took none: what goes to it waits, and one event is tried now and then";

/// How long a brake is off.
const BRAKE_OFF_FOR: Duration = Duration::from_secs(3600);

/// Since when brakes are off, as this process has seen it.
#[derive(Debug, Default)]
pub(crate) struct ReleasedBrakes(BTreeMap<String, Instant>);

/// What has changed since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RejectionChanges {
    /// These reject everything, and nobody has said so.
    pub(crate) tell: Vec<String>,
    /// These take something again.
    pub(crate) end: Vec<String>,
    /// An operator has taken a brake off: what waited can go.
    pub(crate) opened: bool,
}

/// Tells what has changed, and obeys what an operator has. What is not written is told again with the next look.
pub(crate) async fn look(shared: &Shared, pauses: &[Pause]) {
    let now = lock(&shared.buffer).database_now();
    let told: Vec<(String, Duration)> = pauses
        .iter()
        .filter_map(|pause| match &pause.subject {
            Subject::Rejected(name) => {
                Some((name.clone(), now.map_or(Duration::ZERO, |now| now.since(pause.since))))
            }
            _ => None,
        })
        .collect();
    let mut off: Vec<String> = pauses
        .iter()
        .filter_map(|pause| match &pause.subject {
            Subject::Brake(name) => Some(name.clone()),
            _ => None,
        })
        .collect();
    let over = lock(&shared.brakes).over(&off, Instant::now());
    off.retain(|sink| !over.contains(sink));
    for sink in over {
        end(shared, Subject::Brake(sink)).await;
    }
    let changes = lock(&shared.buffer).rejecting(&told, &off, &shared.routes);
    if changes.opened {
        shared.breaker_metrics.report_all(shared);
        shared.work.notify_one();
        shared.wake.notify_one();
    }
    let mut told: Vec<String> = told.into_iter().map(|(sink, _)| sink).collect();
    for sink in changes.tell {
        match bounded(shared, shared.store.pause(&Subject::Rejected(sink.clone()), REASON)).await {
            Ok(_) => {
                lock(&shared.buffer).notice_raised(&sink, &shared.routes);
                warn!(
                    sink,
                    "a sink rejects everything: what goes to it waits, and nothing more dies until it takes something"
                );
                told.push(sink);
            }
            Err(error) => {
                warn!(error = error_chain(&error), sink, "cannot tell that a sink rejects everything");
            }
        }
    }
    for sink in changes.end {
        info!(sink, "a sink no longer rejects everything");
        told.retain(|told| *told != sink);
        end(shared, Subject::Rejected(sink)).await;
    }
    shared.metrics.rejecting(&told);
}

async fn end(shared: &Shared, subject: Subject) {
    if let Err(error) = bounded(shared, shared.store.resume(&subject)).await {
        warn!(error = error_chain(&error), %subject, "cannot say that this is over");
    }
}

impl ReleasedBrakes {
    /// Those of the brakes that are off which have been for long enough.
    fn over(&mut self, off: &[String], now: Instant) -> Vec<String> {
        self.0.retain(|sink, _| off.contains(sink));
        for sink in off {
            self.0.entry(sink.clone()).or_insert(now);
        }
        let over = self.0.iter().filter(|(_, since)| now.saturating_duration_since(**since) >= BRAKE_OFF_FOR);
        over.map(|(sink, _)| sink.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brake_is_off_for_an_hour() {
        let (mut brakes, now, off) = (ReleasedBrakes::default(), Instant::now(), ["shop".to_owned()]);
        assert!(brakes.over(&off, now).is_empty());
        assert!(brakes.over(&off, now + BRAKE_OFF_FOR / 2).is_empty());
        assert_eq!(brakes.over(&off, now + BRAKE_OFF_FOR), off);
        // Taken off once more, it is off for another hour.
        assert!(brakes.over(&[], now + BRAKE_OFF_FOR).is_empty());
        assert!(brakes.over(&off, now + BRAKE_OFF_FOR * 2).is_empty());
    }
}
