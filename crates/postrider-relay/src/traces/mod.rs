//! Spans of deliveries, sent to an OpenTelemetry collector.
//!
//! A span begins when an event is handed to its sink and ends with the sink's outcome. Ended spans wait in a bounded queue; what does not fit is
//! dropped and counted, because no delivery waits for a trace. If the collector is down, a batch is dropped after a few tries.
//!
//! # Layout
//!
//! * `span`: one delivery as a span, and its JSON
//! * `export`: the queue, and the task that empties it
//! * `collector`: one request to the collector

mod collector;
mod export;
mod span;

use std::sync::{Arc, Mutex, PoisonError};

use postrider::{Delivery, TraceContext, rng::Rng};

use self::{collector::Collector, export::Queue};
pub(crate) use self::{
    export::Exporter,
    span::{Labels, OpenSpan},
};
use crate::{config::Traces, failure::Failure};

/// Checks the collector's configuration without connecting.
pub(crate) fn check(config: Option<&Traces>) -> Result<(), Failure> {
    match config.map(Collector::new) {
        Some(Err(error)) => Err(Failure::from(postrider::Error::from(error))),
        _ => Ok(()),
    }
}

/// Starts spans, if tracing is on. Cloning copies a pointer.
#[derive(Clone, Default)]
pub(crate) struct Tracer(Option<Arc<Inner>>);

struct Inner {
    queue: Queue,
    rng: Mutex<Rng>,
}

impl Tracer {
    fn new(queue: Queue) -> Self {
        Self(Some(Arc::new(Inner { queue, rng: Mutex::new(Rng::from_entropy()) })))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Starts the span of a delivery and returns the delivery with the span's context in its headers. `None` if the event has no trace or its
    /// trace is not sampled.
    pub(crate) fn begin(&self, delivery: &Delivery, labels: &Arc<Labels>) -> Option<(Delivery, OpenSpan)> {
        let Inner { queue, rng } = self.0.as_deref()?;
        let parent = delivery.trace_context().filter(TraceContext::is_sampled)?;
        // A random number is never half drawn.
        let span_id = rng.lock().unwrap_or_else(PoisonError::into_inner).next_u64();
        let context = parent.child(span_id);
        // An event that cannot be rebuilt with one changed header is delivered unchanged.
        let event = delivery.event.to_builder().trace_context(&context).build().ok()?;
        let span = OpenSpan::new(queue.clone(), delivery, parent, context, labels.clone());
        Some((Delivery { event, ..delivery.clone() }, span))
    }
}
