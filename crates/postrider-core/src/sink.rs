//! Where an event goes, and what delivery said of it.

use std::{error::Error as StdError, fmt, future::Future, sync::Arc, time::Duration};

use crate::{BoxFuture, Event, store::Lane};

/// How an event came to be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// Handed over in memory right after its commit.
    Hot,
    /// Read from the table.
    Cold,
}

/// One event on its way: what handlers, sinks and interceptors see. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The event.
    pub event: Event,
    /// Handed over in memory, or read from the table.
    pub source: Source,
    /// Which attempt this is; the first is 1.
    pub attempt: u32,
    /// The lane that the event lies in.
    pub lane: Lane,
}

impl std::ops::Deref for Delivery {
    type Target = Event;
    fn deref(&self) -> &Event {
        &self.event
    }
}

/// What delivery said of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It arrived.
    Delivered,
    /// It failed; try again after the policy's delay, or the given one.
    Retry {
        /// Why.
        error: String,
        /// The delay, where the receiver named one.
        after: Option<Duration>,
    },
    /// It will never be accepted; no further attempt.
    Rejected {
        /// Why.
        error: String,
    },
    /// Not now; nothing went wrong and no attempt is counted.
    Deferred {
        /// How long to wait. No time at all says that the event was not sent, because of another one before it in the batch.
        after: Duration,
    },
    /// It failed, and its receiver says when to send this event again. No attempt is counted, and it says nothing about other events, unlike
    /// [`Deferred`](Self::Deferred).
    Later {
        /// Why.
        error: String,
        /// How long to wait, at least.
        after: Duration,
    },
    /// Nobody knows whether it arrived, for example after a time-out.
    Unknown {
        /// What happened.
        error: String,
    },
    /// The receiver is down; no attempt is counted, and what goes to it waits.
    Unavailable {
        /// What it said.
        error: String,
    },
    /// The batch failed as a whole, and any of its events may be the reason. No attempt is counted: the events are sent again apart. An event
    /// that was alone in its batch is the reason itself, and this is the same as [`Unknown`](Self::Unknown).
    BatchFailed {
        /// What happened.
        error: String,
    },
}

impl Outcome {
    /// Failed; try again after the policy's delay.
    pub fn retry(error: impl fmt::Display) -> Self {
        Self::Retry { error: error.to_string(), after: None }
    }

    /// Failed; try again after the given delay.
    pub fn retry_after(error: impl fmt::Display, after: Duration) -> Self {
        Self::Retry { error: error.to_string(), after: Some(after) }
    }

    /// It will never be accepted.
    pub fn rejected(error: impl fmt::Display) -> Self {
        Self::Rejected { error: error.to_string() }
    }

    /// Not now; come again after the given time.
    pub fn deferred(after: Duration) -> Self {
        Self::Deferred { after }
    }

    /// Failed; the receiver says when to send this event again.
    pub fn later(error: impl fmt::Display, after: Duration) -> Self {
        Self::Later { error: error.to_string(), after }
    }

    /// Nobody knows whether it arrived.
    pub fn unknown(error: impl fmt::Display) -> Self {
        Self::Unknown { error: error.to_string() }
    }

    /// The receiver is down.
    pub fn unavailable(error: impl fmt::Display) -> Self {
        Self::Unavailable { error: error.to_string() }
    }

    /// The batch failed as a whole.
    pub fn batch_failed(error: impl fmt::Display) -> Self {
        Self::BatchFailed { error: error.to_string() }
    }

    /// What an event got that the sink forgot.
    pub fn missing() -> Self {
        Self::unknown("the sink returned no outcome for this event")
    }

    /// What went wrong, where something did.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Delivered | Self::Deferred { .. } => None,
            Self::Retry { error, .. }
            | Self::Rejected { error }
            | Self::Later { error, .. }
            | Self::Unknown { error }
            | Self::Unavailable { error }
            | Self::BatchFailed { error } => Some(error),
        }
    }
}

