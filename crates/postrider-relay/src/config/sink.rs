//! Where events go.

use std::{collections::BTreeMap, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Rate, Secret, SecretUrl, Span, yes};

/// Where events go. Exactly one of `http`, `webhook`, `kafka`, `rabbitmq`, `nats`, `redis`, `file` and `stdout` says what it is.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sink {
    /// Whether it is in use. Events that go to a sink which is switched off wait in the table.
    #[serde(default = "yes")]
    pub(crate) enabled: bool,
    /// Most events in one send. Default 100; 500 for Kafka. Not for a `webhook`, which sends each by itself.
    #[serde(default)]
    pub(crate) batch: Option<usize>,
    /// Most sends at a time. It holds for each source and each instance by itself. Default 10; 160 for a `webhook`. Where events go to several
    /// paths, each has its share of them.
    #[serde(default)]
    pub(crate) concurrent: Option<usize>,
    /// Most events in a time, such as `100/s`. It holds for each source and each instance by itself. Default no limit.
    #[serde(default)]
    pub(crate) rate: Option<Rate>,
    /// How long a send may take; for `http` and `webhook` one request. Default 120s, 30s for `http` and `webhook`. What happens then is
    /// not known, and it is sent again.
    #[serde(default)]
    pub(crate) timeout: Option<Span>,
    /// How an event is put into a message.
    #[serde(default)]
    pub(crate) format: FormatName,
    /// The `source` attribute of CloudEvents. Default `postrider`.
    #[serde(default)]
    pub(crate) cloud_events_source: Option<String>,
    /// JSON arrays of events by `POST`.
    #[serde(default)]
    pub(crate) http: Option<Http>,
    /// One event a `POST`, signed as Standard Webhooks say.
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
    /// A file, a JSON object a line.
    #[serde(default)]
    pub(crate) file: Option<File>,
    /// Standard output, a JSON object a line.
    #[serde(default)]
    pub(crate) stdout: Option<Stdout>,
}

/// The names of the kinds, as they stand in the file.
pub(crate) const KINDS: [&str; 8] =
    ["http", "webhook", "kafka", "rabbitmq", "nats", "redis", "file", "stdout"];

/// What a sink is.
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
    /// The kinds that are given; there should be one.
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

/// How an event is put into a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FormatName {
    /// The payload as it is, and what is known of the event in headers.
    #[default]
    Raw,
    /// CloudEvents 1.0 with the attributes in headers.
    CloudEventsBinary,
    /// CloudEvents 1.0 as one JSON object.
    CloudEventsStructured,
}

/// TLS, where the default is not enough. Certificates are checked against the roots of the operating system.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Tls {
    /// Certificates to trust instead, in PEM.
    pub(crate) ca_file: Option<PathBuf>,
    /// Our own certificate, in PEM.
    pub(crate) certificate_file: Option<PathBuf>,
    /// Its key, in PEM.
    pub(crate) key_file: Option<PathBuf>,
}

/// JSON arrays of events by `POST`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Http {
    /// The address, without the path if `path` is given.
    pub(crate) url: SecretUrl,
    /// The path; `{event_type}` and the like stand for what the event says.
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// The path of single event types.
    #[serde(default)]
    pub(crate) paths: BTreeMap<String, String>,
    /// A bearer token.
    #[serde(default)]
    pub(crate) token: Option<Secret>,
    /// Further headers of every request.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Secret>,
    /// Whether the answer says of each event what became of it, by `id` or, if no result has one, by position. Default: a status of 2xx is for all of
    /// them.
    #[serde(default)]
    pub(crate) item_results: bool,
    /// Asked with `GET` before a failed attempt counts: 2xx shows that the receiver is well and the event is not. Without it an attempt
    /// counts only if an event of another key was delivered meanwhile.
    #[serde(default)]
    pub(crate) health_path: Option<String>,
    /// Default 10s, or the `timeout` of the sink if that is shorter.
    #[serde(default)]
    pub(crate) connect_timeout: Option<Span>,
    /// TLS for `https://`.
    #[serde(default)]
    pub(crate) tls: Tls,
}

