//! What operators see: logs, health and metrics.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Secret, SecretUrl, Span, Tls, yes};

/// What is logged, and how. `POSTRIDER_LOG` in the environment has the last word on the level.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Log {
    /// `error`, `warn`, `info`, `debug`, or parts and levels such as `info,postrider_engine=debug`.
    pub(crate) level: String,
    /// Lines for people, or a JSON object a line.
    pub(crate) format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}

/// The operators' endpoint: `/health/live`, `/health/ready`, `/metrics`. A relay is not ready (503, with the reasons) while a source cannot be
/// reached, or its last renewal is older than its lease (also because another session has locked its lanes), or its claims have failed or its outcomes have waited for longer than that. A sink that is down leaves it ready, since no restart would bring that back: `/health/ready` names it in `sinks_down`, and the
/// gauge `postrider_breaker_open` is 1.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Operations {
    /// Whether there is one.
    #[serde(default = "yes")]
    pub(crate) enabled: bool,
    /// Where it listens. Outside of loopback only with a token.
    #[schemars(with = "String")]
    pub(crate) listen: SocketAddr,
    /// The bearer token that every request must carry, those to `/health/live` and `/health/ready` excepted.
    pub(crate) token: Option<Secret>,
    /// Gauges that count rows of the outbox: `outbox_events`, `outbox_events_by_status`, `outbox_events_by_event_type_and_status`,
    /// `postrider_dead_events`, `postrider_dead_events_by_event_type`.
    pub(crate) gauges: Gauges,
    /// Where spans go. Off by default.
    pub(crate) traces: Option<Traces>,
}

/// Spans by OpenTelemetry: one for each attempt to deliver an event whose writer's trace is recorded, as a child of the span that wrote it.
/// What the sink sends carries the `traceparent` of that span, so that the receiver's spans are its children.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Traces {
    /// An OTLP receiver by HTTP, such as `http://localhost:4318`; `/v1/traces` is added unless it ends in that. It must take JSON.
    pub(crate) endpoint: SecretUrl,
    /// The name of the service. Default `postrider`.
    #[serde(default)]
    pub(crate) service: Option<String>,
    /// Further headers of every request.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Secret>,
    /// How long a request may take. Default 10s.
    #[serde(default)]
    pub(crate) timeout: Option<Span>,
    /// TLS for `https://`.
    #[serde(default)]
    pub(crate) tls: Tls,
}

impl Default for Operations {
    fn default() -> Self {
        Self {
            enabled: true,
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9465),
            token: None,
            gauges: Gauges::default(),
            traces: None,
        }
    }
}

/// Gauges that the database is asked for. Counting reads all that is not delivered. `pending` are those that wait, `in_process` those that
/// this relay is sending. Two hundred event types are told apart; further ones are `(other)`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Gauges {
    /// Whether rows are counted at all. Default `false`.
    pub(crate) enabled: bool,
    /// How long a count is kept; `0s` asks at every scrape. Default 60s.
    pub(crate) cache: Span,
}

impl Default for Gauges {
    fn default() -> Self {
        Self { enabled: false, cache: Span(std::time::Duration::from_secs(60)) }
    }
}
