//! The queue of spans that have ended, and the task that empties it.

use std::time::Duration;

use metrics::Counter;
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};
use tracing::{info, warn};

use super::{
    Tracer,
    collector::{Collector, Refused},
    span::Span,
};
use crate::{config::Traces, failure::Failure, operations::Meters};

/// Most spans that wait, and most in one request.
const QUEUE_MAX: usize = 10_000;
const BATCH_MAX: usize = 500;

/// How long a request waits for more of them.
const LINGER: Duration = Duration::from_millis(500);

/// How often a request is made again, and how long to wait before; doubled each time.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// How long an end waits for the last of them.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Where ended spans go. Cloning it copies a pointer.
#[derive(Clone)]
pub(super) struct Queue {
    sender: mpsc::Sender<Span>,
    dropped: Counter,
}

impl Queue {
    /// Puts a span into the queue, if there is room. Nobody waits.
    pub(super) fn push(&self, span: Span) {
        if self.sender.try_send(span).is_err() {
            self.dropped.increment(1);
        }
    }
}

/// Sends spans, until it is ended.
pub(crate) struct Exporter {
    tracer: Tracer,
    task: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Begins to send, if that is wanted.
    pub(crate) fn start(config: Option<&Traces>, meters: &Meters) -> Result<Self, Failure> {
        let Some(config) = config else { return Ok(Self { tracer: Tracer::default(), task: None }) };
        let collector =
            Collector::new(config).map_err(|error| Failure::from(postrider::Error::from(error)))?;
        let (sender, spans) = mpsc::channel(QUEUE_MAX);
        let dropped = meters
            .counter("postrider_spans_dropped_total", "spans that found no room or nobody to take them");
        let task = tokio::spawn(run(collector, spans, dropped.clone()));
        info!(endpoint = %config.endpoint.shown(), "spans are sent");
        Ok(Self { tracer: Tracer::new(Queue { sender, dropped }), task: Some(task) })
    }

    pub(crate) fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// Sends what is left. All who may begin spans must be gone.
    pub(crate) async fn end(self) {
        let Self { tracer, task } = self;
        drop(tracer);
        if let Some(mut task) = task
            && timeout(END_TIMEOUT, &mut task).await.is_err()
        {
            warn!("the last spans were not sent in {END_TIMEOUT:?}");
            task.abort();
        }
    }
}

async fn run(collector: Collector, mut spans: mpsc::Receiver<Span>, dropped: Counter) {
    let mut batch = Vec::new();
    let mut well = true;
    while spans.recv_many(&mut batch, BATCH_MAX).await > 0 {
        // A few more for the same request. What is taken out of the queue is in the batch, so giving up loses nothing.
        let more = async {
            while batch.len() < BATCH_MAX {
                let room = BATCH_MAX - batch.len();
                if spans.recv_many(&mut batch, room).await == 0 {
                    return;
                }
            }
        };
        _ = timeout(LINGER, more).await;
        match patiently(&collector, &batch).await {
            Ok(()) => {
                if !std::mem::replace(&mut well, true) {
                    info!("spans are taken again");
                }
            }
            Err(Refused { reason, .. }) => {
                dropped.increment(batch.len() as u64);
                if std::mem::replace(&mut well, false) {
                    warn!(%reason, "spans are not taken, and are dropped");
                }
            }
        }
        batch.clear();
    }
}

async fn patiently(collector: &Collector, batch: &[Span]) -> Result<(), Refused> {
    let mut tried = 1;
    loop {
        match collector.send(batch).await {
            Err(refused) if refused.again && tried < TRIES => {
                tokio::time::sleep(PAUSE * 2u32.saturating_pow(tried - 1)).await;
                tried += 1;
            }
            done => return done,
        }
    }
}
