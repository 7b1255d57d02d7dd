//! Spans of deliveries, sent to whoever collects them.
//!
//! A span is begun when an event is handed to its sink and ended when the sink has answered. Its state is in a bounded queue: what does not
//! fit is dropped and counted, since no delivery waits for a trace. Whoever collects them may be away; after a few tries a batch is
//! dropped too.
//!
//! # Layout
//!
//! * `span`: one delivery as a span, and what of it goes out
//! * `export`: the queue, and the task that empties it
//! * `collector`: one request to whoever collects them

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

/// What can be wrong with the place that spans go to, without asking it.
pub(crate) fn check(config: Option<&Traces>) -> Result<(), Failure> {
    match config.map(Collector::new) {
        Some(Err(error)) => Err(Failure::from(postrider::Error::from(error))),
        _ => Ok(()),
    }
}

/// Begins spans, if anybody wants them. Cloning it copies a pointer.
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

    /// Begins the span of a delivery, and gives the delivery as it goes out: with the context of the span in its headers. None if the
    /// trace of the event is not recorded, or if it has none.
    pub(crate) fn begin(&self, delivery: &Delivery, labels: &Arc<Labels>) -> Option<(Delivery, OpenSpan)> {
        let Inner { queue, rng } = self.0.as_deref()?;
        let parent = delivery.trace_context().filter(TraceContext::is_sampled)?;
        // A random number is never half drawn.
        let span_id = rng.lock().unwrap_or_else(PoisonError::into_inner).next_u64();
        let context = parent.child(span_id);
        // An event that cannot be written with one header changed is delivered as it is.
        let event = delivery.event.to_builder().trace_context(&context).build().ok()?;
        let span = OpenSpan::new(queue.clone(), delivery, parent, context, labels.clone());
        Some((Delivery { event, ..delivery.clone() }, span))
    }
}
