//! SQL texts with the prefix of the tables spliced in, and values as they come and go.

use std::{sync::Arc, time::Duration};

use postrider_core::{Timestamp, tx::Prefix};
use sqlx::{
    AssertSqlSafe, MySql, Row,
    mysql::{MySqlArguments, MySqlRow},
    query::Query,
};

/// What the prefix stands as in a template.
const PLACEHOLDER: &str = "{p}";

/// What a list stands as in a template.
const LIST: &str = "{list}";

/// A statement ready for its values.
pub(super) type Ready = Query<'static, MySql, MySqlArguments>;

/// Most items of a list in one statement.
pub(super) const LIST_MAX: usize = 1024;

/// A bound number of microseconds as a point in time.
pub(super) const AT: &str = "TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND";

/// The database's clock as a number of microseconds.
pub(super) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))";

/// A point in time as a number of microseconds.
pub(super) fn micros(expression: &str) -> String {
    format!("TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', {expression})")
}

/// A length of time as a number of microseconds to bind.
pub(super) fn span(time: Duration) -> i64 {
    integer(time.as_micros())
}

/// The first and the last point in time that a column can keep.
const MICROS_MIN: i64 = -62_135_596_800_000_000;
const MICROS_MAX: i64 = 253_402_300_799_999_999;

/// A point in time as it is bound for [`AT`]; beyond the calendar of the database, the end of it.
pub(super) fn bound(time: Timestamp) -> i64 {
    time.as_micros().clamp(MICROS_MIN, MICROS_MAX)
}

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
    pub(super) fn query(&self) -> Ready {
        // Safe because a template is a constant of this crate and a prefix is a plain identifier.
        sqlx::query(AssertSqlSafe(Arc::clone(&self.0)))
    }

    #[cfg(test)]
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

/// A statement over a list of any length. It is written out for lengths that are powers of two, and a list is filled up by
/// repeating its last item: otherwise every length would be a statement of its own to the database.
#[derive(Debug)]
pub(super) struct Listed {
    shorter: Vec<Statement>,
    longest: Statement,
}

impl Listed {
    /// `item` is what one item stands as, and `between` what stands between two of them.
    pub(super) fn new(template: &str, item: &str, between: &str, prefix: &Prefix) -> Self {
        Self::up_to(LIST_MAX, template, item, between, prefix)
    }

    /// The same for lists of at most so many items.
    pub(super) fn up_to(most: usize, template: &str, item: &str, between: &str, prefix: &Prefix) -> Self {
        let text =
            |size: usize| Statement::new(&template.replace(LIST, &vec![item; size].join(between)), prefix);
        let sizes = std::iter::successors(Some(1), |size| Some(size * 2)).take_while(|size| *size < most);
        Self { shorter: sizes.map(text).collect(), longest: text(most.next_power_of_two()) }
    }

    /// A statement over a list of plain values.
    pub(super) fn of_values(template: &str, prefix: &Prefix) -> Self {
        Self::new(template, "?", ", ", prefix)
    }

    /// The statement for a list of this length.
    pub(super) fn query(&self, len: usize) -> Ready {
        self.of_len(len).query()
    }

    pub(super) fn of_len(&self, len: usize) -> &Statement {
        let place = len.max(1).next_power_of_two().trailing_zeros() as usize;
        self.shorter.get(place).unwrap_or(&self.longest)
    }
}

/// A list filled up to the length that a [`Listed`] has a statement for.
pub(super) fn filled<T: Copy>(list: &[T]) -> impl Iterator<Item = T> {
    let last = list.last().copied();
    let missing = list.len().max(1).next_power_of_two() - list.len();
    list.iter().copied().chain(last.into_iter().cycle().take(missing))
}

/// A list as JSON, to be read with `JSON_TABLE`.
pub(super) fn json<T: serde::Serialize>(list: &[T]) -> sqlx::Result<String> {
    serde_json::to_string(list).map_err(|error| sqlx::Error::Encode(error.into()))
}

/// Lanes as the text that `FIND_IN_SET` takes.
pub(super) fn set(lanes: impl Iterator<Item = u32>) -> String {
    lanes.map(|lane| lane.to_string()).collect::<Vec<_>>().join(",")
}

/// A count of this process's as the database takes it.
pub(super) fn integer<T: TryInto<i64>>(number: T) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// A number that cannot be negative unless somebody wrote it by hand. Whether the database calls it signed or not depends on
/// the database.
pub(super) fn natural<T: TryFrom<i64> + Default>(row: &MySqlRow, column: &str) -> sqlx::Result<T> {
    Ok(maybe(row, column)?.unwrap_or_default())
}

/// The same where there may be none.
pub(super) fn maybe<T: TryFrom<i64> + Default>(row: &MySqlRow, column: &str) -> sqlx::Result<Option<T>> {
    let number = row.try_get_unchecked::<Option<i64>, _>(column)?;
    Ok(number.map(|number| T::try_from(number).unwrap_or_default()))
}

/// A point in time that was selected as [`micros`].
pub(super) fn time(row: &MySqlRow, column: &str) -> sqlx::Result<Timestamp> {
    Ok(maybe_time(row, column)?.unwrap_or(Timestamp::EPOCH))
}

/// The same where there may be none.
pub(super) fn maybe_time(row: &MySqlRow, column: &str) -> sqlx::Result<Option<Timestamp>> {
    Ok(row.try_get_unchecked::<Option<i64>, _>(column)?.map(Timestamp::from_micros))
}

/// A text, whatever is in it: an undecodable row is just what an operator has to see.
pub(super) fn text(row: &MySqlRow, column: &str) -> sqlx::Result<Option<String>> {
    let bytes = row.try_get_unchecked::<Option<&[u8]>, _>(column)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_filled_up_to_a_power_of_two_with_its_last_item() {
        assert_eq!(filled(&[1, 2, 3]).collect::<Vec<_>>(), [1, 2, 3, 3]);
        assert_eq!(filled(&[1, 2]).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(filled(&[7]).collect::<Vec<_>>(), [7]);
        let listed = Listed::of_values("IN ({list})", &Prefix::default());
        assert_eq!(listed.of_len(3).text(), "IN (?, ?, ?, ?)");
        assert_eq!(listed.of_len(1).text(), "IN (?)");
        assert_eq!(listed.of_len(LIST_MAX).text().matches('?').count(), LIST_MAX);
    }

    #[test]
    fn a_time_beyond_the_calendar_is_its_end() {
        assert_eq!(bound(Timestamp::from_micros(i64::MAX)), MICROS_MAX);
        assert_eq!(Timestamp::from_micros(MICROS_MAX).to_string(), "9999-12-31T23:59:59.999999Z");
        assert_eq!(Timestamp::from_micros(MICROS_MIN).to_string(), "0001-01-01T00:00:00.000000Z");
    }
}
