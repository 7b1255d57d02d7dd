//! One source: it is reached, however long that takes, delivered from, looked at, and shut down.

use std::{pin::pin, sync::Arc, time::Duration};

use postrider::Outbox;
use postrider_file::FileSink;
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, error, info, info_span, warn};

use super::{
    build::{Plan, outbox_of},
    reload::Seen,
    state::{SourceState, States},
    store,
};
use crate::operations::Lags;

/// The first pause before a source that could not be reached is tried again, and the longest; doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How often it is noted how a source that is delivered from is.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A source that is being delivered from, in a task of its own.
pub(crate) struct Running {
    stop: CancellationToken,
    files: Vec<Arc<FileSink>>,
    task: JoinHandle<()>,
}

impl Running {
    /// Starts to deliver from a source. What can go wrong with its configuration has been looked at.
    pub(crate) fn start(plan: Plan, seen: Seen) -> Self {
        let stop = CancellationToken::new();
        let files = plan.sinks.files().to_vec();
        let span = info_span!("source", name = %plan.name);
        let task = tokio::spawn(run(Arc::new(plan), seen, stop.clone()).instrument(span));
        Self { stop, files, task }
    }

    /// Lets go of the files that it writes to, and opens what lies at their paths at the next write.
    pub(crate) fn reopen_files(&self) {
        self.files.iter().for_each(|file| file.reopen());
    }

    /// Asks it to drain and end.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(self) {
        if let Err(error) = self.task.await {
            error!(%error, "a source ended by a panic");
        }
    }
}

async fn run(plan: Arc<Plan>, seen: Seen, stop: CancellationToken) {
    let Seen { states, gauges, lags, .. } = seen;
    let mut pause = PAUSE_MIN;
    let outbox = loop {
        let starting = pin!(start(&plan));
        let started = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            started = starting => started,
        };
        match started {
            Ok((outbox, what)) => {
                info!(database = %what, "delivering");
                states.set(&plan.name, SourceState::Delivering { database: what.clone() });
                break (outbox, what);
            }
            Err(error) => {
                let reason = postrider::sink::error_chain(&error);
                warn!(%reason, again_in = ?pause, "the source cannot be used");
                states.set(&plan.name, SourceState::Unreachable { reason });
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(PAUSE_MAX);
    };
    let (outbox, what) = outbox;
    gauges.add(&plan.name, outbox.store(), &plan.types);
    tokio::select! {
        () = watch(&plan, &outbox, &what, &states, &stop) => {}
        () = follow(&plan, &outbox, &lags) => {}
    }
    gauges.remove(&plan.name);
    lags.remove(&plan.name);
    let began = Instant::now();
    let report = outbox.shutdown().await;
    states.set(&plan.name, SourceState::Stopped);
    info!(took = ?began.elapsed(), given_back = report.given_back, "the source has been shut down");
}

/// Reaches the database and starts to deliver. Says what it is. What cannot work there is an error here, and not something that the engine
/// tries for ever.
pub(crate) async fn start(plan: &Plan) -> postrider::Result<(Outbox, String)> {
    let found = store::find(&plan.source).await?;
    found.store.rehearse(plan.source.migrate).await?;
    if let Some(promises) = &found.promises {
        info!(%promises, "what holds on this table");
    }
    let outbox = outbox_of(plan, found.store).start().await?;
    Ok((outbox, found.what))
}

/// Notes how old the oldest event is, for ever.
async fn follow(plan: &Plan, outbox: &Outbox, lags: &Lags) {
    lags.follow(&plan.name, &plan.source.routes, outbox.store()).await;
    std::future::pending().await
}

/// Notes how the engine is until the relay ends. The database is not asked: one that answers a ping may refuse every settle. The engine goes on by
/// itself when it can; this is for those who ask.
async fn watch(plan: &Plan, outbox: &Outbox, what: &str, states: &States, stop: &CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let reasons = outbox.health().reasons;
        let state = match reasons.is_empty() {
            true => SourceState::Delivering { database: what.to_owned() },
            false => SourceState::Hindered { reason: reasons.join("; ") },
        };
        if states.set(&plan.name, state.clone()) {
            match state {
                SourceState::Hindered { reason } => warn!(%reason, "the source is not delivered from"),
                _ => info!("the source is delivered from again"),
            }
        }
    }
}
