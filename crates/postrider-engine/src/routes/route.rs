//! A route with settings of its own.

use std::{fmt, sync::Arc, time::Duration};

use postrider_core::{ConfigError, Pattern, RetryPolicy, Sink};

use crate::OnDead;

/// A route: patterns of event types, their sink, and their settings.
///
/// ```
/// use postrider_core::{Delivery, handler};
/// use postrider_engine::{OnDead, Route, RouteSettings};
///
/// let settings = RouteSettings { on_dead: Some(OnDead::Skip), ..RouteSettings::default() };
/// let orders = Route::new("Order*", handler(async |_: Delivery| ())).aggregate_type("Shop").settings(settings);
/// # let _ = orders;
/// ```
#[must_use]
pub struct Route {
    pub(super) event_type: Pattern,
    pub(super) aggregate_type: Pattern,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) settings: RouteSettings,
}

impl Route {
    /// Events of these types, whatever their aggregate type, to this sink.
    pub fn new(event_type: impl Into<Pattern>, sink: Arc<dyn Sink>) -> Self {
        Self {
            event_type: event_type.into(),
            aggregate_type: Pattern::ANY.into(),
            sink,
            settings: RouteSettings::default(),
        }
    }

    /// Limits it to these aggregate types.
    pub fn aggregate_type(mut self, aggregate_type: impl Into<Pattern>) -> Self {
        self.aggregate_type = aggregate_type.into();
        self
    }

    /// Sets its settings.
    pub fn settings(mut self, settings: RouteSettings) -> Self {
        self.settings = settings;
        self
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("event_type", &self.event_type)
            .field("aggregate_type", &self.aggregate_type)
            .finish_non_exhaustive()
    }
}

/// The settings of one route. Unset values use the outbox's settings.
#[derive(Clone, Default)]
pub struct RouteSettings {
    /// The retry policy.
    pub retry: Option<Arc<dyn RetryPolicy>>,
    /// Attempts before an event is dead.
    pub max_attempts: Option<u32>,
    /// What a dead event does to its key.
    pub on_dead: Option<OnDead>,
    /// Most events in one batch, if the sink takes as many.
    pub batch_max: Option<usize>,
    /// Least time between two batches.
    pub pace: Option<Duration>,
    /// How long an event may fail while it is unknown whether it or its receiver is the cause, before it is
    /// dead; zero for no limit.
    pub unavailable_for: Option<Duration>,
    /// How long a handler in this process may take for an event; zero for no limit.
    pub handler_timeout: Option<Duration>,
}

impl RouteSettings {
    /// Returns an error that names the first setting out of range.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        crate::settings::within("max_attempts", self.max_attempts.unwrap_or(1), 1, u32::MAX)?;
        crate::settings::within("batch_max", self.batch_max.unwrap_or(1), 1, usize::MAX)?;
        Ok(())
    }
}

impl fmt::Debug for RouteSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteSettings")
            .field("max_attempts", &self.max_attempts)
            .field("on_dead", &self.on_dead)
            .field("batch_max", &self.batch_max)
            .field("pace", &self.pace)
            .field("unavailable_for", &self.unavailable_for)
            .field("handler_timeout", &self.handler_timeout)
            .finish_non_exhaustive()
    }
}
