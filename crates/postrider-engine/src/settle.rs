//! Settles: writes outcomes into the table, in batches, under the fence.
//!
//! One settle runs at a time, and later outcomes form the next batch. A failed settle is repeated until it is
//! committed or its lanes are lost: no outcome is dropped because the database was away.
//!
//! Outcomes of locked rows are postponed and retried, while the rest is written. A batch that the database
//! refuses is halved until the refused outcome stands alone. That one is retried with a shorter and shorter
//! error text. If even that is refused, it is postponed too, where operators see it.

use std::{sync::Arc, time::Duration};

use postrider_core::{
    Error, Metrics, StoreErrorKind,
    sink::error_chain,
    store::{Change, HoldReason},
};
use tokio::time::Instant;
use tracing::{error, warn};

use crate::{
    buffer::{PendingSettlement, PendingSettlements, PostponeReason, Postponement},
    lock,
    mutations::{self, Mutation},
    shared::Shared,
    sleep_until,
    store_timeout::bounded,
};

/// Longest pause before a failed settle is repeated.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// After this many refusals in a row without a write, the database is at fault and not the outcomes.
const REFUSED_IN_A_ROW_MAX: usize = 16;

/// Most refused outcomes that are logged one by one. A metric counts them all.
const LOGGED_MAX: usize = 100;

/// Error texts are cut to this many characters, for columns that are narrower than ours.
const SHORT_TEXT_CHARS: usize = 200;

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let now = Instant::now();
        let due = lock(&shared.buffer).settle_at(&shared.settings, now);
        match due {
            Some(due) if due <= now => {
                let (settlements, dropped) =
                    lock(&shared.buffer).take_outcomes(shared.settings.settle_batch, now);
                count_fenced(&shared, dropped);
                shared.health_tracker.settling();
                let room = settle(&shared, settlements).await;
                shared.health_tracker.settled();
                lock(&shared.buffer).end_settle(room);
                shared.progress.notify_waiters();
            }
            due => {
                tokio::select! {
                    biased;
                    () = shared.outcomes.notified() => {}
                    () = sleep_until(due) => {}
                }
            }
        }
    }
}

/// Settles a batch. Returns it empty, with its capacity.
async fn settle(shared: &Shared, settlements: PendingSettlements) -> PendingSettlements {
    let (mut pause, mut refused_in_a_row) = (shared.settings.poll_min, 0);
    let mut room = PendingSettlements::default();
    // Last in, first out.
    let mut batches = vec![settlements];
    while let Some(mut batch) = batches.pop() {
        let alone = batch.len() == 1;
        match write(shared, &mut batch).await {
            Ok(true) => {
                (room, refused_in_a_row) = (batch, 0);
                continue;
            }
            // Lanes were lost, or a locked row blocks.
            Ok(false) => {}
            Err(error) if is_refused(&error) && refused_in_a_row < REFUSED_IN_A_ROW_MAX => {
                if !alone {
                    let (first, rest) = batch.halve();
                    batches.extend([rest, first]);
                    continue;
                }
                match write_plainly(shared, &mut batch, error).await {
                    Ok(true) => refused_in_a_row = 0,
                    Ok(false) => batches.push(still_held(shared, batch)),
                    Err(error) if is_refused(&error) => {
                        refused_in_a_row += 1;
                        batch.drain().for_each(|outcome| refuse(shared, outcome, &error));
                    }
                    Err(error) => {
                        rest(shared, &mut pause, &error, 1).await;
                        batches.push(still_held(shared, batch));
                    }
                }
                continue;
            }
            Err(error) => {
                if is_refused(&error) {
                    // All of them may be refused, and others wait.
                    pause = shared.settings.poll_min;
                }
                rest(shared, &mut pause, &error, batch.len()).await;
                refused_in_a_row = 0;
            }
        }
        batches.push(still_held(shared, batch));
    }
    room
}

/// Drops the outcomes whose lanes are lost.
fn still_held(shared: &Shared, settlements: PendingSettlements) -> PendingSettlements {
    let (held, dropped) = lock(&shared.buffer).still_held(settlements);
    count_fenced(shared, dropped);
    held
}

