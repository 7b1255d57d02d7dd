//! Builds outboxes: a few lines for the common case, and a method for every setting.

use std::{sync::Arc, time::Duration};

use postrider_core::{
    AggregateType, Backoff, Delivery, Error, EventType, Interceptor, IntoOutcome, Metrics, Result,
    RetryPolicy, Sink, Store, WriteHook, metrics::NoMetrics, sink::error_chain,
};
use tracing::warn;

use crate::{
    Engine, KeyOrder, OnDead, Outbox, Routes, Settings, Writer,
    engine::{Parts, missing_store},
    explicit_settings::ExplicitSettings,
};

/// Builds an [`Outbox`]. It needs a store and, unless the outbox only writes, a route. Everything else has a
/// default.
#[must_use]
pub struct OutboxBuilder {
    store: Option<Arc<dyn Store>>,
    routes: Routes,
    interceptors: Vec<Arc<dyn Interceptor>>,
    hooks: Vec<Arc<dyn WriteHook>>,
    retry: Option<Arc<dyn RetryPolicy>>,
    metrics: Arc<dyn Metrics>,
    settings: Settings,
    explicit: ExplicitSettings,
    known_types: Option<Vec<String>>,
    payload_max: Option<usize>,
    migrate: bool,
}

impl OutboxBuilder {
    pub(crate) fn new() -> Self {
        Self {
            store: None,
            routes: Routes::new(),
            interceptors: Vec::new(),
            hooks: Vec::new(),
            retry: None,
            metrics: Arc::new(NoMetrics),
            settings: Settings::default(),
            explicit: ExplicitSettings::default(),
            known_types: None,
            payload_max: None,
            migrate: true,
        }
    }

    /// The database. Required.
    pub fn store(self, store: impl Store) -> Self {
        self.shared_store(Arc::new(store))
    }

