//! Settle: outcomes back into the table, in batches, under the fence.
//!
//! One settle runs at a time; what comes in meanwhile makes the next batch. A settle that fails is repeated until it is
//! committed or its lanes are lost: an outcome is never dropped because the database was away.

use std::{sync::Arc, time::Duration};

use postrider_core::{
    Metrics,
    sink::error_chain,
    store::{Change, HoldReason},
};
use tokio::time::Instant;
use tracing::{error, warn};

use crate::{buffer::Verdicts, engine::Shared, lock, sleep_until, time_limit::answer};

/// Longest pause before a failed settle is repeated.
const RETRY_MAX: Duration = Duration::from_secs(2);

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let now = Instant::now();
        let due = lock(&shared.buffer).settle_at(&shared.settings, now);
        match due {
            Some(due) if due <= now => {
                let (verdicts, dropped) = lock(&shared.buffer).take_outcomes(shared.settings.settle_batch);
                count_fenced(&shared, dropped);
                shared.vitals.settling();
                let room = settle(&shared, verdicts).await;
                shared.vitals.settled();
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

/// Settles these, and gives back the room that they had.
async fn settle(shared: &Shared, mut verdicts: Verdicts) -> Verdicts {
    let mut pause = shared.settings.poll_min;
    while !verdicts.is_empty() {
        let (leases, settlements) = (verdicts.distinct_leases(), verdicts.settlements());
        let started = Instant::now();
        let settling = shared.store.settle(&leases, settlements, shared.settings.retention);
        match answer(shared, settling).await {
            Ok(settled) if settled.lost.is_empty() => {
                let (count, took) = (settlements.len() as u64, started.elapsed());
                commit(shared, &mut verdicts);
                shared.metrics.settled(count, took);
                return verdicts;
            }
            Ok(settled) => {
                warn!(lanes = ?settled.lost, "fenced: another instance took the lane, its events will be delivered there");
                let mut buffer = lock(&shared.buffer);
                leases
                    .iter()
                    .filter(|lease| settled.lost.contains(&lease.lane))
                    .for_each(|&lease| buffer.lose(lease));
                drop(buffer);
                shared.lanes.notify_one();
            }
            Err(error) => {
                shared.vitals.settle_failed(&error);
                error!(
                    error = error_chain(&error),
                    events = settlements.len(),
                    "settle failed: will be repeated"
                );
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_MAX);
            }
        }
        let (held, dropped) = lock(&shared.buffer).still_held(verdicts);
        count_fenced(shared, dropped);
        verdicts = held;
    }
    verdicts
}

/// How many events a settle said what of.
#[derive(Default)]
struct Tally {
    delivered: u64,
    failed: u64,
    deferred: u64,
    dead: u64,
}

impl Tally {
    fn count(&mut self, change: &Change) {
        match change {
            Change::Done => self.delivered += 1,
            Change::Wait { reason: HoldReason::Retry, .. } => self.failed += 1,
            Change::Wait { .. } => self.deferred += 1,
            Change::Dead { .. } => self.dead += 1,
            Change::Attempt { .. } => {}
        }
    }

    fn tell(&self, metrics: &dyn Metrics) {
        (0..self.delivered).for_each(|_| metrics.delivered());
        (0..self.failed).for_each(|_| metrics.failed());
        (0..self.deferred).for_each(|_| metrics.deferred());
        (0..self.dead).for_each(|_| metrics.dead());
    }
}

fn commit(shared: &Shared, verdicts: &mut Verdicts) {
    let (mut sooner, mut tally) = (false, Tally::default());
    let (work, claim, drained, (hot, cold)) = {
        let mut buffer = lock(&shared.buffer);
        let now = Instant::now();
        for verdict in verdicts.drain() {
            let change = &verdict.settlement.change;
            tally.count(change);
            if let Change::Wait { after, .. } = change
                && let Some(at) = now.checked_add(*after)
            {
                sooner |= buffer.due(at);
            }
            buffer.committed(verdict);
        }
        (
            buffer.has_work(now),
            buffer.wants_claim(&shared.settings),
            !buffer.drained_lanes().is_empty(),
            buffer.depths(),
        )
    };
    // What the fence refused did not happen, so it is counted only here.
    tally.tell(&*shared.metrics);
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
