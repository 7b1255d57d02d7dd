//! Routes: decides which handler or sink an event goes to.

mod list;
mod route;

use std::{collections::BTreeMap, sync::Arc};

use postrider_core::{
    AggregateType, ConfigError, Delivery, Event, EventType, IntoOutcome, Pattern, Sink, SinkTraits, handler,
};

use self::list::List;
pub use self::route::{Route, RouteSettings};

/// A route.
pub(crate) type RouteId = usize;

/// Who receives the events of one or more routes. Routes to the same sink share its state.
pub(crate) type ReceiverId = usize;

/// An event type and, where it was given, an aggregate type.
type TypePair = (String, Option<String>);

/// Builds the routes of an outbox.
///
/// An event goes to the handler of its exact pair of aggregate and event type, else to the handler of its event type,
/// else to the first [route by pattern](Routes::route) that fits, else to the wildcard. A second handler for the same
/// events is an error; [`on_list`](Routes::on_list) takes several that run in order.
///
/// ```
/// use postrider_core::Delivery;
/// use postrider_engine::Routes;
///
/// let routes = Routes::new()
///     .on("OrderPlaced", async |delivery: Delivery| println!("{}", delivery.id()))
///     .on_aggregate("Refund", "OrderPlaced", async |_: Delivery| ())
///     .otherwise(async |_: Delivery| ());
/// # let _ = routes;
/// ```
#[derive(Default)]
#[must_use]
pub struct Routes {
    named: BTreeMap<TypePair, (Vec<Arc<dyn Sink>>, RouteSettings)>,
    patterns: Vec<Route>,
    otherwise: Vec<Arc<dyn Sink>>,
    always: Vec<Arc<dyn Sink>>,
    error: Option<ConfigError>,
}

impl Routes {
    /// No routes.
    pub fn new() -> Self {
        Self::default()
    }