/// What a handler may return: nothing, a `Result` with any error, or an [`Outcome`] of its choice.
pub trait IntoOutcome {
    /// What delivery said.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::Delivered
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl<T: IntoOutcome, E: Into<Box<dyn StdError + Send + Sync>>> IntoOutcome for Result<T, E> {
    /// An error is a retry; its text and the texts of its sources are kept.
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(value) => value.into_outcome(),
            Err(error) => Outcome::retry(error_chain(&*error.into())),
        }
    }
}

/// An error and its sources in one line.
pub fn error_chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        // Some errors print their source themselves; saying it twice helps nobody.
        if !text.ends_with(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        source = inner.source();
    }
    text
}

/// What a sink says of the order inside a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchOrder {
    /// Once an event of a key was not delivered, no later event of that key in the batch was applied.
    Prefix,
    /// Each event stands alone, so a batch holds at most one event of a key.
    Independent,
}

/// What a sink can do, as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkTraits {
    /// Most events in one `send`; 1 for handlers.
    pub batch_max: usize,
    /// The order inside a batch.
    pub order: BatchOrder,
    /// Most events of one key in one `send` that keeps their order. One that sends them one after the other has as many round trips.
    pub key_max: usize,
    /// How long a `send` may take before its outcome is unknown. Handlers have a limit of the engine's.
    pub send_timeout: Option<Duration>,
    /// Whether it runs in this process and is never down, unless it says so itself. A failed attempt counts then; one of an outside
    /// system counts only if it was shown to be alive meanwhile.
    pub in_process: bool,
    /// Most sends to an outside system at a time; none for as many as the engine has workers. Handlers share the workers.
    pub concurrent: Option<usize>,
    /// Least time for each event that is sent: what a rate limit comes to. Zero for no limit.
    pub spacing: Duration,
    /// Whether all events of one `send` go to the same [destination](Sink::destination). A `send` ends when its slowest event does: where
    /// each destination is asked by itself, one that hangs would hold up the others.
    pub one_destination: bool,
}

impl SinkTraits {
    /// A handler in this process: one event at a time, for as long as it takes.
    pub const HANDLER: Self = Self {
        batch_max: 1,
        order: BatchOrder::Independent,
        key_max: usize::MAX,
        send_timeout: None,
        in_process: true,
        concurrent: None,
        spacing: Duration::ZERO,
        one_destination: false,
    };

    /// An outside system: batches of 100 in which each event stands alone, ten at a time, each for at most 120 s.
    pub const SINK: Self = Self {
        batch_max: 100,
        order: BatchOrder::Independent,
        key_max: usize::MAX,
        send_timeout: Some(Duration::from_secs(120)),
        in_process: false,
        concurrent: Some(10),
        spacing: Duration::ZERO,
        one_destination: false,
    };
}

/// What a sink says when it is asked how it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It would take an event now.
    Up,
    /// It would not.
    Down {
        /// Why.
        error: String,
    },
    /// There is no way to tell without sending something.
    Unknown,
}

