//! Tells operators of receivers that reject everything, by a pause in the table, and obeys their answer.
//!
//! The engine keeps the events of such a receiver alive and tries one from time to time. The pause is how
//! `status` knows. An operator who wants the events to die pauses the brake, which every instance obeys for an
//! hour.

use std::{collections::BTreeMap, time::Duration};

use postrider_core::{
    sink::error_chain,
    store::{Pause, Subject},
};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::{lock, shared::Shared, store_timeout::bounded};

/// The reason that operators see.
const REASON: &str = "it failed events of ten or more different keys and took none: what goes to it waits, and one event is tried now and then";

/// How long a brake stays released.
const BRAKE_OFF_FOR: Duration = Duration::from_secs(3600);

/// Since when brakes are released, as this process has seen it.
#[derive(Debug, Default)]
pub(crate) struct ReleasedBrakes(BTreeMap<String, Instant>);

/// Writes what has changed, and obeys operators. What could not be written is retried with the next look.
pub(crate) async fn update(shared: &Shared, pauses: &[Pause]) {
    let now = lock(&shared.buffer).database_now();
    let raised: Vec<(String, Duration)> = pauses
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
        clear(shared, Subject::Brake(sink)).await;
    }
    let changes = lock(&shared.buffer).rejecting(&raised, &off, &shared.routes);
    if changes.opened {
        shared.breaker_metrics.report_all(shared);
        shared.work.notify_one();
        shared.wake.notify_one();
    }
    let mut raised: Vec<String> = raised.into_iter().map(|(sink, _)| sink).collect();
    for sink in changes.raise {
        match bounded(shared, shared.store.pause(&Subject::Rejected(sink.clone()), REASON)).await {
            Ok(_) => {
                lock(&shared.buffer).notice_raised(&sink, &shared.routes);
                warn!(
                    sink,
                    "sink rejects everything: its events wait, and none dies until the sink takes one"
                );
                raised.push(sink);
            }
            Err(error) => {
                warn!(
                    error = error_chain(&error),
                    sink, "recording that a sink rejects everything failed: retrying"
                );
            }
        }
    }
    for sink in changes.clear {
        info!(sink, "sink no longer rejects everything");
        raised.retain(|raised| *raised != sink);
        clear(shared, Subject::Rejected(sink)).await;
    }
    shared.metrics.rejecting(&raised);
}

async fn clear(shared: &Shared, subject: Subject) {
    if let Err(error) = bounded(shared, shared.store.resume(&subject)).await {
        warn!(error = error_chain(&error), %subject, "ending a notice failed: retrying");
    }
}

impl ReleasedBrakes {
    /// Returns the released brakes whose time is over.
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
        // Released again, it stays so for another hour.
        assert!(brakes.over(&[], now + BRAKE_OFF_FOR).is_empty());
        assert!(brakes.over(&off, now + BRAKE_OFF_FOR * 2).is_empty());
    }
}
