//! The configuration of sinks: where events go, and how.

use std::{collections::BTreeMap, path::PathBuf};

use postrider_net::TlsFiles;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Rate, Secret, SecretUrl, Span, yes};

/// Where events go. Set exactly one of `http`, `webhook`, `kafka`, `rabbitmq`, `nats`, `redis`, `file` and `stdout`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sink {
    /// Whether it is in use. Events for a disabled sink wait in the table.
    #[serde(default = "yes")]
    pub(crate) enabled: bool,
    /// Maximum number of events in one send. Default 100; 500 for Kafka. Not for a `webhook`, which sends each event alone.
    #[serde(default)]
    pub(crate) batch: Option<usize>,
    /// Maximum number of sends at a time, for each source and each instance. Default 10; 160 for a `webhook`. If events go to several
    /// paths, each path has its share.
    #[serde(default)]
    pub(crate) concurrent: Option<usize>,
    /// Maximum number of events per period, such as `100/s`, for each source and each instance. Default no limit.
    #[serde(default)]
    pub(crate) rate: Option<Rate>,
    /// Timeout of a send; for `http` and `webhook` of one request. Default 120s, 30s for `http` and `webhook`. After a timeout the outcome is
    /// unknown, and the events are sent again.
    #[serde(default)]
    pub(crate) timeout: Option<Span>,
    /// The format of messages.
    #[serde(default)]
    pub(crate) format: FormatName,
    /// The `source` attribute of CloudEvents. Default `postrider`.
    #[serde(default)]
    pub(crate) cloud_events_source: Option<String>,
    /// POSTs JSON arrays of events.
    #[serde(default)]
    pub(crate) http: Option<Http>,
    /// POSTs each event alone, signed as the Standard Webhooks specification demands.
    #[serde(default)]
    pub(crate) webhook: Option<Webhook>,
    /// Apache Kafka.
    #[serde(default)]
    pub(crate) kafka: Option<Kafka>,
    /// RabbitMQ.
    #[serde(default)]
    pub(crate) rabbitmq: Option<Rabbitmq>,
    /// NATS JetStream.
    #[serde(default)]
    pub(crate) nats: Option<Nats>,
    /// Redis Streams.
    #[serde(default)]
    pub(crate) redis: Option<Redis>,
    /// A file with one JSON object per line.
    #[serde(default)]
    pub(crate) file: Option<File>,
    /// Standard output with one JSON object per line.
    #[serde(default)]
    pub(crate) stdout: Option<Stdout>,
}

/// The names of the kinds in the configuration.
pub(crate) const KINDS: [&str; 8] =
    ["http", "webhook", "kafka", "rabbitmq", "nats", "redis", "file", "stdout"];

