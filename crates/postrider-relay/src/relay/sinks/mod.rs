//! Builds the sinks of a source from the configuration.
//!
//! Each source has sinks of its own, so that a slow sink of one source does not delay another. Routes with a `topic` share the sink of those
//! without. All sources share files and standard output.

mod brokers;
mod closed;
mod destination;
mod file;
mod http;
mod traced;
mod tuned;

use std::{collections::BTreeMap, sync::Arc};

use postrider::{
    ConfigError,
    format::{CloudEvents, Format},
};
use postrider_file::FileSink;

use self::{closed::Closed, destination::destination, traced::Traced, tuned::Tuned};
use crate::{
    config::{Config, FormatName, Route, Sink, SinkKind, Source},
    operations::ByType,
    traces::{Labels, Tracer},
};

type Shared = Arc<dyn postrider::Sink>;

/// The sinks of one source.
pub(crate) struct Sinks {
    by_name: BTreeMap<String, Shared>,
    closed: Shared,
    files: Vec<Arc<FileSink>>,
}

/// What wraps every sink of a source.
pub(crate) struct Around<'a> {
    pub(crate) source: &'a str,
    pub(crate) types: &'a Arc<ByType>,
    pub(crate) tracer: &'a Tracer,
}

impl Sinks {
    /// Builds the sinks that the enabled routes of a source name, without connecting.
    pub(crate) fn of(config: &Config, source: &Source, around: &Around<'_>) -> Result<Self, ConfigError> {
        let mut sinks = Self { by_name: BTreeMap::new(), closed: Arc::new(Closed), files: Vec::new() };
        for route in source.routes.iter().filter(|route| route.enabled) {
            let name = &route.sink.value;
            let Some(sink) = config.sinks.get(name).filter(|sink| sink.enabled) else { continue };
            if !sinks.by_name.contains_key(name) {
                let routes = source.routes.iter().filter(|route| route.sink.value == *name && route.enabled);
                let built = build(sink, &routes.collect::<Vec<_>>(), &mut sinks.files)?;
                sinks.by_name.insert(name.clone(), around.with(name, sink, built));
            }
        }
        Ok(sinks)
    }

    /// The sinks that write to files, to be reopened after a rotation.
    pub(crate) fn files(&self) -> &[Arc<FileSink>] {
        &self.files
    }

    /// The sink of a route.
    pub(crate) fn of_route(&self, route: &Route) -> Shared {
        let sink = self.by_name.get(&route.sink.value).filter(|_| route.enabled);
        sink.unwrap_or(&self.closed).clone()
    }

    /// All sinks with their names, for health checks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Shared)> {
        self.by_name.iter().map(|(name, sink)| (name.as_str(), sink))
    }
}

impl Around<'_> {
    fn with(&self, name: &str, config: &Sink, mut sink: Shared) -> Shared {
        if self.tracer.is_on() {
            let system = config.kinds().first().map_or("", |kind| kind.name());
            let labels = Labels { source: self.source.to_owned(), sink: name.to_owned(), system };
            sink = Arc::new(Traced::new(sink, self.tracer.clone(), labels));
        }
        // Operators pause a sink by its name in the configuration.
        postrider::named(name, Arc::new(Tuned::new(sink, config, self.types.clone())))
    }
}

fn build(sink: &Sink, routes: &[&Route], files: &mut Vec<Arc<FileSink>>) -> Result<Shared, ConfigError> {
    let kinds = sink.kinds();
    let Some(kind) = kinds.first() else {
        return Err(ConfigError::Missing {
            what: "kind of sink",
            hint: "set the kind of the sink: http, kafka, …",
        });
    };
    Ok(match kind {
        SinkKind::Http(config) => Arc::new(http::batch(sink, config, routes)?),
        SinkKind::Webhook(config) => Arc::new(http::webhook(sink, config, routes)?),
        SinkKind::Kafka(config) => Arc::new(brokers::kafka(sink, config, routes)?),
        SinkKind::Rabbitmq(config) => Arc::new(brokers::rabbitmq(sink, config, routes)?),
        SinkKind::Nats(config) => Arc::new(brokers::nats(sink, config, routes)?),
        SinkKind::Redis(config) => Arc::new(brokers::redis(sink, config, routes)?),
        SinkKind::File(config) => {
            let file = file::file(config)?;
            files.push(file.clone());
            file
        }
        SinkKind::Stdout => file::stdout(),
    })
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
