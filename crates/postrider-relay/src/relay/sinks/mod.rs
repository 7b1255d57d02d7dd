//! From the configuration of the sinks that a source uses to sinks.
//!
//! A source has sinks of its own, so that one which is down holds up nobody else's, and routes that name a topic of their own share a
//! sink with those that do not.

mod brokers;
mod closed;
mod file;
mod http;
mod tuned;

use std::{collections::BTreeMap, sync::Arc};

use postrider::{
    ConfigError, Pattern, Sink as _,
    format::{CloudEvents, Destination, Format},
};
use postrider_net::TlsFiles;

use self::{closed::Closed, tuned::Tuned};
use crate::config::{Config, FormatName, Route, Sink, SinkKind, Source, Tls};

type Shared = Arc<dyn postrider::Sink>;

/// The sinks of one source.
pub(crate) struct Sinks {
    by_name: BTreeMap<String, Shared>,
    closed: Shared,
}

impl Sinks {
    /// The sinks that the routes of a source name, those excepted that are switched off. Nobody is asked for anything yet.
    pub(crate) fn of(config: &Config, source: &Source) -> Result<Self, ConfigError> {
        let mut by_name = BTreeMap::new();
        for route in source.routes.iter().filter(|route| route.enabled) {
            let name = &route.sink.value;
            let Some(sink) = config.sinks.get(name).filter(|sink| sink.enabled) else { continue };
            if !by_name.contains_key(name) {
                let routes = source.routes.iter().filter(|route| route.sink.value == *name && route.enabled);
                by_name.insert(name.clone(), build(sink, &routes.collect::<Vec<_>>())?);
            }
        }
        Ok(Self { by_name, closed: Arc::new(Closed) })
    }

    /// The sink of a route.
    pub(super) fn of_route(&self, route: &Route) -> Shared {
        let sink = self.by_name.get(&route.sink.value).filter(|_| route.enabled);
        sink.unwrap_or(&self.closed).clone()
    }

    /// All that can be asked how they are, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Shared)> {
        self.by_name.iter().map(|(name, sink)| (name.as_str(), sink))
    }
}

fn build(sink: &Sink, routes: &[&Route]) -> Result<Shared, ConfigError> {
    let kinds = sink.kinds();
    let Some(kind) = kinds.first() else {
        return Err(ConfigError::Missing {
            what: "kind of sink",
            hint: "say what the sink is: http, kafka, …",
        });
    };
    let built: Shared = match kind {
        SinkKind::Http(config) => Arc::new(http::batch(sink, config, routes)?),
        SinkKind::Webhook(config) => Arc::new(http::webhook(sink, config, routes)?),
        SinkKind::Kafka(config) => Arc::new(brokers::kafka(sink, config, routes)?),
        SinkKind::Rabbitmq(config) => Arc::new(brokers::rabbitmq(sink, config, routes)?),
        SinkKind::Nats(config) => Arc::new(brokers::nats(sink, config, routes)?),
        SinkKind::Redis(config) => Arc::new(brokers::redis(sink, config, routes)?),
        SinkKind::File(config) => Arc::new(file::file(config)?),
        SinkKind::Stdout => Arc::new(file::stdout()),
    };
    let traits = built.traits();
    Ok(Arc::new(Tuned::new(built, traits, sink)))
}

/// Where the events of a sink go: by the sink's own template, by those of single types, and by those of routes.
fn destination(
    template: &str,
    by_type: &BTreeMap<String, String>,
    routes: &[&Route],
) -> Result<Destination, ConfigError> {
    let mut destination = Destination::new(template)?;
    for (event_type, template) in by_type {
        destination = destination.for_type(event_type, template)?;
    }
    // Exact ones first, as an event finds its route.
    let with_topic = routes.iter().filter_map(|route| Some((*route, route.topic.as_deref()?)));
    let (exact, patterns): (Vec<_>, Vec<_>) =
        with_topic.partition(|(route, _)| Pattern::new(&*route.event_type.value).exact().is_some());
    for (route, template) in exact.into_iter().chain(patterns) {
        let aggregate_type = route.aggregate_type.as_ref().map_or(Pattern::ANY, |pattern| &pattern.value);
        destination = destination.for_types(&*route.event_type.value, aggregate_type, template)?;
    }
    Ok(destination)
}

fn format(sink: &Sink) -> Format {
    match sink.format {
        FormatName::Raw => Format::Raw,
        FormatName::CloudEventsBinary => Format::CloudEventsBinary(cloud_events(sink)),
        FormatName::CloudEventsStructured => Format::CloudEventsStructured(cloud_events(sink)),
    }
}

fn cloud_events(sink: &Sink) -> CloudEvents {
    sink.cloud_events_source.as_ref().map_or_else(CloudEvents::default, CloudEvents::new)
}

fn tls(config: &Tls) -> TlsFiles {
    TlsFiles {
        ca_file: config.ca_file.clone(),
        certificate_file: config.certificate_file.clone(),
        key_file: config.key_file.clone(),
    }
}
