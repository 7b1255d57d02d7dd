//! What can go wrong, with structure for programs and a hint for people.

use std::{error::Error as StdError, fmt};

use crate::{EventError, EventId, format::TemplateError};

/// Any error of Postrider's.
///
/// Its `Debug` form is its message with those of its sources, because that is what a `main` that returns it prints.
#[non_exhaustive]
pub enum Error {
    /// The event is not one that can be written.
    Event(EventError),
    /// An event of this id is in the outbox already.
    DuplicateId {
        /// The id; where several events were written at once, the one that the database named, if it named one.
        id: Option<EventId>,
    },
    /// The connection is not in a transaction, so the event would not be tied to any business change.
    NotInTransaction {
        /// The driver whose connection it is.
        driver: &'static str,
    },
    /// The transaction belongs to another kind of database than the outbox.
    WrongDatabase {
        /// The driver that the transaction belongs to.
        driver: &'static str,
        /// The kind of database that the outbox is in.
        outbox: &'static str,
    },
    /// The outbox was given a list of known types, and this is none of them.
    UnknownType {
        /// The type of the event.
        event_type: String,
        /// The types that the outbox takes.
        known: Vec<String>,
    },
    /// A write hook refused the event.
    Hook(Box<dyn StdError + Send + Sync>),
    /// The outbox was put together wrongly.
    Config(ConfigError),
    /// The tables are not what they should be.
    Schema(SchemaError),
    /// The database failed.
    Store(StoreError),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::sink::error_chain(self))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(error) => fmt::Display::fmt(error, f),
            Self::DuplicateId { id: Some(id) } => write!(
                f,
                "an event with the id {:?} is in the outbox already: use another id, or write_if_absent",
                id.as_str()
            ),
            Self::DuplicateId { id: None } => f.write_str(
                "one of these events has an id that is in the outbox already: use other ids, or write_if_absent",
            ),
            Self::NotInTransaction { driver } => write!(
                f,
                "this {driver} connection is not in a transaction, so the event would not be tied to a change: begin one first"
            ),
            Self::WrongDatabase { driver, outbox } => write!(
                f,
                "a transaction of {driver} cannot write to an outbox in {outbox}: use the transaction of that database"
            ),
            Self::UnknownType { event_type, known } => write!(
                f,
                "the event type {event_type:?} is not known to this outbox: it takes {}",
                known.join(", ")
            ),
            Self::Hook(_) => f.write_str("a write hook refused the event"),
            Self::Config(error) => fmt::Display::fmt(error, f),
            Self::Schema(error) => fmt::Display::fmt(error, f),
            Self::Store(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Event(error) => error.source(),
            Self::Hook(error) => Some(&**error),
            Self::Store(error) => error.source(),
            _ => None,
        }
    }
}

