//! Runs one source: connects however long that takes, delivers, watches the engine, and shuts down.

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

/// The first and the longest pause before another attempt to connect; the pause doubles each time.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How often the state of the engine is recorded.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// A source that runs in a task of its own.
pub(crate) struct Running {
    stop: CancellationToken,
    files: Vec<Arc<FileSink>>,
    task: JoinHandle<()>,
}

impl Running {
    /// Starts a source whose plan was checked.
    pub(crate) fn start(plan: Plan, seen: Seen) -> Self {
        let stop = CancellationToken::new();
        let files = plan.sinks.files().to_vec();
        let span = info_span!("source", name = %plan.name);
        let task = tokio::spawn(run(Arc::new(plan), seen, stop.clone()).instrument(span));
        Self { stop, files, task }
    }

    /// Reopens the files of its sinks at the next write.
    pub(crate) fn reopen_files(&self) {
        self.files.iter().for_each(|file| file.reopen());
    }

    /// Asks the source to drain and end.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until the source has ended.
    pub(crate) async fn ended(self) {
        if let Err(error) = self.task.await {
            error!(%error, "the task of a source panicked");
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
                warn!(%reason, again_in = ?pause, "source unavailable; retrying");
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
    info!(took = ?began.elapsed(), given_back = report.given_back, "source shut down");
}

/// Connects to the database and starts to deliver; returns what the database is. What cannot work there fails here, and is not retried by
/// the engine forever.
pub(crate) async fn start(plan: &Plan) -> postrider::Result<(Outbox, String)> {
    let found = store::find(&plan.source).await?;
    found.store.rehearse(plan.source.migrate).await?;
    if let Some(promises) = &found.promises {
        info!(%promises, "promises that hold for this source");
    }
    let outbox = outbox_of(plan, found.store).start().await?;
    Ok((outbox, found.what))
}

/// Records the age of the oldest event until dropped.
async fn follow(plan: &Plan, outbox: &Outbox, lags: &Lags) {
    lags.follow(&plan.name, &plan.source.routes, outbox.store()).await;
    std::future::pending().await
}

/// Records the state of the engine until dropped. A ping of the database would not do: it may answer one and still refuse every settle. The
/// engine recovers by itself; this is for operators.
async fn watch(plan: &Plan, outbox: &Outbox, what: &str, states: &States, stop: &CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(CHECK_EVERY) => {}
        }
        let reasons = outbox.health().reasons;
        let state = match reasons.is_empty() {
            true => SourceState::Delivering { database: what.to_owned() },
            false => SourceState::Hindered { reason: reasons.join("; ") },
        };
        if states.set(&plan.name, state.clone()) {
            match state {
                SourceState::Hindered { reason } => warn!(%reason, "source not delivering"),
                _ => info!("source delivering again"),
            }
        }
    }
}
