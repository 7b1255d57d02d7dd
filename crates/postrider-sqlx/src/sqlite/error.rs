//! What SQLite's result codes mean to Postrider. The one place that knows them.

use std::error::Error as StdError;

use postrider_core::{Error, EventId, SchemaError, StoreError, StoreErrorKind};

/// The primary result codes that say more than "something went wrong"; the low byte of every code.
mod code {
    pub(super) const PERMISSION: u32 = 3;
    pub(super) const BUSY: u32 = 5;
    pub(super) const LOCKED: u32 = 6;
    pub(super) const OUT_OF_MEMORY: u32 = 7;
    pub(super) const READ_ONLY: u32 = 8;
    pub(super) const INPUT_OUTPUT: u32 = 10;
    pub(super) const CORRUPT: u32 = 11;
    pub(super) const FULL: u32 = 13;
    pub(super) const CANNOT_OPEN: u32 = 14;
    pub(super) const NOT_A_DATABASE: u32 = 26;
    /// Extended: a unique index refused a row.
    pub(super) const UNIQUE: u32 = 2067;
}

/// What a driver told us, whichever driver it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Report<'a> {
    /// The extended result code.
    pub(super) code: u32,
    /// SQLite's own words.
    pub(super) message: &'a str,
}

impl Report<'_> {
    fn kind(self) -> StoreErrorKind {
        match self.code & 0xff {
            // A full disk is no fault of what was to be written.
            code::BUSY | code::LOCKED | code::OUT_OF_MEMORY | code::FULL => StoreErrorKind::Busy,
            code::READ_ONLY | code::PERMISSION => StoreErrorKind::ReadOnly,
            code::CORRUPT | code::NOT_A_DATABASE => StoreErrorKind::Corrupt,
            code::CANNOT_OPEN | code::INPUT_OUTPUT => StoreErrorKind::Unreachable,
            _ => StoreErrorKind::Other,
        }
    }

    /// Whether it says that an event of that id is there already.
    fn is_duplicate_id(self) -> bool {
        self.code == code::UNIQUE && self.message.ends_with(".event_id")
    }

    /// The table that it misses. SQLite has no code of its own for that.
    fn missing_table(self) -> Option<String> {
        self.message.strip_prefix("no such table: ").map(|table| {
            let table = table.split_whitespace().next().unwrap_or(table);
            table.strip_prefix("main.").unwrap_or(table).to_owned()
        })
    }

    /// The error for our caller; `what` says what failed, and where.
    pub(super) fn into_error(
        self,
        what: impl Into<String>,
        source: impl StdError + Send + Sync + 'static,
    ) -> Error {
        match self.missing_table() {
            Some(table) => SchemaError::Missing { table }.into(),
            None => StoreError::new(self.kind(), what, source).into(),
        }
    }
}

fn report(error: &sqlx::Error) -> Option<Report<'_>> {
    let error = error.as_database_error()?;
    Some(Report { code: error.code()?.parse().ok()?, message: error.message() })
}

/// An error of sqlx's as one of ours; `what` says what failed, and where.
pub(super) fn of_sqlx(error: sqlx::Error, what: impl Into<String>) -> Error {
    let told = report(&error).map(|told| (told.code, told.message.to_owned()));
    if let Some((code, message)) = told {
        return Report { code, message: &message }.into_error(what, error);
    }
    let kind = match &error {
        sqlx::Error::PoolTimedOut => StoreErrorKind::Busy,
        sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed | sqlx::Error::Io(_) => {
            StoreErrorKind::Unreachable
        }
        _ => StoreErrorKind::Other,
    };
    StoreError::new(kind, what, error).into()
}

/// Whether the same verb may succeed a moment later.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    report(error).is_some_and(|told| told.kind() == StoreErrorKind::Busy)
}

/// Whether it refuses to begin a transaction inside of another.
pub(super) fn is_nested_begin(error: &sqlx::Error) -> bool {
    report(error).is_some_and(|told| told.message.contains("within a transaction"))
}

/// Whether it is the statement that SQLite cannot make sense of: a column is missing, for example.
pub(super) fn is_no_match(error: &sqlx::Error) -> bool {
    report(error).is_some_and(|told| told.code == 1)
}

/// Why an insert of `ids` failed, if it is because of an id.
pub(super) fn duplicate_id<'e>(
    told: Report<'_>,
    mut ids: impl Iterator<Item = &'e EventId>,
) -> Option<Error> {
    if !told.is_duplicate_id() {
        return None;
    }
    // SQLite names the column and not the value, so only a lone event is known to be the one.
    match (ids.next(), ids.next()) {
        (Some(id), None) => Some(Error::DuplicateId { id: Some(id.clone()) }),
        _ => Some(Error::DuplicateId { id: None }),
    }
}

/// Why an insert of `ids` through sqlx failed.
pub(super) fn of_sqlx_insert<'e>(
    error: sqlx::Error,
    what: impl Into<String>,
    ids: impl Iterator<Item = &'e EventId>,
) -> Error {
    report(&error).and_then(|told| duplicate_id(told, ids)).unwrap_or_else(|| of_sqlx(error, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: u32) -> StoreErrorKind {
        Report { code, message: "" }.kind()
    }

    #[test]
    fn extended_codes_mean_what_their_primary_code_means() {
        assert_eq!(kind(5 | 2 << 8), StoreErrorKind::Busy);
        assert_eq!(kind(6 | 1 << 8), StoreErrorKind::Busy);
        assert_eq!(kind(13), StoreErrorKind::Busy, "a full disk");
        assert_eq!(kind(8 | 6 << 8), StoreErrorKind::ReadOnly);
        assert_eq!(kind(11 | 1 << 8), StoreErrorKind::Corrupt);
        assert_eq!(kind(26), StoreErrorKind::Corrupt);
        assert_eq!(kind(14), StoreErrorKind::Unreachable);
        assert_eq!(kind(10 | 3 << 8), StoreErrorKind::Unreachable);
        assert_eq!(kind(1), StoreErrorKind::Other);
    }

    #[test]
    fn a_missing_table_is_named() {
        let told = Report { code: 1, message: "no such table: main.postrider_event" };
        assert_eq!(told.missing_table().as_deref(), Some("postrider_event"));
    }

    #[test]
    fn a_unique_index_of_the_callers_own_is_no_duplicate_id() {
        let told = Report { code: 2067, message: "UNIQUE constraint failed: orders.number" };
        assert!(!told.is_duplicate_id());
    }
}
