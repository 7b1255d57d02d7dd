//! Writes events into the caller's own transaction.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Weak},
};

use postrider_core::{
    BlockingCallerTx, CallerTx, ConfigError, Error, Event, EventError, EventId, EventType, IntoEvent,
    Metrics, Result, Store, Target, TxOutcome, WriteHook,
    tx::{LaneHints, OnDuplicate},
};

use crate::{Engine, guarded_metrics::GuardedMetrics, settings::check_payload_max, trace};

/// The writing half of an outbox. It needs no engine: the instance that owns the lanes delivers what it writes.
#[derive(Clone)]
pub struct Writer {
    pub(crate) store: Arc<dyn Store>,
    /// The store's target, with this writer's own hints.
    pub(crate) target: Arc<Target>,
    pub(crate) metrics: Arc<dyn Metrics>,
    hooks: Arc<[Arc<dyn WriteHook>]>,
    known_types: Option<Arc<BTreeSet<String>>>,
    payload_bytes_max: usize,
}

impl Writer {
    /// Creates a writer to the outbox of `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            target: Arc::new(Target { hints: LaneHints::default(), ..store.target().clone() }),
            store,
            metrics: Arc::new(postrider_core::metrics::NoMetrics),
            hooks: Arc::new([]),
            known_types: None,
            payload_bytes_max: postrider_core::event::limits::PAYLOAD_BYTES_MAX,
        }
    }

    /// Sets the receiver of metrics.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<dyn Metrics>) -> Self {
        self.metrics = Arc::new(GuardedMetrics::new(metrics));
        self
    }

    /// Sets the hooks that run before each insert, in order.
    #[must_use]
    pub fn with_hooks(mut self, hooks: Vec<Arc<dyn WriteHook>>) -> Self {
        self.hooks = hooks.into();
        self
    }

    /// Sets the only event types that are accepted.
    #[must_use]
    pub fn with_known_types(mut self, types: impl IntoIterator<Item = impl EventType>) -> Self {
        self.known_types = Some(Arc::new(types.into_iter().map(|known| known.name().to_owned()).collect()));
        self
    }

    /// Sets the largest payload that is accepted, in bytes.
    pub fn with_payload_max(mut self, bytes: usize) -> Result<Self, ConfigError> {
        self.payload_bytes_max = check_payload_max(bytes)?;
        Ok(self)
    }

    /// Sets where events without a key go.
    pub(crate) fn with_hints(mut self, hints: LaneHints) -> Self {
        self.target = Arc::new(Target { hints, ..self.store.target().clone() });
        self
    }

    /// Prepares events for their insert: traces, hooks, checks.
    pub(crate) fn prepare(&self, events: impl IntoIterator<Item = impl IntoEvent>) -> Result<Prepared> {
        let mut prepared = Prepared { ids: Vec::new(), events: Vec::new() };
        for event in events {
            let event = with_current_trace(event.into_event()?)?;
            let id = event.id().clone();
            match self.pass_hooks(event)? {
                Some(event) => {
                    self.check(&event)?;
                    prepared.ids.push(event.id().clone());
                    prepared.events.push(event);
                }
                None => prepared.ids.push(id),
            }
        }
        Ok(prepared)
    }

    fn pass_hooks(&self, event: Event) -> Result<Option<Event>> {
        let mut event = Some(event);
        for hook in self.hooks.iter() {
            event = match event {
                Some(event) => hook.before_write(event)?,
                None => break,
            };
        }
        Ok(event)
    }

    fn check(&self, event: &Event) -> Result<()> {
        if let Some(known) = self.known_types.as_ref().filter(|known| !known.contains(event.event_type())) {
            return Err(Error::UnknownType {
                event_type: event.event_type().to_owned(),
                known: known.iter().cloned().collect(),
            });
        }
        let size = event.payload().len();
        if size > self.payload_bytes_max {
            let limit = self.payload_bytes_max;
            return Err(EventError::TooLong { field: "payload", size, limit, unit: "bytes" }.into());
        }
        Ok(())
    }

    pub(crate) async fn insert<M, X: CallerTx<M>>(
        &self,
        tx: X,
        prepared: &Prepared,
        on_duplicate: OnDuplicate,
    ) -> Result<Vec<bool>> {
        if prepared.events.is_empty() {
            return Ok(Vec::new());
        }
        let new = tx.insert(&self.target, &prepared.events, on_duplicate).await?;
        self.count(&new);
        Ok(new)
    }

    pub(crate) fn count(&self, new: &[bool]) {
        self.metrics.written(new.iter().filter(|&&new| new).count() as u64);
    }

    pub(crate) fn notice(&self, outcome: TxOutcome) -> WriteNotice {
        WriteNotice { hooks: self.hooks.clone(), ids: Vec::new(), outcome }
    }

    /// As [`Outbox::write`](crate::Outbox::write).
    pub async fn write<M, X: CallerTx<M>>(&self, tx: X, event: impl IntoEvent) -> Result<Receipt> {
        self.write_one(None, tx, event, OnDuplicate::Fail).await
    }

    pub(crate) async fn write_one<M, X: CallerTx<M>>(
        &self,
        engine: Option<&Arc<Engine>>,
        tx: X,
        event: impl IntoEvent,
        on_duplicate: OnDuplicate,
    ) -> Result<Receipt> {
        let event = event.into_event()?;
        let given = event.id().clone();
        Ok(Receipt::new(given, self.write_events(engine, tx, [event], on_duplicate).await?))
    }

    pub(crate) async fn write_events<M, X: CallerTx<M>>(
        &self,
        engine: Option<&Arc<Engine>>,
        tx: X,
        events: impl IntoIterator<Item = impl IntoEvent>,
        on_duplicate: OnDuplicate,
    ) -> Result<Receipts> {
        let prepared = self.prepare(events)?;
        let new = self.insert(tx, &prepared, on_duplicate).await?;
        Ok(self.receipts(engine, prepared, &new))
    }

    pub(crate) fn write_blocking<M, X: BlockingCallerTx<M>>(
        &self,
        engine: Option<&Arc<Engine>>,
        tx: X,
        events: impl IntoIterator<Item = impl IntoEvent>,
        on_duplicate: OnDuplicate,
    ) -> Result<Receipts> {
        let prepared = self.prepare(events)?;
        let new = match prepared.events.as_slice() {
            [] => Vec::new(),
            events => tx.insert(&self.target, events, on_duplicate)?,
        };
        self.count(&new);
        Ok(self.receipts(engine, prepared, &new))
    }

    fn receipts(&self, engine: Option<&Arc<Engine>>, prepared: Prepared, new: &[bool]) -> Receipts {
        let mut notice = self.notice(TxOutcome::Unknown);
        notice.ids.extend(prepared.new_ids(new));
        Receipts {
            ids: prepared.ids,
            notice,
            engine: engine.map(Arc::downgrade),
            store: self.store.clone(),
            #[cfg(feature = "mutations")]
            events: prepared.events,
        }
    }
}

