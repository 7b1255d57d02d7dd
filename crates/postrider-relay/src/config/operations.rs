//! What operators see: logs, health and metrics.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Secret, Span, yes};

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

/// The operators' endpoint: `/health/live`, `/health/ready`, `/metrics`.
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
    /// Gauges that count rows of the outbox: what they say, and how long it is kept before the database is asked again. Off by default.
    pub(crate) gauges: Gauges,
}

impl Default for Operations {
    fn default() -> Self {
        Self {
            enabled: true,
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9465),
            token: None,
            gauges: Gauges::default(),
        }
    }
}

/// Gauges that the database is asked for.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Gauges {
    /// Whether rows are counted at all.
    pub(crate) enabled: bool,
    /// How long a count is kept; `0s` asks at every scrape.
    pub(crate) cache: Span,
}

impl Default for Gauges {
    fn default() -> Self {
        Self { enabled: false, cache: Span(std::time::Duration::from_secs(60)) }
    }
}
