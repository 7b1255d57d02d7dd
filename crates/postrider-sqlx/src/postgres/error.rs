//! What the errors of sqlx on PostgreSQL mean to Postrider. What states mean is known to `postrider-drivers`.

use postrider_core::{ConfigError, Error, SchemaError, StoreError, StoreErrorKind};
use postrider_drivers::postgres::{self, Fault, kind_of_state};
use sqlx::postgres::PgDatabaseError;

use crate::is_without_tls;

/// Whether the same verb may succeed a moment later, or on another connection.
pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    matches!(kind(error), StoreErrorKind::Busy | StoreErrorKind::Unreachable)
}

/// Whether another try may help at once. One that has waited for as long as it may, for a lock or in all, is left to the next round of its caller.
pub(crate) fn may_pass(error: &sqlx::Error) -> bool {
    let waited = matches!(state(error).as_deref(), Some("55P03" | "57014"));
    is_transient(error) && !waited && !matches!(error, sqlx::Error::PoolTimedOut) || is_stale_plan(error)
}

/// Whether a prepared statement returns other types than when it was prepared: somebody has altered a table. Its connection says so for ever.
pub(super) fn is_stale_plan(error: &sqlx::Error) -> bool {
    let error = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    // The state stands for much else, and the message is in the server's language.
    error.is_some_and(|error| error.routine() == Some("RevalidateCachedQuery"))
}

/// Whether the server is there and will not do it.
pub(super) fn is_refusal(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some() && !is_transient(error)
}

/// Whether it is a right that is missing.
pub(crate) fn is_denied(error: &sqlx::Error) -> bool {
    kind(error) == StoreErrorKind::Denied
}

/// Whether it says that a table or a column is missing.
pub(crate) fn is_no_match(error: &sqlx::Error) -> bool {
    matches!(state(error).as_deref(), Some("42P01" | "42703"))
}

/// Whether somebody else had a lock for longer than it was to be waited for.
pub(super) fn is_locked(error: &sqlx::Error) -> bool {
    state(error).as_deref() == Some("55P03")
}

/// Whether the server has ended the statement because it took too long.
pub(super) fn is_out_of_time(error: &sqlx::Error) -> bool {
    state(error).as_deref() == Some("57014")
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
    // PgBouncer says with a state for lost connections that it does not know a parameter.
    if is_unknown_parameter(error) { StoreErrorKind::Other } else { kind_of_state(&state) }
}

/// An error of sqlx's as one of ours; `what` says what failed, and where.
pub(crate) fn of_sqlx(error: sqlx::Error, what: impl Into<String>) -> Error {
    if let Some(table) = missing_table(&error) {
        return SchemaError::Missing { table }.into();
    }
    if is_without_tls(&error) {
        return ConfigError::Tls { what: what.into() }.into();
    }
    StoreError::new(kind(&error), what, error).into()
}

/// The table that it misses.
fn missing_table(error: &sqlx::Error) -> Option<String> {
    let error = error.as_database_error()?;
    postgres::missing_table(&error.code()?, error.message())
}

/// What every driver tells of an insert that failed.
pub(super) fn fault(error: sqlx::Error) -> Fault {
    let lost = kind(&error) == StoreErrorKind::Unreachable;
    let message = error.as_database_error().map_or(String::new(), |told| told.message().to_owned());
    Fault { state: state(&error), message, lost, source: Box::new(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_told_from_what_stays() {
        assert!(is_transient(&sqlx::Error::PoolTimedOut));
        assert!(is_transient(&sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into())));
        assert!(!is_transient(&sqlx::Error::RowNotFound));
    }
}