/// Events that are ready to be inserted.
pub(crate) struct Prepared {
    /// The IDs of all given events, suppressed ones included.
    pub(crate) ids: Vec<EventId>,
    pub(crate) events: Vec<Event>,
}

impl Prepared {
    /// Returns the IDs of those that the insert found to be new.
    pub(crate) fn new_ids<'a>(&'a self, new: &'a [bool]) -> impl Iterator<Item = EventId> + 'a {
        self.events.iter().zip(new).filter(|(_, new)| **new).map(|(event, _)| event.id().clone())
    }
}

/// Adds the current trace, unless the event names one of its own.
fn with_current_trace(event: Event) -> Result<Event> {
    match trace::current() {
        Some(context) if !event.headers().contains_key(postrider_core::trace::TRACEPARENT) => {
            Ok(event.to_builder().trace_context(&context).build()?)
        }
        _ => Ok(event),
    }
}

/// Tells the write hooks once what became of events, at the latest when it is dropped.
pub(crate) struct WriteNotice {
    hooks: Arc<[Arc<dyn WriteHook>]>,
    pub(crate) ids: Vec<EventId>,
    /// What is reported by default.
    pub(crate) outcome: TxOutcome,
}

impl WriteNotice {
    /// Whether there are hooks.
    pub(crate) fn is_heard(&self) -> bool {
        !self.hooks.is_empty()
    }

