//! SQL texts with the prefix of the tables spliced in.

use std::sync::Arc;

use postrider_core::tx::Prefix;
use sqlx::{AssertSqlSafe, Sqlite, query::Query, sqlite::SqliteArguments};

/// What the prefix stands as in a template.
const PLACEHOLDER: &str = "{p}";

/// `template` with the prefix in all its places. Only a [`Prefix`] goes in, which is a plain identifier.
pub(super) fn splice(template: &str, prefix: &Prefix) -> String {
    template.replace(PLACEHOLDER, &prefix.to_string())
}

/// One statement, written out once per store so that the connections' statement caches know it again.
#[derive(Debug)]
pub(super) struct Statement(Arc<str>);

impl Statement {
    pub(super) fn new(template: &str, prefix: &Prefix) -> Self {
        Self(splice(template, prefix).into())
    }

    /// The statement, ready for its values.
    pub(super) fn query(&self) -> Query<'static, Sqlite, SqliteArguments> {
        // Safe because a template is a constant of this crate and a prefix is a plain identifier.
        sqlx::query(AssertSqlSafe(Arc::clone(&self.0)))
    }

    #[cfg(test)]
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

/// A list as JSON, the one shape in which SQLite takes a list as a single value.
pub(super) fn json<T: serde::Serialize>(list: &[T]) -> sqlx::Result<String> {
    serde_json::to_string(list).map_err(|error| sqlx::Error::Encode(error.into()))
}

/// A count of this process's as SQLite takes it.
pub(super) fn integer<T: TryInto<i64>>(number: T) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// A number that SQLite gave and that cannot be negative unless somebody wrote it by hand.
pub(super) fn natural<T: TryFrom<i64> + Default>(number: i64) -> T {
    T::try_from(number).unwrap_or_default()
}
