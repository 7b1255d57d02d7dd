//! SQL texts with the prefix of the tables spliced in, and values as PostgreSQL takes and gives them.

use std::sync::Arc;

use postrider_core::{Timestamp, tx::Prefix};
pub(super) use postrider_drivers::postgres::span;
use sqlx::{
    AssertSqlSafe, ColumnIndex, Postgres, Row,
    postgres::{PgArguments, PgRow},
    query::Query,
};

/// What stands in a template for the prefix, and for the key of an event `e`.
const PREFIX: &str = "{p}";
const KEY: &str = "{key}";

/// The key that orders an event `e`, spelled as the index of parked events spells it; null where nothing does.
const KEY_OF_E: &str = "coalesce(e.ordering_key, e.aggregate_type || ':' || e.aggregate_id)";

/// `template` with the prefix in all its places. Only a [`Prefix`] goes in, which is a plain identifier.
pub(super) fn splice(template: &str, prefix: &Prefix) -> String {
    template.replace(PREFIX, &prefix.to_string()).replace(KEY, KEY_OF_E)
}

/// One statement, written out once per store so that the connections' statement caches know it again.
#[derive(Debug)]
pub(super) struct Statement {
    text: Arc<str>,
    prepared: bool,
}

impl Statement {
    pub(super) fn new(template: &str, shape: &Shape) -> Self {
        let mut text = splice(template, &shape.prefix);
        if shape.flood {
            text.push_str("\n-- flood");
        }
        Self { text: text.into(), prepared: shape.prepared }
    }

    /// The statement, ready for its values.
    pub(super) fn query(&self) -> Query<'static, Postgres, PgArguments> {
        // Safe because a template is a constant of this crate and a prefix is a plain identifier.
        sqlx::query(AssertSqlSafe(Arc::clone(&self.text))).persistent(self.prepared)
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// How the statements of a store are written.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    /// The prefix of the tables.
    pub(super) prefix: Prefix,
    /// Whether statements stay prepared; not through a pooler, which gives each transaction another connection.
    pub(super) prepared: bool,
    /// Whether they are for when there is more than one claim can take.
    pub(super) flood: bool,
}

/// Statements that are prepared twice: for when little is in the table, and for a flood. An outbox is empty most of the time, and reading
/// all of an empty table is what a planner likes best. The plan is kept, and a million events later it would be a walk over all of them,
/// for each claim and each settle, until the server looks at the table again.
#[derive(Debug)]
pub(super) struct Twice<T> {
    usual: T,
    flood: T,
}

impl<T> Twice<T> {
    pub(super) fn new(shape: &Shape, statements: impl Fn(&Shape) -> T) -> Self {
        Self { usual: statements(shape), flood: statements(&Shape { flood: true, ..shape.clone() }) }
    }

    pub(super) fn of(&self, flood: bool) -> &T {
        if flood { &self.flood } else { &self.usual }
    }
}

/// A count of this process's as PostgreSQL takes it.
pub(super) fn integer<T: TryInto<i64>>(number: T) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// A number of 32 bits; lanes and attempts are such.
pub(super) fn small<T: TryInto<i32>>(number: T) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

/// A number that PostgreSQL gave and that cannot be negative unless somebody wrote it by hand.
pub(super) fn natural<T: TryFrom<i64> + Default>(number: i64) -> T {
    T::try_from(number).unwrap_or_default()
}

/// PostgreSQL counts microseconds from the year 2000.
const EPOCH_2000_US: i64 = 946_684_800_000_000;

/// A `timestamptz`. Read as the number that it is, since neither of the crates for dates is wanted.
pub(super) fn time<I: ColumnIndex<PgRow>>(row: &PgRow, column: I) -> sqlx::Result<Timestamp> {
    Ok(optional_time(row, column)?.unwrap_or_default())
}

/// A `timestamptz` or null.
pub(super) fn optional_time<I: ColumnIndex<PgRow>>(
    row: &PgRow,
    column: I,
) -> sqlx::Result<Option<Timestamp>> {
    let since_2000 = row.try_get_unchecked::<Option<i64>, _>(column)?;
    Ok(since_2000.map(|micros| Timestamp::from_micros(micros.saturating_add(EPOCH_2000_US))))
}
