//! The configuration of a relay: one YAML file.
//!
//! # Layout
//!
//! * [`load`](mod@load): from a file to a checked [`Config`], or to [`problem`]s with line and hint
//! * [`source`], [`sink`], [`route`], [`operations`]: what stands in the file, a section each
//! * [`check`], [`urls`]: what is wrong though it can be read
//! * [`effective`]: what holds for one route when all defaults are taken into account
//! * [`secret`], [`units`], [`variables`]: values that are hidden, values that have a unit, and values from the environment
//! * [`reference`](mod@reference): the documentation that is made from these types

mod check;
mod effective;
mod files;
mod load;
mod operations;
mod placed;
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
    operations::{Gauges, Log, LogFormat, Operations, Traces},
    placed::Placed,
    problem::{Problem, Problems},
    reference::reference,
    route::{DeadHeads, Longest, Overrides, Route},
    secret::{Secret, SecretUrl},
    sink::{File, FormatName, Http, Kafka, Nats, Rabbitmq, Redis, Sink, SinkKind, Tls, Webhook},
    source::{Column, NullKey, Order, Profile, Source, Statuses, System},
    units::{Rate, Size, Span},
};

/// What a relay delivers from where to where.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// The name of this instance, for people to read; by default host, process id and a random number. It need not be unique.
    #[serde(default)]
    pub(crate) instance: Option<String>,
    /// What is logged, and how.
    #[serde(default)]
    pub(crate) log: Log,
    /// Health, metrics and the operators' endpoint.
    #[serde(default)]
    pub(crate) operations: Operations,
    /// What holds for every route of every source, unless it is said otherwise there.
    #[serde(default)]
    pub(crate) defaults: Overrides,
    /// The databases to deliver from, by name.
    pub(crate) sources: BTreeMap<String, Source>,
    /// Where events go, by name.
    pub(crate) sinks: BTreeMap<String, Sink>,
    /// What the files that sinks name held when this was read.
    #[serde(skip)]
    pub(crate) contents: files::Contents,
}

impl Config {
    /// Whether another configuration says the same of a source and of all that it is made of, the contents of files included.
    pub(crate) fn says_the_same_of(&self, source: &str, other: &Self) -> bool {
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

/// For settings that are on unless they are switched off.
fn yes() -> bool {
    true
}
