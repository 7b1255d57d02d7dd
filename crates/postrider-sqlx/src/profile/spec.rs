//! What a profile says, as data.

use std::{collections::BTreeMap, time::Duration};

use postrider_core::{
    Backoff, ConfigError,
    store::{Defaults, Keeps},
};

use super::{Name, TableName};

/// What a column of an external outbox table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Field {
    /// The event's id. Every table needs it.
    Id,
    /// The event's type. Without it, every event has the type that the profile names.
    EventType,
    /// The kind of thing that it happened to; null reads as `__GLOBAL__`.
    AggregateType,
    /// Which one it happened to.
    AggregateId,
    /// The key that orders it. Without it, the aggregate does.
    Key,
    /// Carried through.
    TenantId,
    /// A JSON object of strings.
    Headers,
    /// The payload: text, JSON or bytes. Every table needs it.
    Payload,
    /// Where the event is. Without it, delivered rows are deleted.
    Status,
    /// How often it was tried.
    Attempts,
    /// When it is due.
    AvailableAt,
    /// When it was written. Without it the order is that of the ids.
    CreatedAt,
    /// When it was delivered.
    DoneAt,
    /// What went wrong last.
    Error,
    /// Who has claimed it.
    ClaimedBy,
    /// When it was claimed.
    ClaimedAt,
}

/// A status as it stands in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// In a column of text, or of an enumeration.
    Text(String),
    /// In a column of numbers.
    Number(i64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

/// How statuses are spelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statuses {
    /// Never tried.
    pub fresh: Value,
    /// To be tried again; the same as `fresh` where a system does not tell them apart.
    pub retry: Value,
    /// Claimed, where a claim is marked by a status.
    pub claimed: Option<Value>,
    /// Delivered.
    pub done: Value,
    /// Not to be tried again.
    pub dead: Value,
}

/// What an event whose key column is null is ordered by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NullKey {
    /// By a key of this name, which all of them share.
    Ordered(String),
    /// By nothing.
    Unordered,
}

/// The description of an outbox table that somebody else designed.
///
/// ```
/// use postrider_sqlx::profile::{Field, Profile, Statuses};
///
/// let statuses = Statuses {
///     fresh: "new".into(), retry: "new".into(), claimed: None, done: "sent".into(), dead: "broken".into(),
/// };
/// let profile = Profile::custom("shop.messages", "message_id", "body")?
///     .column(Field::CreatedAt, "written_at")?
///     .column(Field::Key, "customer")?
///     .status("state", statuses)?;
/// assert!(Profile::custom("events; DROP TABLE x", "id", "payload").is_err());
/// # Ok::<(), postrider_core::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Profile {
    pub(super) name: &'static str,
    pub(super) table: TableName,
    pub(super) columns: BTreeMap<Field, Name>,
    pub(super) statuses: Option<Statuses>,
    pub(super) event_type: String,
    pub(super) null_key: NullKey,
    pub(super) counts_last: bool,
    pub(super) tells_retry: bool,
    pub(super) purges: bool,
    pub(super) skip_recent: Duration,
    pub(super) recover_after: Duration,
    pub(super) recover_every: Duration,
    pub(super) beside: TableName,
    pub(super) defaults: Defaults,
}

impl Profile {
    /// A table of nobody that is known here: its name, and the columns that every table has. The rest is said with the other
    /// methods.
    pub fn custom(table: &str, id: &str, payload: &str) -> Result<Self, ConfigError> {
        let profile = Self::bare("custom", TableName::new(table)?);
        profile.column(Field::Id, id)?.column(Field::Payload, payload)
    }

    pub(super) fn bare(name: &'static str, table: TableName) -> Self {
        Self {
            name,
            table,
            columns: BTreeMap::new(),
            statuses: None,
            event_type: "event".to_owned(),
            null_key: NullKey::Unordered,
            counts_last: false,
            tells_retry: true,
            purges: false,
            skip_recent: Duration::ZERO,
            recover_after: Duration::from_secs(300),
            recover_every: Duration::from_secs(60),
            beside: TableName::known("postrider_profile_"),
            defaults: Defaults {
                poll_max: Duration::from_secs(1),
                claim_batch: 500,
                max_attempts: 10,
                retry: Backoff::default(),
            },
        }
    }

    /// Another table, as `table` or `schema.table`.
    pub fn table(mut self, table: &str) -> Result<Self, ConfigError> {
        self.table = TableName::new(table)?;
        Ok(self)
    }

    /// The column that holds something.
    pub fn column(mut self, field: Field, column: &str) -> Result<Self, ConfigError> {
        self.columns.insert(field, Name::new(column)?);
        Ok(self)
    }

