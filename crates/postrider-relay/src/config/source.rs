//! A database to deliver from.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Overrides, Placed, Route, SecretUrl, Size, Span, yes};

/// A database to deliver from, and where its events go.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// Whether it is in use.
    #[serde(default = "yes")]
    pub(crate) enabled: bool,
    /// The database: `postgres://`, `mysql://`, `mariadb://`, `sqlite:` or a path. TLS is asked for with parameters:
    /// `?sslmode=verify-full&sslrootcert=FILE&sslcert=FILE&sslkey=FILE` for PostgreSQL,
    /// `?ssl-mode=VERIFY_IDENTITY&ssl-ca=FILE&ssl-cert=FILE&ssl-key=FILE` for MySQL and MariaDB. Without a file of certificates to trust,
    /// those of the operating system are; another parameter that sounds like TLS is refused, since no driver would read it.
    pub(crate) url: SecretUrl,
    /// The table, if somebody else designed it. Without it, Postrider's own.
    #[serde(default)]
    pub(crate) profile: Option<Profile>,
    /// What the names of Postrider's own tables begin with. Default `postrider_`.
    #[serde(default)]
    pub(crate) prefix: Option<Placed>,
    /// How many lanes Postrider's own tables are made with: at most so many instances deliver at once. Default what is there, and 64
    /// where nothing is; SQLite has one. Another number than what is there is refused unless the outbox is empty.
    #[serde(default)]
    pub(crate) lanes: Option<u32>,
    /// Whether a pooler such as PgBouncer, in transaction mode, stands before PostgreSQL. Default: it is found out.
    #[serde(default)]
    pub(crate) pooled: Option<bool>,
    /// Whether Postrider's own tables are created or upgraded at the start. Default `true`.
    #[serde(default = "yes")]
    pub(crate) migrate: bool,
    /// Where events go.
    pub(crate) routes: Vec<Route>,
    /// What holds for the routes of this source.
    #[serde(default)]
    pub(crate) defaults: Overrides,
    /// Pauses between looks at the table.
    #[serde(default)]
    pub(crate) poll: Poll,
    /// Most events that one claim reads. Default 500; with a `profile`, that of its system (`outbox-java` 200, `spring-outbox` 50).
    #[serde(default)]
    pub(crate) claim_batch: Option<usize>,
    /// How long a lease holds; another instance takes over after it. Default 15s.
    #[serde(default)]
    pub(crate) lease: Option<Span>,
    /// How long delivered events are kept. Default 1h; `0s` deletes them at once. Of the profiles, `spring-outbox` takes it too. With `debezium`
    /// they are deleted at once, and with others they stay in the table: giving it there is a mistake.
    #[serde(default)]
    pub(crate) retention: Option<Span>,
    /// Most of what is in memory.
    #[serde(default)]
    pub(crate) queue: Queue,
    /// How long a shutdown may take: for half of it what is in memory is still sent, then what is under way is waited for. Default 5s. The process
    /// is gone 5s later at the latest.
    #[serde(default)]
    pub(crate) drain_timeout: Option<Span>,
    /// Whether the events of a key are delivered in order. Default `kept`.
    #[serde(default)]
    pub(crate) order: Option<Order>,
}

/// Pauses between looks at the table.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Poll {
    /// The shortest. Default 20ms, or `max` where that is less.
    pub(crate) min: Option<Span>,
    /// The longest, reached when nothing comes. Default 1s; with a `profile`, that of its system (`outbox-java` 5s,
    /// `spring-outbox` 2s).
    pub(crate) max: Option<Span>,
    /// Between them, the shortest time from one peek to the next at what was written last, which costs a fraction of a poll and finds events
    /// that nobody told of; four times as long while nothing comes. Default 5ms, or more where a peek costs more; `0s` leaves them to polls, and
    /// so do databases in memory and tables with a `profile`.
    pub(crate) peek: Option<Span>,
}

