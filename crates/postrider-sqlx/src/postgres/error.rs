//! What PostgreSQL's states mean to Postrider. The one place that knows them.

use postrider_core::{Error, SchemaError, StoreError, StoreErrorKind};

/// Whether the same verb may succeed a moment later, or on another connection.
pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    matches!(kind(error), StoreErrorKind::Busy | StoreErrorKind::Unreachable)
}

/// Whether it says that there is no transaction.
pub(super) fn is_no_transaction(error: &sqlx::Error) -> bool {
    state(error).as_deref() == Some("25P01")
}

/// Whether it says that a table or a column is missing.
pub(super) fn is_no_match(error: &sqlx::Error) -> bool {
    matches!(state(error).as_deref(), Some("42P01" | "42703"))
}

/// Whether a server, or what stands before it, does not know a parameter that every connection begins with: PgBouncer.
pub(super) fn is_unknown_parameter(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.message().contains("unsupported startup parameter"))
}

fn state(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

fn kind(error: &sqlx::Error) -> StoreErrorKind {
    let Some(state) = state(error) else {
        return match error {
            sqlx::Error::Io(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::BeginFailed
            | sqlx::Error::Protocol(_) => StoreErrorKind::Unreachable,
            _ => StoreErrorKind::Other,
        };
    };
    match state.as_str() {
        // Serialisation failure, deadlock, lock not available, a statement that ran into its time limit.
        "40001" | "40P01" | "55P03" | "57014" => StoreErrorKind::Busy,
        // Shutting down, crashed, starting up, an idle transaction that was ended, too many connections.
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "53300" => StoreErrorKind::Unreachable,
        // PgBouncer's own words for a server that it cannot reach.
        "08P01" if is_unknown_parameter(error) => StoreErrorKind::Other,
        "25006" => StoreErrorKind::ReadOnly,
        "28000" | "28P01" | "42501" => StoreErrorKind::Denied,
        "XX001" | "XX002" => StoreErrorKind::Corrupt,
        _ if state.starts_with("08") => StoreErrorKind::Unreachable,
        _ => StoreErrorKind::Other,
    }
}

/// An error of sqlx's as one of ours; `what` says what failed, and where.
pub(crate) fn of_sqlx(error: sqlx::Error, what: impl Into<String>) -> Error {
    if let Some(table) = missing_table(&error) {
        return SchemaError::Missing { table }.into();
    }
    StoreError::new(kind(&error), what, error).into()
}

/// The table that it misses.
fn missing_table(error: &sqlx::Error) -> Option<String> {
    let error = error.as_database_error().filter(|error| error.code().as_deref() == Some("42P01"))?;
    named(error.message())
}

/// What stands between the first quotes of a message.
fn named(message: &str) -> Option<String> {
    message.split('"').nth(1).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_table_is_named() {
        assert_eq!(named("relation \"postrider_event\" does not exist").as_deref(), Some("postrider_event"));
    }

    #[test]
    fn what_may_pass_is_told_from_what_stays() {
        assert!(is_transient(&sqlx::Error::PoolTimedOut));
        assert!(is_transient(&sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into())));
        assert!(!is_transient(&sqlx::Error::RowNotFound));
    }
}
