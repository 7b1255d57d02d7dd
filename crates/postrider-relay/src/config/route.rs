//! Which events go to which sink, and with which settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Located, Span};

/// Sends events of a type to a sink. If several routes match, an exact event type with an exact aggregate type wins, then an exact event type,
/// then the first in the file.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    /// The event type; `*` matches any text, anywhere in it.
    pub(crate) event_type: Located,
    /// The aggregate type; `*` matches any text, anywhere in it.
    #[serde(default)]
    pub(crate) aggregate_type: Option<Located>,
    /// The name of the sink.
    pub(crate) sink: Located,
    /// Whether the route is in use; events of a disabled route are not claimed.
    #[serde(default = "super::yes")]
    pub(crate) enabled: bool,
    /// The topic, subject, stream, routing key or path, instead of the sink's own. `{event_type}`, `{aggregate_type}`,
    /// `{aggregate_id}` and `{tenant_id}` are replaced by the event's values.
    #[serde(default)]
    pub(crate) topic: Option<String>,
    /// Maximum number of events in one send.
    #[serde(default)]
    pub(crate) batch: Option<usize>,
    /// Minimum time between two sends of this route.
    #[serde(default)]
    pub(crate) pace: Option<Span>,
    /// Attempts before an event becomes a dead letter.
    #[serde(default)]
    pub(crate) attempts: Option<u32>,
    /// How long a failed event waits.
    #[serde(default)]
    pub(crate) backoff: Option<Backoff>,
    /// How long an event may fail while it is unknown whether the event or its receiver is the cause; then it becomes a dead letter.
    #[serde(default)]
    pub(crate) unavailable_for: Option<Span>,
    /// What a dead event does to its key.
    #[serde(default)]
    pub(crate) on_dead: Option<OnDead>,
}

impl Route {
    /// The settings of this route itself.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            batch: self.batch,
            pace: self.pace,
            attempts: self.attempts,
            backoff: self.backoff.clone(),
            unavailable_for: self.unavailable_for,
            on_dead: self.on_dead,
        }
    }
}

/// Settings for all routes, for those of a source, or for one route. Unset values are inherited, also within `backoff`. Values that are
/// unset everywhere use the defaults of the system that owns the table.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Overrides {
    /// Maximum number of events in one send. Default: the setting of the sink.
    pub(crate) batch: Option<usize>,
    /// Minimum time between two sends of a route. Default: none.
    pub(crate) pace: Option<Span>,
    /// Attempts before an event becomes a dead letter. Default 10; for `flowcatalyst` and `spring-outbox` 4, as they have three retries.
    pub(crate) attempts: Option<u32>,
    /// How long a failed event waits.
    pub(crate) backoff: Option<Backoff>,
    /// How long an event may fail while it is unknown whether the event or its receiver is the cause; then it becomes a dead letter. `0s`: no
    /// limit. Default 24h.
    pub(crate) unavailable_for: Option<Span>,
    /// What a dead event does to its key. Default `block`; `skip` for external tables, which cannot record a blocked key.
    pub(crate) on_dead: Option<OnDead>,
}

/// How long a failed event waits: `delay × multiplierⁿ`, at most `max`, times a random factor of 0.5 to 1.5 with `jitter`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Backoff {
    /// `false`: always `delay`. Default `true`.
    pub(crate) enabled: Option<bool>,
    /// The first wait. Default 200ms; `flowcatalyst` 0s, `spring-outbox` 10s.
    pub(crate) delay: Option<Span>,
    /// The factor by which it grows. Default 2; `flowcatalyst` 1, `spring-outbox` 3.
    pub(crate) multiplier: Option<f64>,
    /// The longest wait; `none` for no limit. Default 60s; `flowcatalyst` and `spring-outbox` none.
    pub(crate) max: Option<Longest>,
    /// Whether waits are randomized. Default `true`; `flowcatalyst` and `spring-outbox` `false`.
    pub(crate) jitter: Option<bool>,
}

/// The longest wait, or none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Longest {
    None,
    Wait(Span),
}

impl<'de> Deserialize<'de> for Longest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "none" => Ok(Self::None),
            text => text.parse().map(Self::Wait).map_err(serde::de::Error::custom),
        }
    }
}

impl Serialize for Longest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_str("none"),
            Self::Wait(span) => span.serialize(serializer),
        }
    }
}

impl JsonSchema for Longest {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Longest".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Span::json_schema(generator)
    }
    fn inline_schema() -> bool {
        true
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnDead {
    /// The key waits until an operator redrives or discards the event.
    Block,
    /// The key goes on without it.
    Skip,
}
