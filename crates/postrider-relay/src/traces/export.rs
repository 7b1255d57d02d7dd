//! The queue of ended spans, and the task that sends them.

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

/// Spans that wait, and spans in one request.
const QUEUE_MAX: usize = 10_000;
const BATCH_MAX: usize = 500;

/// How long a request waits for more spans.
const LINGER: Duration = Duration::from_millis(500);

/// Tries of a request, and the first pause between them, which doubles each time.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// How long the shutdown waits for the last spans.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Takes ended spans. Cloning copies a pointer.
#[derive(Clone)]
pub(super) struct Queue {
    sender: mpsc::Sender<Span>,
    dropped: Counter,
}

impl Queue {
    /// Queues a span if there is room, without waiting.
    pub(super) fn push(&self, span: Span) {
        if self.sender.try_send(span).is_err() {
            self.dropped.increment(1);
        }
    }
}

/// Sends spans until it is ended.
pub(crate) struct Exporter {
    tracer: Tracer,
    task: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Starts to send, if configured.
    pub(crate) fn start(config: Option<&Traces>, meters: &Meters) -> Result<Self, Failure> {
        let Some(config) = config else { return Ok(Self { tracer: Tracer::default(), task: None }) };
        let collector =
            Collector::new(config).map_err(|error| Failure::from(postrider::Error::from(error)))?;
        let (sender, spans) = mpsc::channel(QUEUE_MAX);
        let dropped = meters.counter(
            "postrider_spans_dropped_total",
            "spans dropped because the queue was full or the collector refused them",
        );
        let task = tokio::spawn(run(collector, spans, dropped.clone()));
        info!(endpoint = %config.endpoint.shown(), "sending spans");
        Ok(Self { tracer: Tracer::new(Queue { sender, dropped }), task: Some(task) })
    }

    pub(crate) fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// Sends the remaining spans. Nothing may start spans any more.
    pub(crate) async fn end(self) {
        let Self { tracer, task } = self;
        drop(tracer);
        if let Some(mut task) = task
            && timeout(END_TIMEOUT, &mut task).await.is_err()
        {
            warn!("the last spans were not sent within {END_TIMEOUT:?}");
            task.abort();
        }
    }
}

async fn run(collector: Collector, mut spans: mpsc::Receiver<Span>, dropped: Counter) {
    let mut batch = Vec::new();
    let mut well = true;
    while spans.recv_many(&mut batch, BATCH_MAX).await > 0 {
        // Collect a few more for the same request. Spans move to the batch, so a timeout loses none.
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
                    info!("the collector accepts spans again");
                }
            }
            Err(Refused { reason, .. }) => {
                dropped.increment(batch.len() as u64);
                if std::mem::replace(&mut well, false) {
                    warn!(%reason, "the collector refuses spans; they are dropped");
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