    /// A handler for an event type, whatever the aggregate type.
    ///
    /// A handler that needs a value of its own clones it for each call, since calls may run concurrently:
    ///
    /// ```
    /// # use {postrider_core::Delivery, postrider_engine::Routes, std::sync::Arc, tokio::sync::mpsc};
    /// let (sender, _receiver) = mpsc::channel(100);
    /// let routes = Routes::new().on("OrderPlaced", move |order: Delivery| {
    ///     let sender = sender.clone();
    ///     async move { sender.send(order).await }
    /// });
    /// # let _ = routes;
    /// ```
    pub fn on<F, R>(self, event_type: impl EventType, function: F) -> Self
    where
        F: Fn(Delivery) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.to(None, event_type.name(), vec![handler(function)], RouteSettings::default())
    }

    /// A handler for an event type of one aggregate type.
    pub fn on_aggregate<F, R>(
        self,
        aggregate_type: impl AggregateType,
        event_type: impl EventType,
        function: F,
    ) -> Self
    where
        F: Fn(Delivery) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.to(
            Some(aggregate_type.name()),
            event_type.name(),
            vec![handler(function)],
            RouteSettings::default(),
        )
    }

    /// Several handlers for an event type, which run in order. The first that fails fails the event, and a retry runs
    /// the whole list again.
    pub fn on_list(
        self,
        event_type: impl EventType,
        handlers: impl IntoIterator<Item = Arc<dyn Sink>>,
    ) -> Self {
        self.to(None, event_type.name(), handlers.into_iter().collect(), RouteSettings::default())
    }

    /// A sink for an event type, whatever the aggregate type. Routes to clones of one `Arc` share a receiver:
    /// if it is down for one of them, it is down for all. Also use this for a handler that several outboxes
    /// share: create it with [`handler`] and give each a clone.
    pub fn sink(self, event_type: impl EventType, sink: Arc<dyn Sink>) -> Self {
        self.to(None, event_type.name(), vec![sink], RouteSettings::default())
    }

    /// A sink for an event type of one aggregate type.
    pub fn sink_aggregate(
        self,
        aggregate_type: impl AggregateType,
        event_type: impl EventType,
        sink: Arc<dyn Sink>,
    ) -> Self {
        self.to(Some(aggregate_type.name()), event_type.name(), vec![sink], RouteSettings::default())
    }

    /// A route with its own settings, for the types that match its patterns.
    ///
    /// ```
    /// # use {postrider_core::{Delivery, handler}, postrider_engine::{Route, Routes, RouteSettings}};
    /// # let shop = handler(async |_: Delivery| ());
    /// let routes = Routes::new()
    ///     .route(Route::new("OrderPlaced", shop.clone()))
    ///     .route(Route::new("Order*", shop).settings(RouteSettings { max_attempts: Some(3), ..RouteSettings::default() }));
    /// # let _ = routes;
    /// ```
    pub fn route(mut self, route: Route) -> Self {
        match (route.event_type.exact(), route.aggregate_type.exact(), route.aggregate_type.is_any()) {
            (Some(event_type), aggregate_type @ Some(_), _)
            | (Some(event_type), aggregate_type @ None, true) => {
                let (event_type, aggregate_type) = (event_type.to_owned(), aggregate_type.map(str::to_owned));
                self.to(aggregate_type.as_deref(), &event_type, vec![route.sink], route.settings)
            }
            _ => {
                let same = |known: &Route| {
                    (&known.event_type, &known.aggregate_type) == (&route.event_type, &route.aggregate_type)
                };
                if self.patterns.iter().any(same) {
                    self.fail(ConfigError::DuplicateRoute {
                        aggregate_type: Some(route.aggregate_type.to_string()),
                        event_type: Some(route.event_type.to_string()),
                    });
                }
                if let Err(error) = route.settings.check() {
                    self.fail(error);
                }
                self.patterns.push(route);
                self
            }
        }
    }

    /// A sink for the events that have no other route.
    pub fn sink_otherwise(mut self, sink: Arc<dyn Sink>) -> Self {
        if !self.otherwise.is_empty() {
            self.fail(ConfigError::DuplicateRoute { aggregate_type: None, event_type: None });
        }
        self.otherwise.push(sink);
        self
    }

    /// A handler for the events that have no other route.
    pub fn otherwise<F, R>(self, function: F) -> Self
    where
        F: Fn(Delivery) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.sink_otherwise(handler(function))
    }

    /// A handler for every event that the handler of its route has delivered, after that one. It also delivers events without a route.
    pub fn always<F, R>(mut self, function: F) -> Self
    where
        F: Fn(Delivery) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.always.push(handler(function));
        self
    }

    fn to(
        mut self,
        aggregate_type: Option<&str>,
        event_type: &str,
        sinks: Vec<Arc<dyn Sink>>,
        settings: RouteSettings,
    ) -> Self {
        let pair = (event_type.to_owned(), aggregate_type.map(str::to_owned));
        if event_type.trim().is_empty() || aggregate_type.is_some_and(|name| name.trim().is_empty()) {
            self.fail(ConfigError::Missing {
                what: "name for a route",
                hint: "give the event type, and the aggregate type if any, a name",
            });
        } else if sinks.is_empty() {
            self.fail(ConfigError::Missing { what: "handler in a list", hint: "give on_list at least one" });
        } else if self.named.contains_key(&pair) {
            self.fail(ConfigError::DuplicateRoute {
                aggregate_type: pair.1.clone(),
                event_type: Some(pair.0.clone()),
            });
        }
        if let Err(error) = settings.check() {
            self.fail(error);
        }
        self.named.insert(pair, (sinks, settings));
        self
    }

    /// Keeps the first mistake, which is the one that is reported.
    fn fail(&mut self, error: ConfigError) {
        self.error.get_or_insert(error);
    }

    /// Returns these routes, or what is wrong with them.
    pub(crate) fn checked(self) -> Result<Self, ConfigError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.named.is_empty()
            && self.patterns.is_empty()
            && self.otherwise.is_empty()
            && self.always.is_empty()
        {
            return Err(ConfigError::Missing {
                what: "routes",
                hint: "register a handler with on(...), or build a write_only() outbox",
            });
        }
        Ok(self)
    }

    /// Returns the finished table, or what is wrong with it.
    pub(crate) fn build(self) -> Result<RouteTable, ConfigError> {
        let this = self.checked()?;
        let mut table = RouteTable::default();
        for ((event_type, aggregate_type), (sinks, settings)) in this.named {
            let route = table.add(sinks.iter().chain(&this.always), settings);
            let types = table.by_type.entry(event_type).or_default();
            match aggregate_type {
                Some(aggregate_type) => types.by_aggregate.insert(aggregate_type, route),
                None => types.any.replace(route),
            };
        }
        for route in this.patterns {
            let id = table.add(std::iter::once(&route.sink).chain(&this.always), route.settings);
            table.patterns.push((route.event_type, route.aggregate_type, id));
        }
        if !this.otherwise.is_empty() || !this.always.is_empty() {
            let sinks = this.otherwise.iter().chain(&this.always);
            table.wildcard = Some(table.add(sinks, RouteSettings::default()));
        }
        Ok(table)
    }
}

#[derive(Default)]
struct TypeRoutes {
    any: Option<RouteId>,
    by_aggregate: BTreeMap<String, RouteId>,
}