async fn rest(shared: &Shared, pause: &mut Duration, error: &Error, events: usize) {
    shared.health_tracker.settle_failed(error);
    error!(error = error_chain(error), events, "settle failed: retrying");
    tokio::time::sleep(*pause).await;
    *pause = (*pause * 2).min(RETRY_MAX);
}

/// Writes a batch without its locked rows. Returns false if lanes are lost and nothing was written.
async fn write(shared: &Shared, batch: &mut PendingSettlements) -> Result<bool, Error> {
    if batch.is_empty() {
        return Ok(true);
    }
    let (leases, settlements) = (batch.distinct_leases(), batch.settlements());
    let started = Instant::now();
    let settling = shared.store.settle(&leases, settlements, shared.settings.retention);
    let settled = bounded(shared, settling).await?;
    if !settled.lost.is_empty() {
        warn!(lanes = ?settled.lost, "fenced: another instance took the lanes and delivers their events");
        let mut buffer = lock(&shared.buffer);
        let lost = leases.iter().filter(|lease| settled.lost.contains(&lease.lane));
        lost.for_each(|&lease| buffer.lose(lease));
        drop(buffer);
        shared.lanes.notify_one();
        return Ok(false);
    }
    if !settled.locked.is_empty() && mutations::active(Mutation::LockedRowBlocks) {
        tokio::time::sleep(RETRY_MAX).await;
        return Ok(false);
    }
    for outcome in batch.take_out(&settled.locked) {
        postpone_locked(shared, outcome);
    }
    let (count, took) = (batch.len() as u64, started.elapsed());
    if count > 0 {
        shared.health_tracker.wrote();
    }
    commit(shared, batch);
    shared.metrics.settled(count, took);
    Ok(true)
}

/// Writes a refused outcome with a plainer and plainer error text. If even that is refused, the original is
/// restored.
async fn write_plainly(
    shared: &Shared,
    batch: &mut PendingSettlements,
    mut refused: Error,
) -> Result<bool, Error> {
    let Some(original) = batch.first_change().cloned() else { return Ok(true) };
    while let Some(plainer) = batch.first_change().and_then(plainer) {
        batch.set_first_change(plainer);
        match write(shared, batch).await {
            Err(error) if is_refused(&error) => refused = error,
            Ok(true) => return Ok(true),
            other => {
                batch.set_first_change(original);
                return other;
            }
        }
    }
    batch.set_first_change(original);
    Err(refused)
}

/// Returns the same outcome with a plainer error text: in ASCII, then short, then none. None if nothing is
/// plainer.
fn plainer(change: &Change) -> Option<Change> {
    let mut change = change.clone();
    match &mut change {
        Change::Wait { error, .. } => *error = plainer_text(error.as_deref()?),
        Change::Dead { error, .. } if !error.is_empty() => *error = plainer_text(error).unwrap_or_default(),
        _ => return None,
    }
    Some(change)
}

fn plainer_text(text: &str) -> Option<String> {
    if !text.is_ascii() {
        Some(text.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect())
    } else if text.len() > SHORT_TEXT_CHARS {
        Some(text.chars().take(SHORT_TEXT_CHARS).collect())
    } else {
        None
    }
}

/// Whether the database refuses this write for good. Errors of the database itself pass.
pub(crate) fn is_refused(error: &Error) -> bool {
    let refused = |kind| matches!(kind, StoreErrorKind::Other | StoreErrorKind::Denied);
    matches!(error, Error::Store(error) if refused(error.kind()))
        && !mutations::active(Mutation::RefusedSettleRepeatedWhole)
}

fn postpone_locked(shared: &Shared, outcome: PendingSettlement) {
    let event_id = outcome.settlement.event_id.clone();
    let event_type = type_of(&outcome);
    let postpone = lock(&shared.buffer).postpone(outcome, PostponeReason::Locked, "", Instant::now());
    // Events that waited until it is settled wait no longer.
    shared.work.notify_one();
    report_stop(shared, postpone, &event_type);
    if postpone.is_new {
        warn!(%event_id, "event row locked by another session: its outcome is written once the lock is released");
    }
}