/// The kind of a sink with its settings.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SinkKind<'a> {
    Http(&'a Http),
    Webhook(&'a Webhook),
    Kafka(&'a Kafka),
    Rabbitmq(&'a Rabbitmq),
    Nats(&'a Nats),
    Redis(&'a Redis),
    File(&'a File),
    Stdout,
}

impl SinkKind<'_> {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Webhook(_) => "webhook",
            Self::Kafka(_) => "kafka",
            Self::Rabbitmq(_) => "rabbitmq",
            Self::Nats(_) => "nats",
            Self::Redis(_) => "redis",
            Self::File(_) => "file",
            Self::Stdout => "stdout",
        }
    }
}

impl Sink {
    /// The kinds that are set; a valid sink has one.
    pub(crate) fn kinds(&self) -> Vec<SinkKind<'_>> {
        [
            self.http.as_ref().map(SinkKind::Http),
            self.webhook.as_ref().map(SinkKind::Webhook),
            self.kafka.as_ref().map(SinkKind::Kafka),
            self.rabbitmq.as_ref().map(SinkKind::Rabbitmq),
            self.nats.as_ref().map(SinkKind::Nats),
            self.redis.as_ref().map(SinkKind::Redis),
            self.file.as_ref().map(SinkKind::File),
            self.stdout.as_ref().map(|_| SinkKind::Stdout),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// The format of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FormatName {
    /// The payload unchanged, and the event's other fields in headers.
    #[default]
    Raw,
    /// CloudEvents 1.0 with the attributes in headers.
    CloudEventsBinary,
    /// CloudEvents 1.0 as one JSON object.
    CloudEventsStructured,
}

/// POSTs JSON arrays of events.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Http {
    /// The URL, without the path if `path` is set.
    pub(crate) url: SecretUrl,
    /// The path; `{event_type}`, `{aggregate_type}`, `{aggregate_id}` and `{tenant_id}` are replaced by the event's values.
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// Paths of single event types.
    #[serde(default)]
    pub(crate) paths: BTreeMap<String, String>,
    /// A bearer token.
    #[serde(default)]
    pub(crate) token: Option<Secret>,
    /// Additional headers of every request.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Secret>,
    /// Whether the response has a result for each event, matched by `id` or, if no result has one, by position. Default: a 2xx status
    /// acknowledges the whole batch.
    #[serde(default)]
    pub(crate) item_results: bool,
    /// Requested with `GET` before a failed attempt counts: 2xx shows that the receiver is up, so the event is at fault. Without it, an attempt
    /// counts only if an event of another key was delivered meanwhile.
    #[serde(default)]
    pub(crate) health_path: Option<String>,
    /// Default 10s, or the `timeout` of the sink if that is shorter.
    #[serde(default)]
    pub(crate) connect_timeout: Option<Span>,
    /// TLS for `https://`.
    #[serde(default)]
    pub(crate) tls: TlsFiles,
}

/// POSTs each event alone, signed as the Standard Webhooks specification demands.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Webhook {
    /// The URL, without the path if `path` is set.
    pub(crate) url: SecretUrl,
    /// The path; `{event_type}`, `{aggregate_type}`, `{aggregate_id}` and `{tenant_id}` are replaced by the event's values.
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// Paths of single event types.
    #[serde(default)]
    pub(crate) paths: BTreeMap<String, String>,
    /// Signing keys, `whsec_…`, the newest first. Every key signs, so that keys can be rotated without a gap. Required unless `unsigned` is
    /// `true`.
    #[serde(default)]
    pub(crate) secrets: Vec<Secret>,
    /// `true`: requests are not signed, for a receiver that trusts its network or a header. Default `false`.
    #[serde(default)]
    pub(crate) unsigned: bool,
    /// Additional headers of every request.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Secret>,
    /// Requested with `GET` before a failed attempt counts: 2xx shows that the receiver is up, so the event is at fault. Without it, an attempt
    /// counts only if an event of another key was delivered meanwhile.
    #[serde(default)]
    pub(crate) health_path: Option<String>,
    /// Default 10s, or the `timeout` of the sink if that is shorter.
    #[serde(default)]
    pub(crate) connect_timeout: Option<Span>,
    /// TLS for `https://`.
    #[serde(default)]
    pub(crate) tls: TlsFiles,
}

/// Apache Kafka.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kafka {
    /// `host:port`, several separated by commas.
    pub(crate) brokers: String,
    /// The topic; `{event_type}`, `{aggregate_type}`, `{aggregate_id}` and `{tenant_id}` are replaced by the event's values.
    pub(crate) topic: String,
    /// Topics of single event types.
    #[serde(default)]
    pub(crate) topics: BTreeMap<String, String>,
    /// Additional properties of librdkafka, such as `security.protocol` or `sasl.password`. They are never printed. For TLS set
    /// `security.protocol` to `ssl` or `sasl_ssl`; `ssl.ca.location`, `ssl.certificate.location` and `ssl.key.location` name files. For SASL
    /// set `sasl.mechanisms` to `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`, with `sasl.username` and `sasl.password`.
    #[serde(default)]
    pub(crate) properties: BTreeMap<String, Secret>,
}

/// RabbitMQ.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rabbitmq {
    /// `amqp://user:password@host:port/vhost`, or `amqps://`.
    pub(crate) url: SecretUrl,
    /// The exchange. Default: the unnamed one, whose routing key is the name of a queue.
    #[serde(default)]
    pub(crate) exchange: Option<String>,
    /// The routing key; `{event_type}`, `{aggregate_type}`, `{aggregate_id}` and `{tenant_id}` are replaced by the event's values. Default `{event_type}`.
    #[serde(default)]
    pub(crate) routing_key: Option<String>,
    /// Routing keys of single event types.
    #[serde(default)]
    pub(crate) routing_keys: BTreeMap<String, String>,
    /// TLS for `amqps://`.
    #[serde(default)]
    pub(crate) tls: TlsFiles,
}

/// NATS JetStream. The stream must exist.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nats {
    /// `nats://user:password@host:port` or `nats://token@host:port`, or `tls://`; several separated by commas.
    pub(crate) url: SecretUrl,
    /// The subject; `{event_type}`, `{aggregate_type}`, `{aggregate_id}` and `{tenant_id}` are replaced by the event's values.
    pub(crate) subject: String,
    /// Subjects of single event types.
    #[serde(default)]
    pub(crate) subjects: BTreeMap<String, String>,
    /// A credentials file, as `nsc` writes it.
    #[serde(default)]
    pub(crate) credentials_file: Option<PathBuf>,
    /// TLS for `tls://`.
    #[serde(default)]
    pub(crate) tls: TlsFiles,
}

/// Redis Streams.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redis {
    /// `redis://user:password@host:port/database`, or `rediss://`.
    pub(crate) url: SecretUrl,
    /// The stream; `{event_type}`, `{aggregate_type}`, `{aggregate_id}` and `{tenant_id}` are replaced by the event's values.
    pub(crate) stream: String,
    /// Streams of single event types.
    #[serde(default)]
    pub(crate) streams: BTreeMap<String, String>,
    /// Approximate number of entries that a stream keeps. Default: all.
    #[serde(default)]
    pub(crate) max_len: Option<u64>,
    /// TLS for `rediss://`.
    #[serde(default)]
    pub(crate) tls: TlsFiles,
}

/// A file with one JSON object per line.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    /// Lines are appended. A missing file is created, a missing folder is not. To rotate the file, rename it and send the relay a SIGHUP.
    /// All sources of a relay may write to it, but no other process.
    pub(crate) path: PathBuf,
    /// Whether a batch is on disk before it counts as delivered. Default `true`.
    #[serde(default = "yes")]
    pub(crate) sync: bool,
}

/// Standard output with one JSON object per line.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Stdout {}