/// The routes of a running engine.
#[derive(Default)]
pub(crate) struct RouteTable {
    by_type: BTreeMap<String, TypeRoutes>,
    patterns: Vec<(Pattern, Pattern, RouteId)>,
    wildcard: Option<RouteId>,
    /// The receiver of each route.
    receivers: Vec<ReceiverId>,
    /// The settings of each route.
    settings: Vec<RouteSettings>,
    sinks: Vec<Arc<dyn Sink>>,
    traits: Vec<SinkTraits>,
    /// The names of each receiver's sinks.
    names: Vec<Vec<String>>,
}

impl RouteTable {
    fn add<'a>(
        &mut self,
        sinks: impl Iterator<Item = &'a Arc<dyn Sink>>,
        settings: RouteSettings,
    ) -> RouteId {
        let mut sinks: Vec<_> = sinks.cloned().collect();
        let names = sinks.iter().filter_map(|sink| sink.name().map(str::to_owned)).collect();
        let sink = match sinks.pop() {
            Some(only) if sinks.is_empty() => only,
            last => {
                sinks.extend(last);
                Arc::new(List(sinks))
            }
        };
        let known =
            self.sinks.iter().position(|known| std::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(&sink)));
        let receiver = known.unwrap_or_else(|| {
            self.traits.push(sink.traits());
            self.names.push(names);
            self.sinks.push(sink);
            self.sinks.len() - 1
        });
        self.receivers.push(receiver);
        self.settings.push(settings);
        self.receivers.len() - 1
    }

    /// Returns the route of an event.
    pub(crate) fn find(&self, event: &Event) -> Option<RouteId> {
        self.find_by_name(event.event_type(), event.aggregate_type())
    }

    /// Finds by the exact pair, then by event type, then by the first pattern, then the wildcard.
    pub(crate) fn find_by_name(&self, event_type: &str, aggregate_type: &str) -> Option<RouteId> {
        self.by_type
            .get(event_type)
            .and_then(|types| types.by_aggregate.get(aggregate_type).copied().or(types.any))
            .or_else(|| self.find_by_pattern(event_type, aggregate_type))
            .or(self.wildcard)
    }

    fn find_by_pattern(&self, event_type: &str, aggregate_type: &str) -> Option<RouteId> {
        let fits = |(event, aggregate, _): &&(Pattern, Pattern, RouteId)| {
            event.matches(event_type) && aggregate.matches(aggregate_type)
        };
        self.patterns.iter().find(fits).map(|(_, _, route)| *route)
    }

    /// Returns the settings of one route.
    pub(crate) fn settings(&self, route: Option<RouteId>) -> Option<&RouteSettings> {
        self.settings.get(route?)
    }

    /// Whether a route lets dead events block their keys.
    pub(crate) fn any_blocks(&self) -> bool {
        self.settings.iter().any(|route| route.on_dead == Some(crate::OnDead::Block))
    }

    pub(crate) fn receiver(&self, route: RouteId) -> Option<ReceiverId> {
        self.receivers.get(route).copied()
    }

    pub(crate) fn sink(&self, receiver: ReceiverId) -> Option<&Arc<dyn Sink>> {
        self.sinks.get(receiver)
    }

    /// Returns the names of a receiver's sinks, as far as they have any.
    pub(crate) fn names(&self, receiver: Option<ReceiverId>) -> &[String] {
        receiver.and_then(|id| self.names.get(id)).map(Vec::as_slice).unwrap_or_default()
    }

    /// Describes a receiver for people to read.
    pub(crate) fn describe(&self, receiver: Option<ReceiverId>) -> String {
        match self.names(receiver) {
            [] => "without a name".to_owned(),
            names => names.join(", "),
        }
    }

    /// Returns the receivers that have a sink of this name.
    pub(crate) fn receivers_named(&self, name: &str) -> impl Iterator<Item = ReceiverId> {
        let has = move |(_, names): &(usize, &Vec<String>)| names.iter().any(|known| known == name);
        self.names.iter().enumerate().filter(has).map(|(id, _)| id)
    }

    /// Returns the traits of a receiver's sink, as they were at the start.
    pub(crate) fn traits(&self, receiver: ReceiverId) -> SinkTraits {
        self.traits.get(receiver).copied().unwrap_or(SinkTraits::HANDLER)
    }

    /// How many routes there are.
    pub(crate) fn len(&self) -> usize {
        self.receivers.len()
    }

    /// How many receivers there are.
    pub(crate) fn receivers(&self) -> usize {
        self.sinks.len()
    }
}