/// Most of what is in memory.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Queue {
    /// Events. Default as many as four claims read, and 1000 at least; 1000 with a `profile`.
    pub(crate) events: Option<usize>,
    /// Their payloads and headers together. Default 64MiB.
    pub(crate) bytes: Option<Size>,
    /// Events of one key that wait behind its first one, or as many as its sink takes at once. Default 32.
    pub(crate) of_key: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// It is.
    Kept,
    /// Keys are ignored.
    Ignored,
}

/// A table that somebody else designed: the name of the system alone, or with what is different here.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    /// Whose table it is.
    pub(crate) system: System,
    /// The table, as `table` or `schema.table`, if it is called otherwise than there; a name with other characters than letters, digits and
    /// underscores in double quotes: `'"Odd Schema".events'`.
    #[serde(default)]
    pub(crate) table: Option<Placed>,
    /// Columns, by what they hold, where they are called otherwise than there.
    #[serde(default)]
    pub(crate) columns: BTreeMap<Column, Placed>,
    /// What its table has no column for, though that system's has one by default.
    #[serde(default)]
    pub(crate) without: Vec<Column>,
    /// How statuses are spelled, for a `custom` table.
    #[serde(default)]
    pub(crate) statuses: Option<Statuses>,
    /// The type of every event, where no column says it. Default `event`.
    #[serde(default)]
    pub(crate) event_type: Option<String>,
    /// What orders events whose key is null. Default nothing; `flowcatalyst` a key of the name `default`.
    #[serde(default)]
    pub(crate) null_key: Option<NullKey>,
    /// How old a row must be to be claimed, because that system may be delivering it itself. Default 0s; `outbox-java` 1s.
    #[serde(default)]
    pub(crate) skip_recent: Option<Span>,
    /// What the names of Postrider's own small tables beside it begin with, as `prefix` or `schema.prefix`. Default
    /// `postrider_profile_`.
    #[serde(default)]
    pub(crate) beside: Option<Placed>,
    /// When abandoned claims are given back.
    #[serde(default)]
    pub(crate) recovery: Recovery,
}

/// Whose table it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum System {
    /// FlowCatalyst's `outbox_events`.
    Flowcatalyst,
    /// FlowCatalyst's `outbox_dispatch_jobs`.
    FlowcatalystDispatchJobs,
    /// outbox-java's `outbox_event` with `locked_by` and `locked_at`.
    OutboxJava,
    /// outbox-java's `outbox_event` without them.
    OutboxJavaUnlocked,
    /// spring-outbox's `outbox_events`.
    SpringOutbox,
    /// The table of Debezium's outbox router.
    Debezium,
    /// Anybody's: `table`, and `id` and `payload` among the `columns`, must be given.
    Custom,
}

impl System {
    /// Its name, as it stands in the file.
    pub(crate) fn name(self) -> String {
        written(self)
    }
}

/// How a value stands in the file.
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
    /// Its name, as it stands in the file.
    pub(super) fn name(self) -> String {
        written(self)
    }
}

/// How statuses are spelled; numbers are taken for numbers.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Statuses {
    /// Never tried.
    pub(crate) fresh: String,
    /// To be tried again. Default the same as `fresh`.
    #[serde(default)]
    pub(crate) retry: Option<String>,
    /// Claimed, if claims are marked by a status.
    #[serde(default)]
    pub(crate) claimed: Option<String>,
    /// Delivered.
    pub(crate) done: String,
    /// Not to be tried again.
    pub(crate) dead: String,
}

/// What orders events whose key is null.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NullKey {
    /// Nothing.
    Unordered,
    /// A key of this name, which they share.
    Ordered(String),
}

/// When abandoned claims are given back.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Recovery {
    /// How old a claim must be. Default 300s.
    pub(crate) after: Option<Span>,
    /// How often that is looked for. Default 60s.
    pub(crate) every: Option<Span>,
}
