//! What the error codes of MySQL and MariaDB mean to Postrider. The one place that knows them.

use postrider_core::{ConfigError, Error, EventId, SchemaError, StoreError, StoreErrorKind};
use sqlx::mysql::MySqlDatabaseError;

use crate::is_without_tls;

/// The error codes that say more than "something went wrong". Both databases use the same.
mod code {
    pub(super) const DISK_FULL: u16 = 1021;
    pub(super) const OUT_OF_MEMORY: u16 = 1037;
    pub(super) const OUT_OF_SORT_MEMORY: u16 = 1038;
    pub(super) const OUT_OF_RESOURCES: u16 = 1041;
    pub(super) const TABLE_FULL: u16 = 1114;
    pub(super) const TOO_MANY_CONNECTIONS: u16 = 1040;
    pub(super) const ACCESS_TO_DATABASE_DENIED: u16 = 1044;
    pub(super) const WRONG_PASSWORD: u16 = 1045;
    pub(super) const UNKNOWN_DATABASE: u16 = 1049;
    pub(super) const SHUTDOWN: u16 = 1053;
    pub(super) const UNKNOWN_COLUMN: u16 = 1054;
    pub(super) const DUPLICATE: u16 = 1062;
    pub(super) const COMMAND_DENIED: u16 = 1142;
    pub(super) const COLUMN_DENIED: u16 = 1143;
    pub(super) const NO_SUCH_TABLE: u16 = 1146;
    pub(super) const LOCK_WAIT: u16 = 1205;
    pub(super) const QUERY_TOO_LONG: u16 = 3024;
    pub(super) const STATEMENT_TOO_LONG: u16 = 1969;
    pub(super) const DEADLOCK: u16 = 1213;
    pub(super) const PRIVILEGE_MISSING: u16 = 1227;
    pub(super) const READ_ONLY_SERVER: u16 = 1290;
    pub(super) const NO_SUCH_SAVEPOINT: u16 = 1305;
    /// MariaDB says so of a user that it does not know, now and then.
    pub(super) const ACCESS_DENIED_BY_PLUGIN: u16 = 1698;
    pub(super) const READ_ONLY_TRANSACTION: u16 = 1792;
    pub(super) const READ_ONLY_MODE: u16 = 1836;
    pub(super) const CONNECTION_KILLED: u16 = 1927;
    pub(super) const NOWAIT_LOCKED: u16 = 3572;
    pub(super) const ENDED_FOR_INACTIVITY: u16 = 4031;
}

fn database(error: &sqlx::Error) -> Option<&MySqlDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

fn kind_of_code(code: u16) -> StoreErrorKind {
    match code {
        code::LOCK_WAIT
        | code::DEADLOCK
        | code::NOWAIT_LOCKED
        | code::QUERY_TOO_LONG
        | code::STATEMENT_TOO_LONG
        | code::TOO_MANY_CONNECTIONS => StoreErrorKind::Busy,
        // Nothing that was asked for is to blame.
        code::DISK_FULL
        | code::OUT_OF_MEMORY
        | code::OUT_OF_SORT_MEMORY
        | code::OUT_OF_RESOURCES
        | code::TABLE_FULL => StoreErrorKind::Busy,
        code::SHUTDOWN | code::CONNECTION_KILLED | code::ENDED_FOR_INACTIVITY => StoreErrorKind::Unreachable,
        code::READ_ONLY_SERVER | code::READ_ONLY_TRANSACTION | code::READ_ONLY_MODE => {
            StoreErrorKind::ReadOnly
        }
        code::WRONG_PASSWORD
        | code::ACCESS_DENIED_BY_PLUGIN
        | code::ACCESS_TO_DATABASE_DENIED
        | code::COMMAND_DENIED
        | code::COLUMN_DENIED
        | code::PRIVILEGE_MISSING => StoreErrorKind::Denied,
        _ => StoreErrorKind::Other,
    }
}

fn kind(error: &sqlx::Error) -> StoreErrorKind {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => StoreErrorKind::Unreachable,
        // What sqlx calls a protocol error is, as a rule, a connection that ended in the middle of a packet.
        sqlx::Error::Protocol(_) => StoreErrorKind::Unreachable,
        error => database(error).map_or(StoreErrorKind::Other, |told| kind_of_code(told.number())),
    }
}

/// What to do about it, where that can be said.
fn hint(code: u16) -> Option<&'static str> {
    Some(match code {
        code::UNKNOWN_DATABASE => "the database does not exist: create it, or name another one",
        code::UNKNOWN_COLUMN => "a column is missing: the table is not the one that Postrider made",
        code::TOO_MANY_CONNECTIONS => "the server has no connection left",
        _ => return None,
    })
}

