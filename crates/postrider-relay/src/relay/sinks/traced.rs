//! Wraps a sink so that each delivery is a span of its writer's trace.

use std::sync::Arc;

use postrider::{BoxFuture, Delivery, Event, Health, Outcome, Sink, SinkTraits};

use crate::traces::{Labels, OpenSpan, Tracer};

pub(super) struct Traced {
    sink: Arc<dyn Sink>,
    tracer: Tracer,
    labels: Arc<Labels>,
}

impl Traced {
    pub(super) fn new(sink: Arc<dyn Sink>, tracer: Tracer, labels: Labels) -> Self {
        Self { sink, tracer, labels: Arc::new(labels) }
    }

    /// The delivery with the span's context, and the span if the trace is sampled.
    fn begin(&self, delivery: &Delivery) -> (Delivery, Option<OpenSpan>) {
        match self.tracer.begin(delivery, &self.labels) {
            Some((delivery, span)) => (delivery, Some(span)),
            None => (delivery.clone(), None),
        }
    }
}

impl Sink for Traced {
    fn traits(&self) -> SinkTraits {
        self.sink.traits()
    }

    fn destination(&self, event: &Event) -> Option<String> {
        self.sink.destination(event)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let (batch, spans): (Vec<_>, Vec<_>) = batch.iter().map(|delivery| self.begin(delivery)).unzip();
            let outcomes = self.sink.send(&batch).await;
            for (span, outcome) in spans.into_iter().zip(&outcomes) {
                if let Some(span) = span {
                    span.end(outcome);
                }
            }
            outcomes
        })
    }

    fn send_one(&self, delivery: Delivery) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let (delivery, span) = self.begin(&delivery);
            let outcome = self.sink.send_one(delivery).await;
            if let Some(span) = span {
                span.end(&outcome);
            }
            outcome
        })
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        self.sink.health()
    }

    fn health_for<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Health> {
        self.sink.health_for(event)
    }
}