/// Where an event goes. A handler is a function in this process (see [`handler`]), a sink an outside system that is
/// fed in batches; one trait serves both.
pub trait Sink: Send + Sync + 'static {
    /// What this sink can do.
    fn traits(&self) -> SinkTraits {
        SinkTraits::HANDLER
    }

    /// What operators call it, where they have a name for it: they can [pause](crate::store::Subject::Sink) it by that. See [`named`].
    fn name(&self) -> Option<&str> {
        None
    }

    /// The part of the outside system that an event goes to: a topic, a stream, an exchange, a URL with its path filled in. One of them may be
    /// down, slow or broken while the others work. None where there is only one, as for a fixed topic or URL.
    fn destination(&self, _event: &Event) -> Option<String> {
        None
    }

    /// Delivers a batch and says what became of each event, in the order of the batch.
    ///
    /// A missing outcome, like a panic, fails the attempt of the event that it belongs to.
    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>>;

    /// Delivers one event. The same as a batch of one; a sink that has a shorter way may take it.
    fn send_one(&self, delivery: Delivery) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let outcomes = self.send(std::slice::from_ref(&delivery)).await;
            outcomes.into_iter().next().unwrap_or_else(Outcome::missing)
        })
    }

    /// Whether the outside system is up, asked without sending an event. It tells an outage from an event that always fails, where
    /// no other event tells it.
    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(std::future::ready(Health::Unknown))
    }

    /// Whether the [destination](Self::destination) of this event is up. What fails at one that is up has failed by itself, and its attempt
    /// counts. The answer holds for all events of that destination.
    ///
    /// By default this is [`health`](Self::health) where there is one destination, and [`Health::Unknown`] where there are several: that a server is
    /// up does not mean that each of its topics or streams takes what it is sent.
    fn health_for<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Health> {
        match self.destination(event) {
            None => self.health(),
            Some(_) => Box::pin(std::future::ready(Health::Unknown)),
        }
    }
}

impl<T: Sink + ?Sized> Sink for Arc<T> {
    fn traits(&self) -> SinkTraits {
        (**self).traits()
    }

    fn name(&self) -> Option<&str> {
        (**self).name()
    }

    fn destination(&self, event: &Event) -> Option<String> {
        (**self).destination(event)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        (**self).send(batch)
    }

    fn send_one(&self, delivery: Delivery) -> BoxFuture<'_, Outcome> {
        (**self).send_one(delivery)
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        (**self).health()
    }

    fn health_for<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Health> {
        (**self).health_for(event)
    }
}

struct Named {
    name: String,
    sink: Arc<dyn Sink>,
}

impl Sink for Named {
    fn traits(&self) -> SinkTraits {
        self.sink.traits()
    }

    fn name(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn destination(&self, event: &Event) -> Option<String> {
        self.sink.destination(event)
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        self.sink.send(batch)
    }

    fn send_one(&self, delivery: Delivery) -> BoxFuture<'_, Outcome> {
        self.sink.send_one(delivery)
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        self.sink.health()
    }

    fn health_for<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Health> {
        self.sink.health_for(event)
    }
}

/// A sink or handler with a name, by which it can be [paused](crate::store::Subject::Sink).
///
/// ```
/// use postrider_core::{Delivery, Sink, handler, named};
/// let audit = named("audit", handler(async |delivery: Delivery| println!("{}", delivery.id())));
/// assert_eq!(audit.name(), Some("audit"));
/// ```
pub fn named(name: impl Into<String>, sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
    Arc::new(Named { name: name.into(), sink })
}

struct Handler<F>(F);

impl<F, R> Sink for Handler<F>
where
    F: Fn(Delivery) -> R + Send + Sync + 'static,
    R: Future<Output: IntoOutcome> + Send + 'static,
{
    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(batch.len());
            for delivery in batch {
                outcomes.push((self.0)(delivery.clone()).await.into_outcome());
            }
            outcomes
        })
    }

    fn send_one(&self, delivery: Delivery) -> BoxFuture<'_, Outcome> {
        let handling = (self.0)(delivery);
        Box::pin(async move { handling.await.into_outcome() })
    }
}

/// A function as a sink: takes a [`Delivery`], returns anything that is [`IntoOutcome`].
///
/// ```
/// use postrider_core::{Delivery, handler};
/// let print = handler(async |delivery: Delivery| {
///     println!("{} {}", delivery.event_type(), delivery.id());
/// });
/// # let _ = print;
/// ```
pub fn handler<F, R>(function: F) -> Arc<dyn Sink>
where
    F: Fn(Delivery) -> R + Send + Sync + 'static,
    R: Future<Output: IntoOutcome> + Send + 'static,
{
    Arc::new(Handler(function))
}
