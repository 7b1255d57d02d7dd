//! The configuration of a relay: one YAML file.
//!
//! # Layout
//!
//! * [`load`](mod@load): from a file to a checked [`Config`], or to [`problem`]s with line and hint
//! * [`source`], [`sink`], [`route`], [`operations`]: the sections of the file
//! * [`check`], [`urls`]: checks beyond syntax
//! * [`effective`]: the settings of one route with all defaults applied
//! * [`secret`], [`units`], [`variables`]: hidden values, values with a unit, and values from the environment
//! * [`reference`](mod@reference): the documentation that is generated from these types

mod check;
mod effective;
mod files;
mod load;
mod located;
mod operations;
mod problem;
mod reference;
mod route;
mod secret;
mod sink;
mod source;
#[cfg(test)]
mod tests;
mod units;
mod urls;
mod variables;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(test)]
pub(crate) use self::load::parse;
pub(crate) use self::{
    effective::{BuiltIn, Effective, EffectiveBackoff},
    load::load,
    located::Located,
    operations::{Gauges, Log, LogFormat, Operations, Traces},
    problem::{Problem, Problems},
    reference::reference,
    route::{Longest, OnDead, Overrides, Route},
    secret::{Secret, SecretUrl},
    sink::{File, FormatName, Http, Kafka, Nats, Rabbitmq, Redis, Sink, SinkKind, Webhook},
    source::{Column, NullKey, Order, Profile, Source, Statuses, System},
    units::{Rate, Size, Span},
};

/// The configuration of a relay.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// The name of this instance, for people. It need not be unique. Default: host, process ID and a random number.
    #[serde(default)]
    pub(crate) instance: Option<String>,
    /// What is logged, and how.
    #[serde(default)]
    pub(crate) log: Log,
    /// Health, metrics and the operators' endpoint.
    #[serde(default)]
    pub(crate) operations: Operations,
    /// Settings for every route of every source that does not set them itself.
    #[serde(default)]
    pub(crate) defaults: Overrides,
    /// The databases to deliver from, by name.
    pub(crate) sources: BTreeMap<String, Source>,
    /// Where events go, by name.
    pub(crate) sinks: BTreeMap<String, Sink>,
    /// Fingerprints of the files that sinks read.
    #[serde(skip)]
    pub(crate) contents: files::Contents,
}

impl Config {
    /// Whether another configuration is the same for a source, its sinks, and the contents of their files.
    pub(crate) fn is_equal_for(&self, source: &str, other: &Self) -> bool {
        let (Some(ours), Some(theirs)) = (self.sources.get(source), other.sources.get(source)) else {
            return false;
        };
        let same_sink = |route: &Route| {
            let name = &route.sink.value;
            self.sinks.get(name) == other.sinks.get(name)
                && self.contents.get(name) == other.contents.get(name)
        };
        ours == theirs
            && (&self.defaults, &self.instance) == (&other.defaults, &other.instance)
            && ours.routes.iter().all(same_sink)
    }
}

/// The default of settings that are on unless switched off.
fn yes() -> bool {
    true
}