/// The table that the message says is missing: `Table 'shop.postrider_event' doesn't exist`.
fn missing_table(message: &str) -> String {
    let name = message.split('\'').nth(1).unwrap_or(message);
    name.rsplit('.').next().unwrap_or(name).to_owned()
}

/// An error of sqlx's as one of ours; `what` says what failed, and where.
pub(crate) fn of_sqlx(error: sqlx::Error, what: impl Into<String>) -> Error {
    let told = database(&error).map(|told| (told.number(), told.message().to_owned()));
    let what = what.into();
    if is_without_tls(&error) {
        return ConfigError::Tls { what }.into();
    }
    match told {
        Some((code::NO_SUCH_TABLE, message)) => {
            SchemaError::Missing { table: missing_table(&message) }.into()
        }
        Some((code, _)) => {
            let what = hint(code).map_or(what.clone(), |hint| format!("{what}: {hint}"));
            StoreError::new(kind_of_code(code), what, error).into()
        }
        None => StoreError::new(kind(&error), what, error).into(),
    }
}

/// Whether the same verb may succeed a moment later, on the same connection or another one.
pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    // A pool that gave nothing has waited long enough already.
    !matches!(error, sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed)
        && matches!(kind(error), StoreErrorKind::Busy | StoreErrorKind::Unreachable)
}

/// Whether another try may help at once. One that has waited for as long as it may, for a lock or in all, is left to the next round of its caller.
pub(crate) fn may_pass(error: &sqlx::Error) -> bool {
    let waited = [code::LOCK_WAIT, code::QUERY_TOO_LONG, code::STATEMENT_TOO_LONG];
    is_transient(error) && !database(error).is_some_and(|told| waited.contains(&told.number()))
}

/// Whether it is a table that is missing.
pub(crate) fn is_missing_table(error: &sqlx::Error) -> bool {
    database(error).is_some_and(|told| told.number() == code::NO_SUCH_TABLE)
}

/// Whether it is a right that is missing.
pub(crate) fn is_denied(error: &sqlx::Error) -> bool {
    kind(error) == StoreErrorKind::Denied
}

/// Whether somebody else had a lock for longer than it was to be waited for.
pub(super) fn is_locked(error: &sqlx::Error) -> bool {
    database(error).is_some_and(|told| told.number() == code::LOCK_WAIT)
}

/// Whether it misses a savepoint: what was set outside of a transaction is gone at once.
pub(super) fn is_no_savepoint(error: &sqlx::Error) -> bool {
    database(error).is_some_and(|told| told.number() == code::NO_SUCH_SAVEPOINT)
}

/// Whether it is the statement that the database cannot make sense of: a column is missing, for example.
pub(super) fn is_no_match(error: &sqlx::Error) -> bool {
    database(error).is_some_and(|told| matches!(told.number(), code::UNKNOWN_COLUMN))
}

/// Whether it says that an event of that id is there already, and which id the database named.
pub(super) fn duplicate_id(error: &sqlx::Error) -> Option<EventId> {
    let told = database(error).filter(|told| told.number() == code::DUPLICATE)?;
    // Duplicate entry 'id' for key 'postrider_event_id'; MySQL puts the table before the name of the index.
    let (entry, key) = told.message().rsplit_once(" for key ")?;
    let of_ours = key.trim_matches('\'').ends_with("event_id");
    let entry = entry.split_once('\'').map_or("", |(_, id)| id.strip_suffix('\'').unwrap_or(id));
    of_ours.then(|| EventId::from(entry))
}

/// Why an insert of `ids` failed.
pub(super) fn of_sqlx_insert<'e>(
    error: sqlx::Error,
    what: impl Into<String>,
    mut ids: impl Iterator<Item = &'e EventId>,
) -> Error {
    match duplicate_id(&error) {
        // The database cuts what it names, so the name counts only if it is one of ours.
        Some(named) => Error::DuplicateId { id: ids.find(|id| **id == named).cloned() },
        None => of_sqlx(error, what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_and_lost_connections_are_told_apart() {
        assert_eq!(kind_of_code(1205), StoreErrorKind::Busy);
        assert_eq!(kind_of_code(1213), StoreErrorKind::Busy);
        assert_eq!(kind_of_code(1114), StoreErrorKind::Busy, "a full disk");
        assert_eq!(kind_of_code(1927), StoreErrorKind::Unreachable);
        assert_eq!(kind_of_code(1290), StoreErrorKind::ReadOnly);
        assert_eq!(kind_of_code(1064), StoreErrorKind::Other);
        assert!(!is_transient(&sqlx::Error::PoolTimedOut));
        assert!(is_transient(&sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into())));
    }

    #[test]
    fn a_missing_table_is_named_without_its_database() {
        assert_eq!(missing_table("Table 'shop.postrider_event' doesn't exist"), "postrider_event");
    }
}