/// One event a `POST`, signed as Standard Webhooks say.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Webhook {
    /// The address, without the path if `path` is given.
    pub(crate) url: SecretUrl,
    /// The path; `{event_type}` and the like stand for what the event says.
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// The path of single event types.
    #[serde(default)]
    pub(crate) paths: BTreeMap<String, String>,
    /// Signing keys, `whsec_…`. The first is the newest; all of them sign, so that one can be changed without a gap. There must be one,
    /// unless `unsigned` is `true`.
    #[serde(default)]
    pub(crate) secrets: Vec<Secret>,
    /// `true`: requests are not signed, for a receiver that trusts its network or a header. Default `false`.
    #[serde(default)]
    pub(crate) unsigned: bool,
    /// Further headers of every request.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Secret>,
    /// Asked with `GET` before a failed attempt counts: 2xx shows that the receiver is well and the event is not. Without it an attempt
    /// counts only if an event of another key was delivered meanwhile.
    #[serde(default)]
    pub(crate) health_path: Option<String>,
    /// Default 10s, or the `timeout` of the sink if that is shorter.
    #[serde(default)]
    pub(crate) connect_timeout: Option<Span>,
    /// TLS for `https://`.
    #[serde(default)]
    pub(crate) tls: Tls,
}

/// Apache Kafka.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kafka {
    /// `host:port`, several with commas between.
    pub(crate) brokers: String,
    /// The topic; `{event_type}` and the like stand for what the event says.
    pub(crate) topic: String,
    /// The topic of single event types.
    #[serde(default)]
    pub(crate) topics: BTreeMap<String, String>,
    /// Further properties of librdkafka, such as `security.protocol` or `sasl.password`. They are never printed. For TLS set
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
    /// The exchange. Default the one without a name, which routes to the queue that the routing key names.
    #[serde(default)]
    pub(crate) exchange: Option<String>,
    /// The routing key; `{event_type}` and the like stand for what the event says. Default `{event_type}`.
    #[serde(default)]
    pub(crate) routing_key: Option<String>,
    /// The routing key of single event types.
    #[serde(default)]
    pub(crate) routing_keys: BTreeMap<String, String>,
    /// TLS for `amqps://`.
    #[serde(default)]
    pub(crate) tls: Tls,
}

/// NATS JetStream. The stream must exist.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nats {
    /// `nats://user:password@host:port` or `nats://token@host:port`, or `tls://`; several with commas between.
    pub(crate) url: SecretUrl,
    /// The subject; `{event_type}` and the like stand for what the event says.
    pub(crate) subject: String,
    /// The subject of single event types.
    #[serde(default)]
    pub(crate) subjects: BTreeMap<String, String>,
    /// A file of credentials, as `nsc` writes them.
    #[serde(default)]
    pub(crate) credentials_file: Option<PathBuf>,
    /// TLS for `tls://`.
    #[serde(default)]
    pub(crate) tls: Tls,
}

/// Redis Streams.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redis {
    /// `redis://user:password@host:port/database`, or `rediss://`.
    pub(crate) url: SecretUrl,
    /// The stream; `{event_type}` and the like stand for what the event says.
    pub(crate) stream: String,
    /// The stream of single event types.
    #[serde(default)]
    pub(crate) streams: BTreeMap<String, String>,
    /// About so many entries are kept in a stream. Default all.
    #[serde(default)]
    pub(crate) max_len: Option<u64>,
    /// TLS for `rediss://`.
    #[serde(default)]
    pub(crate) tls: Tls,
}

/// A file, a JSON object a line.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    /// Lines are added to it; it is created if it is missing, its folder is not. To rotate it, rename it and send the relay a SIGHUP.
    /// All sources of a relay may write to it, but no other process.
    pub(crate) path: PathBuf,
    /// Whether a batch is on the disk before it counts as delivered. Default `true`.
    #[serde(default = "yes")]
    pub(crate) sync: bool,
}

/// Standard output, a JSON object a line.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Stdout {}