    /// The database, shared with other owners.
    pub fn shared_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// A handler for an event type, whatever the aggregate type; see [`Routes::on`].
    pub fn on<F, R>(mut self, event_type: impl EventType, function: F) -> Self
    where
        F: Fn(Delivery) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.routes = self.routes.on(event_type, function);
        self
    }

    /// A handler for an event type of one aggregate type; see [`Routes::on_aggregate`].
    pub fn on_aggregate<F, R>(
        mut self,
        aggregate_type: impl AggregateType,
        event_type: impl EventType,
        function: F,
    ) -> Self
    where
        F: Fn(Delivery) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.routes = self.routes.on_aggregate(aggregate_type, event_type, function);
        self
    }

    /// Several handlers that run in order; see [`Routes::on_list`].
    pub fn on_list(
        mut self,
        event_type: impl EventType,
        handlers: impl IntoIterator<Item = Arc<dyn Sink>>,
    ) -> Self {
        self.routes = self.routes.on_list(event_type, handlers);
        self
    }

    /// A sink, or a handler that is shared, for an event type; see [`Routes::sink`].
    pub fn sink(mut self, event_type: impl EventType, sink: Arc<dyn Sink>) -> Self {
        self.routes = self.routes.sink(event_type, sink);
        self
    }

    /// A sink for events without another route; see [`Routes::sink_otherwise`].
    pub fn sink_otherwise(mut self, sink: Arc<dyn Sink>) -> Self {
        self.routes = self.routes.sink_otherwise(sink);
        self
    }

    /// A handler for events without another route; see [`Routes::otherwise`].
    pub fn otherwise<F, R>(mut self, function: F) -> Self
    where
        F: Fn(Delivery) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.routes = self.routes.otherwise(function);
        self
    }

    /// A handler for every event, after that of its route; see [`Routes::always`].
    pub fn always<F, R>(mut self, function: F) -> Self
    where
        F: Fn(Delivery) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.routes = self.routes.always(function);
        self
    }

    /// All routes at once, in place of those given so far.
    pub fn routes(mut self, routes: Routes) -> Self {
        self.routes = routes;
        self
    }

    /// One more interceptor, after those given so far.
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.interceptors.push(Arc::new(interceptor));
        self
    }

    /// One more write hook, after those given so far.
    pub fn write_hook(mut self, hook: impl WriteHook) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// How long a failed event waits: a [`Backoff`], or a policy of your own.
    pub fn retry(mut self, policy: impl RetryPolicy) -> Self {
        self.retry = Some(Arc::new(policy));
        self
    }

    /// How long a failed event waits, as a function of the attempt that failed (the first is 1) and its error.
    ///
    /// ```
    /// # use {postrider_engine::Outbox, std::time::Duration};
    /// let builder = Outbox::builder().retry_with(|attempt, error| match error {
    ///     "rate limited" => Duration::from_secs(60),
    ///     _ => Duration::from_secs(1) * attempt,
    /// });
    /// # let _ = builder;
    /// ```
    pub fn retry_with(self, policy: impl Fn(u32, &str) -> Duration + Send + Sync + 'static) -> Self {
        self.retry(policy)
    }

    /// The receiver of metrics. Keep a clone of the `Arc` to read a
    /// [`Recording`](postrider_core::metrics::Recording).
    pub fn metrics(mut self, metrics: Arc<dyn Metrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// The only event types that `write` accepts.
    ///
    /// ```
    /// # use postrider_engine::Outbox;
    /// # let builder = Outbox::builder();
    /// const EVENT_TYPES: &[&str] = &["OrderPlaced", "OrderShipped"]; // what the derive gives an enum
    /// let builder = builder.known_types(EVENT_TYPES);
    /// # let _ = builder;
    /// ```
    pub fn known_types(mut self, types: impl IntoIterator<Item = impl EventType>) -> Self {
        self.known_types = Some(types.into_iter().map(|known| known.name().to_owned()).collect());
        self
    }

    /// The largest payload that `write` accepts, in bytes; at most 1 MiB.
    pub fn payload_max(mut self, bytes: usize) -> Self {
        self.payload_max = Some(bytes);
        self
    }

    /// Whether `start` creates or upgrades the tables. Default true.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// All settings at once. None of them falls back to the defaults of a store.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self.explicit = ExplicitSettings::ALL;
        self
    }

    /// Most concurrent deliveries to handlers. Default 4.
    pub fn workers(mut self, workers: usize) -> Self {
        self.settings.workers = workers;
        self
    }

    /// Most hot events in memory. Default 1000.
    pub fn hot_queue(mut self, events: usize) -> Self {
        self.settings.hot_queue = events;
        self
    }

    /// Most cold events in memory. Default 1000.
    pub fn cold_queue(mut self, events: usize) -> Self {
        self.settings.cold_queue = events;
        self
    }

    /// Most events that one claim reads. Default 200.
    pub fn claim_batch(mut self, events: usize) -> Self {
        self.settings.claim_batch = events;
        self.explicit.claim_batch = true;
        self
    }

    /// Most events of one key that wait in memory behind its head, or as many as its sink takes at once.
    /// Default 32.
    pub fn key_queue(mut self, events: usize) -> Self {
        self.settings.key_queue = events;
        self
    }

    /// How long a handler in this process may take for an event; zero for no limit. Default 5 min.
    pub fn handler_timeout(mut self, limit: Duration) -> Self {
        self.settings.handler_timeout = limit;
        self
    }

    /// How long an event may fail while it is unknown whether it or its receiver is the cause, before it is
    /// dead; zero for no limit. Default 24 h.
    pub fn unavailable_for(mut self, limit: Duration) -> Self {
        self.settings.unavailable_for = limit;
        self
    }

    /// Shortest and longest pause between polls. Default 20 ms and 5 s.
    pub fn poll(mut self, min: Duration, max: Duration) -> Self {
        (self.settings.poll_min, self.settings.poll_max) = (min, max);
        self.explicit.poll = true;
        self
    }

    /// Shortest time between two peeks at the last number that was drawn. Peeks find plain `INSERT`s and other
    /// processes' events. Zero leaves them to polls. Default 5 ms.
    pub fn peek(mut self, every: Duration) -> Self {
        self.settings.peek = every;
        self
    }

    /// How often a claim scans from the very start, to find rows that were changed by hand. Default 60 s.
    pub fn full_look_every(mut self, pause: Duration) -> Self {
        self.settings.full_look_every = pause;
        self
    }

    /// Whether to poll and to follow wake-ups. Without it only hot events and `poll_once` deliver. Default
    /// true.
    pub fn poller(mut self, on: bool) -> Self {
        self.settings.poller = on;
        self
    }

    /// How long a lease holds: the longest that delivery stops after this process was killed. Default 15 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Attempts before an event is dead. Default 10.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.settings.max_attempts = attempts;
        self.explicit.max_attempts = true;
        self
    }

    /// How long a shutdown may take. Events in memory are still sent for half of it, and running sends are
    /// waited for after that. Default 5 s.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.settings.drain_timeout = timeout;
        self
    }

    /// How long delivered events are kept; zero deletes them at once. Default 1 h.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.settings.retention = retention;
        self
    }

    /// Whether the events of a key are delivered in order. Default kept.
    pub fn key_order(mut self, order: KeyOrder) -> Self {
        self.settings.key_order = order;
        self
    }

    /// What a dead event does to its key. Default block, or skip where the store cannot keep a key waiting, as
    /// in external outbox tables. Block is refused there.
    pub fn on_dead(mut self, policy: OnDead) -> Self {
        self.settings.on_dead = policy;
        self.explicit.on_dead = true;
        self
    }

    /// The name of this instance, for people to read.
    pub fn instance(mut self, name: impl Into<String>) -> Self {
        self.settings.instance = name.into();
        self
    }

    /// The seed of jitter and nonces, to repeat a run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    fn writer(&self) -> Result<Writer> {
        let store = self.store.clone().ok_or_else(missing_store)?;
        let mut writer = Writer::new(store).with_metrics(self.metrics.clone()).with_hooks(self.hooks.clone());
        if let Some(types) = &self.known_types {
            writer = writer.with_known_types(types);
        }
        if let Some(bytes) = self.payload_max {
            writer = writer.with_payload_max(bytes)?;
        }
        Ok(writer)
    }

    /// An outbox that writes and delivers.
    pub async fn start(mut self) -> Result<Outbox> {
        let writer = self.writer()?;
        let defaults = writer.store.defaults();
        self.explicit.fill(&mut self.settings, &writer.store.features(), defaults.as_ref());
        let usual = || defaults.map_or_else(Backoff::default, |defaults| defaults.retry);
        let retry = self.retry.unwrap_or_else(|| Arc::new(usual()));
        // Mistakes in the parts are reported before the database is touched.
        self.settings.check()?;
        let routes = self.routes.checked()?;
        check_store(&*writer.store, self.migrate).await?;
        let engine = Engine::start(Parts {
            store: writer.store.clone(),
            routes,
            interceptors: self.interceptors,
            retry,
            metrics: self.metrics,
            settings: self.settings,
        })
        .await?;
        Ok(Outbox::from_parts(writer, Some(Arc::new(engine))))
    }

    /// An outbox that only writes; another process delivers.
    pub async fn write_only(self) -> Result<Outbox> {
        let writer = self.writer()?;
        check_store(&*writer.store, self.migrate).await?;
        Ok(Outbox::from_parts(writer, None))
    }
}

/// Checks that the database can hold an outbox, or creates the tables.
async fn check_store(store: &dyn Store, migrate: bool) -> Result<()> {
    if migrate {
        return store.migrate().await;
    }
    match store.check().await {
        // An unreachable database may come back, and later calls retry.
        Err(error) if matches!(&error, Error::Store(store) if store.is_transient()) => {
            warn!(error = error_chain(&error), "checking the database failed: later calls try again");
            Ok(())
        }
        checked => checked,
    }
}