impl From<EventError> for Error {
    fn from(error: EventError) -> Self {
        Self::Event(error)
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<SchemaError> for Error {
    fn from(error: SchemaError) -> Self {
        Self::Schema(error)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl ConfigError {
    /// A setting outside of its range: its value as it may be shown, and what is allowed.
    pub fn out_of_range(setting: &'static str, value: impl fmt::Display, allowed: impl Into<String>) -> Self {
        Self::OutOfRange { setting, value: value.to_string(), allowed: allowed.into() }
    }
}

/// How an outbox was put together wrongly.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// Something that has no default was not given.
    Missing {
        /// What.
        what: &'static str,
        /// How to give it.
        hint: &'static str,
    },
    /// A setting lies outside of its range.
    OutOfRange {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        allowed: String,
    },
    /// The same route was registered twice.
    DuplicateRoute {
        /// The aggregate type, or none for any.
        aggregate_type: Option<String>,
        /// The event type, or none for the wildcard.
        event_type: Option<String>,
    },
    /// The database is named in a way that this store does not know.
    Database {
        /// What was given.
        given: String,
        /// What can be given.
        known: &'static str,
    },
    /// The database is of a kind that this program was built without.
    Feature {
        /// How the name of the database begins.
        scheme: &'static str,
        /// The feature of the crate `postrider` that is missing.
        feature: &'static str,
    },
    /// The database is to be reached by TLS, and this program was built without it.
    Tls {
        /// What cannot be done without it, and where.
        what: String,
    },
    /// What answers is another product.
    Product {
        /// What it should be.
        expected: &'static str,
        /// What it says that it is.
        found: String,
    },
    /// The database is too old.
    Version {
        /// The product.
        product: &'static str,
        /// Its version.
        found: String,
        /// The oldest version that an outbox can be in.
        oldest: String,
    },
    /// A name that goes into SQL is not a plain identifier.
    Identifier {
        /// What was given.
        value: String,
    },
    /// The template of a sink's destination cannot be used.
    Destination {
        /// What was given.
        template: String,
        /// What is wrong with it.
        error: TemplateError,
    },
    /// A name of an external outbox table, or of a column of it, is neither a plain identifier nor in quotes.
    ForeignName {
        /// What was given.
        value: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { what, hint } => write!(f, "the outbox has no {what}: {hint}"),
            Self::OutOfRange { setting, value, allowed } => {
                write!(f, "{setting} is {value}; it must be {allowed}")
            }
            Self::DuplicateRoute { aggregate_type, event_type } => {
                let event = event_type
                    .as_deref()
                    .map_or("every event".to_owned(), |t| format!("the event type {t:?}"));
                let of = aggregate_type
                    .as_deref()
                    .map_or(String::new(), |t| format!(" of the aggregate type {t:?}"));
                write!(
                    f,
                    "{event}{of} has a handler already: one handler is the rule; give several as a list with on_list"
                )
            }
            Self::Database { given, known } => {
                write!(f, "{given:?} names no database that can be opened here: give {known}")
            }
            Self::Feature { scheme, feature } => write!(
                f,
                "{scheme}: names a database that this program was built without: add it with `cargo add postrider --features {feature}`"
            ),
            Self::Tls { what } => write!(
                f,
                "{what}: TLS is asked for, and this program was built without it: add it with \
                 `cargo add postrider --features tls-rustls`"
            ),
            Self::Product { expected, found } => {
                write!(
                    f,
                    "what answers is not {expected}; it calls itself {found:?}: name a database of that product"
                )
            }
            Self::Version { product, found, oldest } => {
                write!(
                    f,
                    "the database is {product} {found}, and an outbox needs {oldest} or later: upgrade it"
                )
            }
            Self::Identifier { value } => write!(
                f,
                "{value:?} is not a name for a table: use a letter or underscore, then letters, digits and underscores, 40 at most"
            ),
            Self::Destination { template, error } => {
                write!(f, "the destination {template:?} cannot be used: {error}")
            }
            Self::ForeignName { value } => write!(
                f,
                "{value:?} is not a name for a table or column: use a letter or underscore, then letters, digits and \
                 underscores, 63 at most; put any other name in double quotes"
            ),
        }
    }
}

impl StdError for ConfigError {}

/// What is wrong with the tables.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaError {
    /// A table of our name exists that Postrider did not create.
    Foreign {
        /// The table.
        table: String,
    },
    /// The tables were made by a newer version.
    Newer {
        /// The version of the tables.
        found: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    /// The tables are missing, and creating them was switched off.
    Missing {
        /// The table.
        table: String,
    },
    /// One of the tables is missing beside the others, so somebody has dropped it, or has not restored it.
    Dropped {
        /// The table.
        table: String,
    },
    /// A table that a profile delivers from is not there.
    ForeignTable {
        /// The table.
        table: String,
    },
    /// A table that a profile delivers from has no such column.
    ForeignColumn {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// The right to do something with a table that a profile delivers from was not granted.
    ForeignRight {
        /// The table.
        table: String,
        /// The right.
        right: &'static str,
    },
    /// The search path leads to several sets of tables.
    Twice {
        /// The table that tells them.
        table: String,
        /// The schemas that it is in, in the order of the search path.
        schemas: Vec<String>,
    },
    /// The tables are in schemas that the search path does not lead to.
    Elsewhere {
        /// The table.
        table: String,
        /// The schemas that it is in.
        schemas: Vec<String>,
    },
    /// There is no schema that tables could be made in.
    NoSchema,
    /// A right that delivery needs was not granted for one of our tables.
    Right {
        /// The table.
        table: String,
        /// The right.
        right: String,
        /// Who needs it, as SQL names them.
        role: String,
    },
    /// The database is set up in a way that an outbox cannot be in.
    Setting {
        /// The setting.
        setting: &'static str,
        /// Its value.
        found: String,
        /// What it must be, and how to get there.
        needed: &'static str,
    },
    /// The tables were made for another number of lanes, and there are events in them.
    Lanes {
        /// The number that they were made for.
        found: u32,
        /// The number that is wanted.
        wanted: u32,
    },
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign { table } => write!(
                f,
                "a table {table} exists that Postrider did not create: rename it, or choose another prefix; nothing was changed"
            ),
            Self::Newer { found, known } => write!(
                f,
                "the tables have schema version {found} and this program knows {known}: upgrade the program; nothing was changed"
            ),
            Self::Missing { table } => write!(
                f,
                "the table {table} does not exist: call migrate(), or apply the printed schema by hand"
            ),
            Self::Dropped { table } => write!(
                f,
                "the table {table} does not exist, and others of the same outbox do: restore it, or drop those too and make all anew; \
                 nothing was changed"
            ),
            Self::ForeignTable { table } => write!(
                f,
                "the table {table} that the profile delivers from does not exist: name another one, or have its own system make it"
            ),
            Self::ForeignColumn { table, column } => write!(
                f,
                "the table {table} has no column {column}, which the profile needs: name the right one, or leave it out if the \
                 table has none"
            ),
            Self::ForeignRight { table, right } => write!(
                f,
                "the right to {right} was not granted for the table {table}, which the profile delivers from: have its owner \
                 GRANT {right} ON {table} to the user that connects"
            ),
            Self::Twice { table, schemas } => write!(
                f,
                "the search path leads to several tables {table}, in the schemas {}: drop those that are not in use, or name one schema \
                 with ?options=-csearch_path%3DSCHEMA behind the database's URL; nothing was changed",
                schemas.join(" and ")
            ),
            Self::Elsewhere { table, schemas } => write!(
                f,
                "the search path leads to no table {table}; there is one in the schema {}: name the schema with \
                 ?options=-csearch_path%3DSCHEMA behind the database's URL, and GRANT USAGE ON SCHEMA to the role that connects",
                schemas.join(" and in ")
            ),
            Self::NoSchema => f.write_str(
                "the search path names no schema that exists and may be used: create one, GRANT USAGE ON SCHEMA, or name another with \
                 ?options=-csearch_path%3DSCHEMA behind the database's URL",
            ),
            Self::Right { table, right, role } => write!(
                f,
                "the right to {right} was not granted for the table {table}: have its owner run `GRANT {right} ON {table} TO {role}`, or \
                 all that `postrider init --grants` prints"
            ),
            Self::Setting { setting, found, needed } => {
                write!(f, "the database's {setting} is {found}; it must be {needed}")
            }
            Self::Lanes { found, wanted } => write!(
                f,
                "the outbox has {found} lanes and {wanted} are wanted: the number can be changed only while the outbox is empty and \
                 nobody delivers from it; nothing was changed"
            ),
        }
    }
}

impl StdError for SchemaError {}

/// How a database failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Somebody else held a lock for too long. Worth another try.
    Busy,
    /// It could not be reached. Worth another try.
    Unreachable,
    /// It may not be written to.
    ReadOnly,
    /// It is not a database, or a damaged one.
    Corrupt,
    /// It let us not in, or not do that: a wrong password, or a right that is missing.
    Denied,
    /// It went back in time: a failover lost its last transactions, or a backup was restored. Numbers that were given to lost events are
    /// given again, so the engine forgets positions, what is in flight and its leases, and takes its lanes anew.
    WentBack,
    /// Anything else.
    Other,
}

/// A failure of the database.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    what: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl StoreError {
    /// A failure while doing `what`.
    pub fn new(
        kind: StoreErrorKind,
        what: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self { kind, what: what.into(), source: Some(source.into()) }
    }

    /// How it failed.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether trying again may help.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Busy | StoreErrorKind::Unreachable)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = match self.kind {
            StoreErrorKind::Busy => ": the database is locked by somebody else",
            StoreErrorKind::Unreachable => ": the database cannot be reached",
            StoreErrorKind::ReadOnly => {
                ": the database is read-only; check the rights of the file and its folder, or whether the server is a standby"
            }
            StoreErrorKind::Denied => {
                ": the database refused it; check the user, the password and what was granted"
            }
            StoreErrorKind::Corrupt => ": the file is not a database, or is damaged",
            StoreErrorKind::WentBack => {
                ": the database lost transactions that it had committed (a failover or a restored backup)"
            }
            StoreErrorKind::Other => "",
        };
        write!(f, "{}{hint}", self.what)
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}
