//! The configuration of a source: a database to deliver from.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Located, Overrides, Route, SecretUrl, Size, Span, yes};

/// A database to deliver from, and where its events go.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// Whether it is in use.
    #[serde(default = "yes")]
    pub(crate) enabled: bool,
    /// The database: `postgres://`, `mysql://`, `mariadb://`, `sqlite:` or a path. Parameters ask for TLS:
    /// `?sslmode=verify-full&sslrootcert=FILE&sslcert=FILE&sslkey=FILE` for PostgreSQL,
    /// `?ssl-mode=VERIFY_IDENTITY&ssl-ca=FILE&ssl-cert=FILE&ssl-key=FILE` for MySQL and MariaDB. Without a file of certificates, the authorities
    /// of the operating system are trusted. Other parameters that look like TLS are refused, because the drivers would ignore them.
    pub(crate) url: SecretUrl,
    /// The external outbox table to deliver from. Default: Postrider's own tables.
    #[serde(default)]
    pub(crate) profile: Option<Profile>,
    /// The prefix of the names of Postrider's own tables. Default `postrider_`.
    #[serde(default)]
    pub(crate) prefix: Option<Located>,
    /// Number of lanes in Postrider's own tables: at most this many instances deliver at once. Default: the number in the database, or 64 for
    /// new tables; SQLite has one lane. The number can be changed only while the outbox is empty.
    #[serde(default)]
    pub(crate) lanes: Option<u32>,
    /// Whether a pooler such as PgBouncer in transaction mode stands before PostgreSQL. Default: detected.
    #[serde(default)]
    pub(crate) pooled: Option<bool>,
    /// Whether Postrider's own tables are created or upgraded at the start. Default `true`.
    #[serde(default = "yes")]
    pub(crate) migrate: bool,
    /// Where events go.
    pub(crate) routes: Vec<Route>,
    /// Settings for the routes of this source.
    #[serde(default)]
    pub(crate) defaults: Overrides,
    /// Pauses between queries for new events.
    #[serde(default)]
    pub(crate) poll: Poll,
    /// Maximum number of events that one claim reads. Default 500; with a `profile`, that of its system (`outbox-java` 200, `spring-outbox` 50).
    #[serde(default)]
    pub(crate) claim_batch: Option<usize>,
    /// How long a lease lasts. After that another instance takes over. Default 15s.
    #[serde(default)]
    pub(crate) lease: Option<Span>,
    /// How long delivered events are kept. Default 1h; `0s` deletes them at once. Of the profiles only `spring-outbox` has this setting:
    /// with `debezium` delivered rows are deleted at once, with the others they stay in the table.
    #[serde(default)]
    pub(crate) retention: Option<Span>,
    /// Limits of what is held in memory.
    #[serde(default)]
    pub(crate) queue: Queue,
    /// Limit for a shutdown: for half of it events in memory are still sent, then sends under way are waited for. Default 5s. The process
    /// exits at most 5s after it.
    #[serde(default)]
    pub(crate) drain_timeout: Option<Span>,
    /// Whether the events of a key are delivered in order. Default `kept`.
    #[serde(default)]
    pub(crate) order: Option<Order>,
}

/// Pauses between queries for new events.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Poll {
    /// The shortest pause. Default 20ms, or `max` if that is less.
    pub(crate) min: Option<Span>,
    /// The longest pause, reached while no events come. Default 1s; with a `profile`, that of its system (`outbox-java` 5s,
    /// `spring-outbox` 2s).
    pub(crate) max: Option<Span>,
    /// The shortest time between two peeks. A peek asks between polls whether rows were written, costs a fraction of a poll, and finds events
    /// without a notification. While no events come, the time is four times as long. Default 5ms, or more where a peek costs more; `0s` switches peeks
    /// off. Databases in memory and tables with a `profile` have none.
    pub(crate) peek: Option<Span>,
}

