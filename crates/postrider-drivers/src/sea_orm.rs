//! Writing through sea-orm: its transaction, on PostgreSQL.
//!
//! sea-orm keeps every statement prepared and offers no other way. Behind a pooler that gives each transaction another connection, a
//! program of sea-orm's has to say `statement-cache-capacity=0` in its URL for its own statements already, and that serves for these
//! too. PgBouncer itself has to let pass what sqlx asks for (`ignore_startup_parameters = extra_float_digits`). It is tested so.

use postrider_core::{BoxFuture, CallerTx, Error, Event, Result, Target, tx::OnDuplicate};
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, RuntimeErr, Statement, Value};

use crate::postgres::{Columns, Fault, PgConn, Row, insert_all};

/// What the adapter of sea-orm is known by to [`CallerTx`]. Callers never name it.
///
/// A connection of sea-orm's is a pool, and is refused by the compiler:
///
/// ```compile_fail,E0277
/// # async fn f(db: &sea_orm::DatabaseConnection, target: &postrider_core::Target, events: &[postrider_core::Event]) {
/// use postrider_core::{CallerTx, tx::OnDuplicate};
/// let _ = CallerTx::insert(db, target, events, OnDuplicate::Fail).await;
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct SeaOrm;

impl CallerTx<SeaOrm> for &DatabaseTransaction {
    fn insert<'a>(
        self,
        target: &'a Target,
        events: &'a [Event],
        on_duplicate: OnDuplicate,
    ) -> BoxFuture<'a, Result<Vec<bool>>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let driver = match self.get_database_backend() {
                DbBackend::Postgres => {
                    return insert_all(&mut Through(self), target, events, on_duplicate).await;
                }
                DbBackend::MySql => "sea-orm (MySQL)",
                DbBackend::Sqlite => "sea-orm (SQLite)",
                _ => "sea-orm",
            };
            Err(Error::WrongDatabase { driver, outbox: target.dialect.name() })
        })
    }
}

struct Through<'c>(&'c DatabaseTransaction);

impl PgConn for Through<'_> {
    const DRIVER: &'static str = "sea-orm (PostgreSQL)";

    async fn insert_one(&mut self, sql: &str, row: &Row<'_>, _prepared: bool) -> Result<bool, Fault> {
        let text = |text: Option<&str>| Value::from(text.map(str::to_owned));
        let values = [
            row.event_id.into(),
            row.event_type.into(),
            row.aggregate_type.into(),
            text(row.aggregate_id),
            text(row.ordering_key),
            text(row.tenant_id),
            row.content_type.into(),
            text(row.headers.as_deref()),
            text(row.payload),
            row.payload_bytes.map(<[u8]>::to_vec).into(),
            row.occurred_at.into(),
            row.available_at.into(),
            row.delay.into(),
        ];
        let done = self.0.execute_raw(statement(sql, values)).await.map_err(fault)?;
        Ok(done.rows_affected() > 0)
    }

    async fn insert_many(
        &mut self,
        sql: &str,
        columns: &Columns<'_>,
        _prepared: bool,
    ) -> Result<Vec<String>, Fault> {
        let values = [
            list(&columns.event_id, text),
            list(&columns.event_type, text),
            list(&columns.aggregate_type, text),
            optional(&columns.aggregate_id, text),
            optional(&columns.ordering_key, text),
            optional(&columns.tenant_id, text),
            list(&columns.content_type, text),
            optional(&columns.headers, |headers, to| text(&headers.as_str(), to)),
            optional(&columns.payload, text),
            optional(&columns.payload_bytes, bytes),
            list(&columns.occurred_at, number),
            optional(&columns.available_at, number),
            list(&columns.delay, number),
        ];
        let rows = self.0.query_all_raw(statement(sql, values)).await.map_err(fault)?;
        rows.iter().map(|row| row.try_get_by_index(0)).collect::<Result<_, _>>().map_err(fault)
    }

    async fn delete(&mut self, sql: &str, ids: &[String]) -> Result<(), Fault> {
        let ids = list(ids, |id, to| text(&id.as_str(), to));
        self.0.execute_raw(statement(sql, [ids])).await.map_err(fault)?;
        Ok(())
    }
}

fn statement(sql: &str, values: impl IntoIterator<Item = Value>) -> Statement {
    Statement::from_sql_and_values(DbBackend::Postgres, sql, values)
}

/// A list as the text that PostgreSQL reads as an array: the arrays of sea-orm can hold no nulls.
fn list<T>(items: &[T], item: impl Fn(&T, &mut String)) -> Value {
    let mut to = String::from("{");
    for (place, one) in items.iter().enumerate() {
        if place > 0 {
            to.push(',');
        }
        item(one, &mut to);
    }
    to.push('}');
    to.into()
}

fn optional<T>(items: &[Option<T>], item: impl Fn(&T, &mut String)) -> Value {
    list(items, |one, to| match one {
        Some(one) => item(one, to),
        None => to.push_str("NULL"),
    })
}

/// In quotes, so that no character but the quote and the backslash means anything, and `NULL` is a word.
fn text(text: &&str, to: &mut String) {
    to.push('"');
    for char in text.chars() {
        if matches!(char, '"' | '\\') {
            to.push('\\');
        }
        to.push(char);
    }
    to.push('"');
}

fn bytes(bytes: &&[u8], to: &mut String) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |value: u8| DIGITS.get(usize::from(value & 15)).copied().unwrap_or_default();
    to.push_str("\"\\\\x");
    for byte in *bytes {
        to.extend([digit(byte >> 4), digit(*byte)]);
    }
    to.push('"');
}

fn number(number: &i64, to: &mut String) {
    to.push_str(&number.to_string());
}

fn fault(error: DbErr) -> Fault {
    let (mut state, mut message) = (None, String::new());
    let mut lost = matches!(error, DbErr::Conn(_) | DbErr::ConnectionAcquire(_));
    if let DbErr::Exec(RuntimeErr::SqlxError(told)) | DbErr::Query(RuntimeErr::SqlxError(told)) = &error {
        match told.as_database_error() {
            Some(told) => {
                state = told.code().map(|code| code.into_owned());
                message = told.message().to_owned();
            }
            None => lost = matches!(&**told, sea_orm::sqlx::Error::Io(_) | sea_orm::sqlx::Error::Protocol(_)),
        }
    }
    Fault { state, message, lost, source: Box::new(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_written_as_postgresql_reads_it() {
        let texts = [Some("a\"b\\c,{}"), None, Some("NULL"), Some("")];
        assert_eq!(optional(&texts, text), Value::from(r#"{"a\"b\\c,{}",NULL,"NULL",""}"#));
        let blobs: [Option<&[u8]>; 3] = [Some(&[0, 15, 255]), None, Some(&[])];
        assert_eq!(optional(&blobs, bytes), Value::from(r#"{"\\x000fff",NULL,"\\x"}"#));
        assert_eq!(list(&[1, -2], number), Value::from("{1,-2}"));
    }
}
