//! A real server refuses no single event on demand. It does refuse what goes to a bad place, and a sink sends each type of event to
//! a place of its own: so one event is given another type on its way to the sink.

use std::sync::{Arc, Mutex, PoisonError};

use postrider_core::{BoxFuture, Delivery, Event, Health, Outcome, Sink, SinkTraits};

use super::Failure;

/// The type that an event is given which is to be refused.
pub const REFUSED: &str = "Refused";

/// A sink as it is, but for one event, which is sent as one of the type [`REFUSED`].
pub struct Retyped<S> {
    sink: S,
    refused: Mutex<Option<(Event, Event)>>,
}

impl<S: Sink> Retyped<S> {
    /// Nothing is refused yet.
    pub fn new(sink: S) -> Arc<Self> {
        Arc::new(Self { sink, refused: Mutex::default() })
    }

    /// From now on this event is sent as one that is refused; or none is.
    pub fn refuse(&self, event: Option<Event>) -> Result<(), Failure> {
        let refused = event.map(|event| {
            let other = event.to_builder().event_type(REFUSED).build()?;
            Ok::<_, Failure>((event, other))
        });
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused.transpose()?;
        Ok(())
    }
}

impl<S: Sink> Sink for Retyped<S> {
    fn traits(&self) -> SinkTraits {
        self.sink.traits()
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((event, other)) = refused else { return self.sink.send(batch) };
        let mut batch = batch.to_vec();
        for delivery in batch.iter_mut().filter(|delivery| delivery.event == event) {
            delivery.event = other.clone();
        }
        Box::pin(async move { self.sink.send(&batch).await })
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        self.sink.health()
    }

    fn health_for<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Health> {
        self.sink.health_for(event)
    }
}