/// Limits of what is held in memory.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Queue {
    /// Number of events. Default: four claims, at least 1000; 1000 with a `profile`.
    pub(crate) events: Option<usize>,
    /// Bytes of their payloads and headers. Default 64MiB.
    pub(crate) bytes: Option<Size>,
    /// Number of events of one key that wait behind its first, or as many as its sink takes at once. Default 32.
    pub(crate) of_key: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// Events of a key are delivered in order.
    Kept,
    /// Keys are ignored.
    Ignored,
}

/// An external outbox table: the name of its system, or its system with the differences.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    /// The system that owns the table.
    pub(crate) system: System,
    /// The table, as `table` or `schema.table`, if its name differs from the system's. Quote names with other characters than letters, digits
    /// and underscores: `'"Odd Schema".events'`.
    #[serde(default)]
    pub(crate) table: Option<Located>,
    /// The names of columns that differ from the system's, by what they hold.
    #[serde(default)]
    pub(crate) columns: BTreeMap<Column, Located>,
    /// What the table has no column for, although the system's has one.
    #[serde(default)]
    pub(crate) without: Vec<Column>,
    /// The values of the status column of a `custom` table.
    #[serde(default)]
    pub(crate) statuses: Option<Statuses>,
    /// The type of every event if no column holds it. Default `event`.
    #[serde(default)]
    pub(crate) event_type: Option<String>,
    /// The order of events whose key is null. Default none; for `flowcatalyst` they share a key named `default`.
    #[serde(default)]
    pub(crate) null_key: Option<NullKey>,
    /// The age at which a row may be claimed, because the system may be delivering it itself. Default 0s; `outbox-java` 1s.
    #[serde(default)]
    pub(crate) skip_recent: Option<Span>,
    /// The prefix of Postrider's own small tables beside it, as `prefix` or `schema.prefix`. Default `postrider_profile_`.
    #[serde(default)]
    pub(crate) beside: Option<Located>,
    /// When abandoned claims are given back.
    #[serde(default)]
    pub(crate) recovery: Recovery,
}

/// The systems whose tables are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum System {
    /// FlowCatalyst's `outbox_events`.
    Flowcatalyst,
    /// FlowCatalyst's `outbox_dispatch_jobs`.
    FlowcatalystDispatchJobs,
    /// outbox-java's `outbox_event` with `locked_by` and `locked_at`.
    OutboxJava,
    /// outbox-java's `outbox_event` without these columns.
    OutboxJavaUnlocked,
    /// spring-outbox's `outbox_events`.
    SpringOutbox,
    /// The table of Debezium's outbox router.
    Debezium,
    /// Any other table: `table`, and `id` and `payload` among the `columns`, are required.
    Custom,
}

impl System {
    /// The name in the configuration.
    pub(crate) fn name(self) -> String {
        written(self)
    }
}

/// The name of a value in the configuration.
fn written(value: impl Serialize) -> String {
    let value = serde_json::to_value(value).ok();
    value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Column {
    Id,
    EventType,
    AggregateType,
    AggregateId,
    Key,
    TenantId,
    Headers,
    Payload,
    Status,
    Attempts,
    AvailableAt,
    CreatedAt,
    DoneAt,
    Error,
    ClaimedBy,
    ClaimedAt,
}

impl Column {
    /// The name in the configuration.
    pub(super) fn name(self) -> String {
        written(self)
    }
}

/// The values of a status column. Numbers are compared as numbers.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Statuses {
    /// Never tried.
    pub(crate) fresh: String,
    /// To be retried. Default: the value of `fresh`.
    #[serde(default)]
    pub(crate) retry: Option<String>,
    /// Claimed, if the status marks claims.
    #[serde(default)]
    pub(crate) claimed: Option<String>,
    /// Delivered.
    pub(crate) done: String,
    /// Dead.
    pub(crate) dead: String,
}

/// The order of events whose key is null.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NullKey {
    /// No order.
    Unordered,
    /// All of them share a key of this name.
    Ordered(String),
}

/// When abandoned claims are given back.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Recovery {
    /// Age of an abandoned claim. Default 300s.
    pub(crate) after: Option<Span>,
    /// How often to look for abandoned claims. Default 60s.
    pub(crate) every: Option<Span>,
}
