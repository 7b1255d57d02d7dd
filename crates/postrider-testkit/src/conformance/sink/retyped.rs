//! A real server refuses or ignores no single event on demand. It does so with what goes to a bad place, and a sink sends each type of
//! event to a place of its own: so one event is given another type on its way to the sink.

use std::sync::{Arc, Mutex, PoisonError};

use postrider_core::{BoxFuture, Delivery, Event, Health, Outcome, Sink, SinkTraits};

use super::{Failure, Receiver};

/// The type that an event is given which is to be refused.
pub const REFUSED: &str = "Refused";
/// The type that an event is given which is not to be answered.
pub const IGNORED: &str = "Ignored";

/// A sink as it is, but for one event, which is sent as one of the type [`REFUSED`] or [`IGNORED`].
pub struct Retyped<S> {
    sink: S,
    changed: Mutex<Option<(Event, Event)>>,
}

impl<S: Sink> Retyped<S> {
    /// Every event is sent as it is.
    pub fn new(sink: S) -> Arc<Self> {
        Arc::new(Self { sink, changed: Mutex::default() })
    }

    /// From now on the event that the receiver refuses or ignores is sent as one of that type; all others are sent as they are.
    pub fn set(&self, receiver: &Receiver) -> Result<(), Failure> {
        let changed = match receiver {
            Receiver::Refuses(event) => Some((event, REFUSED)),
            Receiver::Ignores(event) => Some((event, IGNORED)),
            Receiver::Well | Receiver::Down | Receiver::Stalls => None,
        };
        let changed = changed.map(|(event, event_type)| {
            let other = event.to_builder().event_type(event_type).build()?;
            Ok::<_, Failure>((event.clone(), other))
        });
        *self.changed.lock().unwrap_or_else(PoisonError::into_inner) = changed.transpose()?;
        Ok(())
    }
}

impl<S: Sink> Sink for Retyped<S> {
    fn traits(&self) -> SinkTraits {
        self.sink.traits()
    }

    fn destination(&self, event: &Event) -> Option<String> {
        self.sink.destination(event)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((event, other)) = changed else { return self.sink.send(batch) };
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
