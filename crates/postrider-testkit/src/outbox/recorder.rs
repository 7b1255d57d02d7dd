//! What was written and delivered, remembered.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use postrider_core::{
    BoxFuture, Delivery, Error, Event, EventId, EventType, Interceptor, Outcome, TxOutcome, WriteHook,
    interceptor::InterceptorError,
};
use postrider_engine::OutboxBuilder;

use super::Written;

/// Remembers what an outbox writes and delivers, whatever its store. A [`TestOutbox`](super::TestOutbox) has one; on a
/// database of your own, [attach](Recorder::attach) one to the builder. Cloning it gives another handle to the same one.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use postrider::{Delivery, Event, Outbox, sqlite::SqliteStore};
/// use postrider_testkit::outbox::Recorder;
///
/// let store = SqliteStore::connect("sqlite::memory:").await?;
/// let recorder = Recorder::new();
/// let outbox = Outbox::builder().store(store.clone()).on("OrderPlaced", async |_: Delivery| ());
/// let outbox = recorder.attach(outbox).start().await?;
///
/// outbox.transaction(&store, async |tx| tx.write(Event::json_text("OrderPlaced", "{}")).await).await?;
/// recorder.assert_written("OrderPlaced").once();
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<Record>>);

#[derive(Default)]
struct Record {
    /// In the order of writing.
    written: Vec<Entry>,
    /// In the order of delivery.
    delivered: Vec<Delivery>,
}

struct Entry {
    event: Event,
    /// What became of its transaction; none while that is open, and for an event that was refused.
    outcome: Option<TxOutcome>,
}

impl Recorder {
    /// One that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has it listen to an outbox. Call it last: a write hook that is given later changes events behind its back.
    pub fn attach(&self, outbox: OutboxBuilder) -> OutboxBuilder {
        outbox.write_hook(Hook(self.clone())).interceptor(Hook(self.clone()))
    }

    /// The events of committed transactions, in the order of writing, delivered or not.
    ///
    /// An event whose receipt was dropped without a word counts once it was delivered: before, only the table knows.
    pub fn written(&self) -> Vec<Event> {
        let record = self.lock();
        let committed = |entry: &&Entry| entry.outcome == Some(TxOutcome::Committed);
        record.written.iter().filter(committed).map(|entry| entry.event.clone()).collect()
    }

    /// What was delivered, in the order of delivery: what its handler or sink said `Delivered` of.
    pub fn delivered(&self) -> Vec<Delivery> {
        self.lock().delivered.clone()
    }

    /// Asserts that events of this type were written; what comes back asserts more of them.
    #[track_caller]
    pub fn assert_written(&self, event_type: impl EventType) -> Written {
        Written::of_type(event_type.name(), self.written())
    }

    /// Asserts that no event of this type was written.
    #[track_caller]
    pub fn assert_not_written(&self, event_type: impl EventType) {
        let name = event_type.name();
        let written = self.written();
        let none = written.iter().all(|event| event.event_type() != name);
        assert!(none, "{name} was written\n{}", super::written::list(&written));
    }

    /// Asserts that nothing was written at all.
    #[track_caller]
    pub fn assert_nothing_written(&self) {
        let written = self.written();
        assert!(written.is_empty(), "something was written\n{}", super::written::list(&written));
    }

    /// Asks the table about events whose receipts were dropped without a word.
    pub(super) fn ask(&self, is_committed: impl Fn(&EventId) -> bool) {
        for entry in &mut self.lock().written {
            if entry.outcome == Some(TxOutcome::Unknown) && is_committed(entry.event.id()) {
                entry.outcome = Some(TxOutcome::Committed);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = self.lock();
        f.debug_struct("Recorder")
            .field("written", &record.written.len())
            .field("delivered", &record.delivered.len())
            .finish()
    }
}

/// The recorder as an outbox sees it.
struct Hook(Recorder);

impl WriteHook for Hook {
    fn before_write(&self, event: Event) -> Result<Option<Event>, Error> {
        self.0.lock().written.push(Entry { event: event.clone(), outcome: None });
        Ok(Some(event))
    }

    fn after(&self, ids: &[EventId], outcome: TxOutcome) {
        let mut record = self.0.lock();
        for id in ids {
            // The latest, if an id was written more than once: an earlier one was refused or rolled back.
            let open = |entry: &&mut Entry| entry.event.id() == id && entry.outcome.is_none();
            if let Some(entry) = record.written.iter_mut().rfind(open) {
                entry.outcome = Some(outcome);
            }
        }
    }
}

impl Interceptor for Hook {
    fn after<'a>(
        &'a self,
        delivery: &'a Delivery,
        outcome: &'a Outcome,
    ) -> BoxFuture<'a, Result<(), InterceptorError>> {
        // What was delivered is committed, whatever its receipt was told.
        self.0.ask(|id| id == delivery.id());
        if *outcome == Outcome::Delivered {
            self.0.lock().delivered.push(delivery.clone());
        }
        Box::pin(std::future::ready(Ok(())))
    }
}
