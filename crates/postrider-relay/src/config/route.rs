//! Which events go where, and what holds for them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Placed, Span};

/// Events of a type, and the sink that they go to. Of several routes that fit, the one with the exact pair of types wins, then the one with
/// the exact event type, then the first in the file.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    /// The event type; `*` stands for any text, anywhere in it.
    pub(crate) event_type: Placed,
    /// The aggregate type; `*` stands for any text, anywhere in it.
    #[serde(default)]
    pub(crate) aggregate_type: Option<Placed>,
    /// The name of the sink.
    pub(crate) sink: Placed,
    /// Whether it is in use; events of a route that is switched off are not claimed.
    #[serde(default = "super::yes")]
    pub(crate) enabled: bool,
    /// The topic, subject, stream, routing key or path, in the place of the sink's own. `{event_type}`, `{aggregate_type}`,
    /// `{aggregate_id}` and `{tenant_id}` stand for what the event says.
    #[serde(default)]
    pub(crate) topic: Option<String>,
    /// Most events in one send.
    #[serde(default)]
    pub(crate) batch: Option<usize>,
    /// Least time between two sends of this route.
    #[serde(default)]
    pub(crate) pace: Option<Span>,
    /// Attempts before an event is dead.
    #[serde(default)]
    pub(crate) attempts: Option<u32>,
    /// How long a failed event waits.
    #[serde(default)]
    pub(crate) backoff: Option<Backoff>,
    /// How long an event may fail while nobody knows whether it or its receiver is the reason; then it is dead.
    #[serde(default)]
    pub(crate) unavailable_for: Option<Span>,
    /// What a dead event does to its key.
    #[serde(default)]
    pub(crate) dead_heads: Option<DeadHeads>,
}

impl Route {
    /// What this route says itself.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            batch: self.batch,
            pace: self.pace,
            attempts: self.attempts,
            backoff: self.backoff.clone(),
            unavailable_for: self.unavailable_for,
            dead_heads: self.dead_heads,
        }
    }
}

/// What can be said for all routes, for those of a source, and for one; what is not said is inherited, also within `backoff`. What is
/// said nowhere is as the system has it whose table it is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Overrides {
    /// Most events in one send. Default what the sink's own section says.
    pub(crate) batch: Option<usize>,
    /// Least time between two sends of a route. Default none.
    pub(crate) pace: Option<Span>,
    /// Attempts before an event is dead. Default 10; in the tables of `flowcatalyst` and `spring-outbox` 4, as they have three retries.
    pub(crate) attempts: Option<u32>,
    /// How long a failed event waits.
    pub(crate) backoff: Option<Backoff>,
    /// How long an event may fail while nobody knows whether it or its receiver is the reason; then it is dead. `0s`: it waits for any time.
    /// Default 24h.
    pub(crate) unavailable_for: Option<Span>,
    /// What a dead event does to its key. Default `block`; `skip` in tables that others designed, which have no room for the other.
    pub(crate) dead_heads: Option<DeadHeads>,
}

/// How long a failed event waits: `delay × multiplierⁿ`, at most `max`, times a random factor of 0.5 to 1.5 with `jitter`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Backoff {
    /// `false`: always `delay`. Default `true`.
    pub(crate) enabled: Option<bool>,
    /// The first wait. Default 200ms; `flowcatalyst` 0s, `spring-outbox` 10s.
    pub(crate) delay: Option<Span>,
    /// By how much it grows. Default 2; `flowcatalyst` 1, `spring-outbox` 3.
    pub(crate) multiplier: Option<f64>,
    /// The longest wait; `none` for no limit. Default 60s; `flowcatalyst` and `spring-outbox` none.
    pub(crate) max: Option<Longest>,
    /// Whether waits are spread at random. Default `true`; `flowcatalyst` and `spring-outbox` `false`.
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
pub(crate) enum DeadHeads {
    /// The key waits until an operator redrives or discards the event.
    Block,
    /// The key goes on without it.
    Skip,
}