    pub(crate) fn tell(&mut self, outcome: TxOutcome) {
        self.outcome = outcome;
        let ids = std::mem::take(&mut self.ids);
        if !ids.is_empty() {
            self.hooks.iter().for_each(|hook| hook.after(&ids, outcome));
        }
    }
}

impl Drop for WriteNotice {
    fn drop(&mut self) {
        self.tell(self.outcome);
    }
}

/// The receipt of `write`: the ID, and a way to report the commit.
///
/// Reporting it only makes delivery quick. The table decides: the next poll delivers an event whose receipt was
/// forgotten, and an event whose transaction was rolled back is never delivered, whatever its receipt was told.
#[must_use = "say committed() after the commit: without it the event waits for the next poll"]
#[derive(Debug)]
pub struct Receipt {
    id: EventId,
    receipts: Receipts,
}

impl Receipt {
    pub(crate) fn new(given: EventId, receipts: Receipts) -> Self {
        // A hook may have changed the ID.
        Self { id: receipts.ids.first().cloned().unwrap_or(given), receipts }
    }

    /// The event ID.
    pub fn id(&self) -> &EventId {
        &self.id
    }

    /// Whether a row was inserted. None is if a hook suppressed the event, or if `write_if_absent` found it.
    pub fn is_new(&self) -> bool {
        self.receipts.inserted() > 0
    }

    /// Reports the commit and wakes the engine. Never fails, even after a shutdown.
    pub fn committed(self) {
        self.receipts.committed();
    }

    /// Reports the rollback to the write hooks.
    pub fn rolled_back(self) {
        self.receipts.rolled_back();
    }
}

/// The receipt of `write_all`: a [`Receipt`] for several events.
#[must_use = "say committed() after the commit: without it the events wait for the next poll"]
pub struct Receipts {
    ids: Vec<EventId>,
    notice: WriteNotice,
    /// A receipt that is kept does not keep the engine alive.
    engine: Option<Weak<Engine>>,
    store: Arc<dyn Store>,
    #[cfg(feature = "mutations")]
    events: Vec<Event>,
}

impl Receipts {
    /// The IDs of all events, in the order in which they were given.
    pub fn ids(&self) -> &[EventId] {
        &self.ids
    }

    /// Returns how many rows were inserted: fewer than IDs if a hook suppressed some.
    pub fn inserted(&self) -> usize {
        self.notice.ids.len()
    }

    /// Reports the commit and wakes the engine, or those of other processes. Never fails, even after a
    /// shutdown.
    pub fn committed(mut self) {
        self.notice.tell(TxOutcome::Committed);
        match self.engine.as_ref().and_then(Weak::upgrade) {
            Some(engine) => {
                #[cfg(feature = "mutations")]
                if crate::mutations::active(crate::mutations::Mutation::ReceiptDelivers) {
                    engine.deliver_unproved(&self.events);
                }
                engine.wake();
            }
            None => self.store.notify_others(),
        }
    }

    /// Reports the rollback to the write hooks.
    pub fn rolled_back(mut self) {
        self.notice.tell(TxOutcome::RolledBack);
    }
}

impl fmt::Debug for Receipts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipts").field("ids", &self.ids).finish_non_exhaustive()
    }
}