    /// The table has no column for this.
    #[must_use]
    pub fn without(mut self, field: Field) -> Self {
        self.columns.remove(&field);
        self
    }

    /// The status column, and how statuses are spelled.
    pub fn status(mut self, column: &str, statuses: Statuses) -> Result<Self, ConfigError> {
        self.statuses = Some(statuses);
        self.column(Field::Status, column)
    }

    /// What an event whose key column is null is ordered by.
    #[must_use]
    pub fn null_key(mut self, rule: NullKey) -> Self {
        self.null_key = rule;
        self
    }

    /// The type of events whose table has no column for it.
    #[must_use]
    pub fn event_type(mut self, event_type: impl Into<String>) -> Self {
        self.event_type = event_type.into();
        self
    }

    /// Rows younger than this are left alone: a program may be delivering them from memory.
    #[must_use]
    pub fn skip_recent(mut self, age: Duration) -> Self {
        self.skip_recent = age;
        self
    }

    /// How old a claim must be before it counts as abandoned, and how often to look for such.
    #[must_use]
    pub fn recover(mut self, after: Duration, every: Duration) -> Self {
        self.recover_after = after;
        self.recover_every = every;
        self
    }

    /// How old a row must be to be claimed, how old a claim must be to count as abandoned, and how often that is looked for.
    ///
    /// ```
    /// use postrider_sqlx::profile::Profile;
    /// let times = Profile::outbox_java().times();
    /// assert_eq!((times.skip_recent.as_secs(), times.recover_after.as_secs(), times.recover_every.as_secs()), (1, 300, 60));
    /// ```
    pub fn times(&self) -> Times {
        let Self { skip_recent, recover_after, recover_every, .. } = *self;
        Times { skip_recent, recover_after, recover_every }
    }

    /// Where our own small tables lie, as `prefix` or `schema.prefix`; `postrider_profile_` if nothing is said.
    pub fn beside(mut self, prefix: &str) -> Result<Self, ConfigError> {
        // Room for the longest of our names.
        let room = prefix.rsplit('.').next().is_some_and(|name| name.len() <= 58);
        self.beside = TableName::new(if room { prefix } else { "" })
            .map_err(|_| ConfigError::ForeignName { value: prefix.to_owned() })?;
        Ok(self)
    }

    /// How that system's own program is set, and so an outbox on its table unless somebody says otherwise.
    ///
    /// ```
    /// use postrider_sqlx::profile::Profile;
    /// let defaults = Profile::spring_outbox().defaults();
    /// assert_eq!((defaults.claim_batch, defaults.max_attempts), (50, 4)); // three retries are four sends
    /// ```
    pub fn defaults(&self) -> Defaults {
        self.defaults.clone()
    }

    /// What its table has room for.
    pub(super) fn keeps(&self) -> Keeps {
        let buried = self.statuses.is_none();
        Keeps {
            places: false,
            parked: false,
            on_dead: false,
            delays: self.has(Field::AvailableAt),
            attempts: self.has(Field::Attempts),
            last_attempt: self.counts_last || buried,
            errors: self.has(Field::Error) && self.tells_retry,
            dead_errors: self.has(Field::Error) || buried,
            headers: self.has(Field::Headers),
            aggregates: self.has(Field::AggregateType),
            written_at: self.has(Field::CreatedAt),
            delivered: !buried,
            retention: self.purges && self.has(Field::DoneAt),
            pauses: true,
        }
    }

    /// Whether anyone who delivers deletes rows: at once where the table has no status, and once they are old where that system does.
    pub(super) fn deletes(&self) -> bool {
        self.statuses.is_none() || self.purges
    }

    pub(super) fn has(&self, field: Field) -> bool {
        self.columns.contains_key(&field)
    }

    /// How a claim is marked in the table.
    pub(super) fn mark(&self) -> Mark {
        match self.statuses.as_ref().map(|statuses| &statuses.claimed) {
            _ if self.has(Field::ClaimedBy) => Mark::Owner,
            Some(Some(_)) => Mark::Status,
            _ => Mark::Nothing,
        }
    }
}

/// When a [`Profile`] leaves rows alone, and when it gives them back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Times {
    /// Rows younger than this are left alone.
    pub skip_recent: Duration,
    /// How old a claim must be before it counts as abandoned.
    pub recover_after: Duration,
    /// How often such claims are looked for.
    pub recover_every: Duration,
}

/// How a claim is marked in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// By a status, and a time where there is a column for it.
    Status,
    /// By the token of the instance that claimed it.
    Owner,
    /// Not at all.
    Nothing,
}