/// Postpones an outcome that is refused in any form, where operators see it.
fn refuse(shared: &Shared, outcome: PendingSettlement, error: &Error) {
    let error = error_chain(error);
    let (event_id, key) = (outcome.settlement.event_id.clone(), outcome.settlement.key.clone());
    let event_type = type_of(&outcome);
    let (postpone, count) = {
        let mut buffer = lock(&shared.buffer);
        let postpone = buffer.postpone(outcome, PostponeReason::Refused, &error, Instant::now());
        (postpone, buffer.unsettled_count())
    };
    shared.work.notify_one();
    shared.metrics.unsettled(count as u64);
    report_stop(shared, postpone, &event_type);
    if postpone.is_new && count <= LOGGED_MAX {
        let key = key.as_deref().unwrap_or_default();
        error!(%event_id, event_type, key, error,
            "the database refuses to write the outcome of an event: it is retried, and its key waits");
    }
}

fn type_of(outcome: &PendingSettlement) -> String {
    outcome.event.as_ref().map(|event| event.event_type().to_owned()).unwrap_or_default()
}

/// Reports a route that is stopped because so many of its outcomes cannot be written. The next claim skips its
/// events.
fn report_stop(shared: &Shared, postpone: Postponement, event_type: &str) {
    if postpone.stops_route {
        error!(event_type, "route stopped: too many of its outcomes cannot be written");
        shared.wake.notify_one();
    }
}

/// How many events a settle wrote, by outcome.
#[derive(Default)]
struct SettleCounts {
    delivered: u64,
    failed: u64,
    deferred: u64,
    dead: u64,
}

impl SettleCounts {
    fn count(&mut self, change: &Change) {
        match change {
            Change::Done => self.delivered += 1,
            Change::Wait { reason: HoldReason::Retry, .. } => self.failed += 1,
            Change::Wait { .. } => self.deferred += 1,
            Change::Dead { .. } => self.dead += 1,
            Change::Attempt { .. } => {}
        }
    }

    fn report(&self, metrics: &dyn Metrics) {
        (0..self.delivered).for_each(|_| metrics.delivered());
        (0..self.failed).for_each(|_| metrics.failed());
        (0..self.deferred).for_each(|_| metrics.deferred());
        (0..self.dead).for_each(|_| metrics.dead());
    }
}

fn commit(shared: &Shared, settlements: &mut PendingSettlements) {
    let (mut sooner, mut counts) = (false, SettleCounts::default());
    let (work, claim, drained, (hot, cold), unsettled) = {
        let mut buffer = lock(&shared.buffer);
        let unsettled = buffer.unsettled_count();
        let now = Instant::now();
        for outcome in settlements.drain() {
            let change = &outcome.settlement.change;
            counts.count(change);
            if let Change::Wait { after, .. } = change
                && let Some(at) = now.checked_add(*after)
            {
                sooner |= buffer.due(at);
            }
            buffer.committed(outcome);
        }
        (
            buffer.has_work(now),
            buffer.wants_claim(&shared.settings),
            !buffer.drained_lanes().is_empty(),
            buffer.depths(),
            Some(buffer.unsettled_count()).filter(|now| *now != unsettled),
        )
    };
    unsettled.into_iter().for_each(|count| shared.metrics.unsettled(count as u64));
    // Counted only here: what the fence refused did not happen.
    counts.report(&*shared.metrics);
    if work {
        shared.work.notify_one();
    }
    if drained {
        shared.lanes.notify_one();
    }
    shared.metrics.queue_depths(hot as u64, cold as u64);
    if claim {
        shared.wake.notify_one();
    } else if sooner {
        shared.due.notify_one();
    }
}

fn count_fenced(shared: &Shared, events: u64) {
    if events > 0 {
        shared.metrics.fenced(events);
        shared.wake.notify_one();
    }
}
