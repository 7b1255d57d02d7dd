//! The configuration of what operators see: logs, health, metrics and traces.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use postrider_net::TlsFiles;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Secret, SecretUrl, Span, yes};

/// What is logged, and how. The environment variable `POSTRIDER_LOG` overrides the level.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Log {
    /// `error`, `warn`, `info`, `debug`, or modules with levels such as `info,postrider_engine=debug`.
    pub(crate) level: String,
    /// Lines for people, or one JSON object per line.
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
/// reached, or while for longer than a lease its leases were not renewed, its claims failed or its outcomes waited. A sink that is down leaves the
/// relay ready, because a restart would not help: `/health/ready` names it in `sinks_down`, and the gauge `postrider_breaker_open` is 1.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Operations {
    /// Whether the endpoint exists.
    #[serde(default = "yes")]
    pub(crate) enabled: bool,
    /// Where it listens. Binding beyond loopback requires a token.
    #[schemars(with = "String")]
    pub(crate) listen: SocketAddr,
    /// The bearer token that every request must carry, except those to `/health/live` and `/health/ready`.
    pub(crate) token: Option<Secret>,
    /// Gauges that count rows of the outbox: `outbox_events`, `outbox_events_by_status`, `outbox_events_by_event_type_and_status`,
    /// `postrider_dead_events`, `postrider_dead_events_by_event_type`.
    pub(crate) gauges: Gauges,
    /// Where spans are sent. Off by default.
    pub(crate) traces: Option<Traces>,
}

/// OpenTelemetry spans: one for each attempt to deliver an event whose writer's trace is sampled, as a child of the writer's span. Messages carry
/// the `traceparent` of that span, so that the consumer's spans become its children.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Traces {
    /// An OTLP/HTTP receiver that accepts JSON, such as `http://localhost:4318`; `/v1/traces` is appended if missing.
    pub(crate) endpoint: SecretUrl,
    /// The service name. Default `postrider`.
    #[serde(default)]
    pub(crate) service: Option<String>,
    /// Additional headers of every request.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Secret>,
    /// Timeout of a request. Default 10s.
    #[serde(default)]
    pub(crate) timeout: Option<Span>,
    /// TLS for `https://`.
    #[serde(default)]
    pub(crate) tls: TlsFiles,
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

/// Gauges that query the database. Counting reads everything that is not delivered. `pending` are waiting events, `in_process` those that this
/// relay is sending. Two hundred event types are counted separately; the rest are `(other)`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Gauges {
    /// Whether rows are counted. Default `false`.
    pub(crate) enabled: bool,
    /// How long a count is cached; `0s` counts at every scrape. Default 60s.
    pub(crate) cache: Span,
}

impl Default for Gauges {
    fn default() -> Self {
        Self { enabled: false, cache: Span(std::time::Duration::from_secs(60)) }
    }
}
