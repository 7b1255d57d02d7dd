//! Writing through sea-orm: its transaction, on PostgreSQL.
//!
//! sea-orm keeps every statement with values prepared, under a name, and offers no other way. Where nothing may stay prepared, because
//! a pooler gives each transaction another connection, values stand in the text of the statement instead: as hexadecimal digits that
//! PostgreSQL decodes, so that nothing in them can be read as SQL, whatever the settings of the session. Such a statement says only how
//! many rows it changed, so a batch costs a savepoint, and one that holds duplicates is written event by event. (PgBouncer itself has to
//! let pass what sqlx asks for: `ignore_startup_parameters = extra_float_digits`.) sqlx logs the text of slow statements: there, and
//! only there, a payload can be found in a log, in those digits.

use std::ops::Range;

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

    async fn insert_one(&mut self, sql: &str, row: &Row<'_>, prepared: bool) -> Result<bool, Fault> {
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
            row.lane_hint.into(),
        ];
        let done = if prepared {
            self.0.execute_raw(statement(sql, values)).await
        } else {
            self.0.execute_unprepared(&inlined(sql, &values).map_err(fault)?).await
        };
        Ok(done.map_err(fault)?.rows_affected() > 0)
    }

    async fn insert_many(
        &mut self,
        sql: &str,
        columns: &Columns<'_>,
        prepared: bool,
    ) -> Result<Vec<String>, Fault> {
        if !prepared {
            return self.insert_inlined(sql, columns).await.map_err(fault);
        }
        let rows = self
            .0
            .query_all_raw(statement(sql, lists(columns, 0..columns.event_id.len())))
            .await
            .map_err(fault)?;
        rows.iter().map(|row| row.try_get_by_index(0)).collect::<Result<_, _>>().map_err(fault)
    }

    async fn delete(&mut self, sql: &str, ids: &[String], prepared: bool) -> Result<(), Fault> {
        let ids = [list(ids, |id, to| text(&id.as_str(), to))];
        let done = if prepared {
            self.0.execute_raw(statement(sql, ids)).await
        } else {
            self.0.execute_unprepared(&inlined(sql, &ids).map_err(fault)?).await
        };
        done.map(drop).map_err(fault)
    }

    async fn command(&mut self, sql: &'static str) -> Result<(), Fault> {
        self.0.execute_unprepared(sql).await.map(drop).map_err(fault)
    }
}

impl Through<'_> {
    async fn insert_inlined(&self, sql: &str, columns: &Columns<'_>) -> Result<Vec<String>, DbErr> {
        const SAVEPOINT: &str = "SAVEPOINT postrider_insert";
        const RELEASE: &str = "RELEASE SAVEPOINT postrider_insert";
        const UNDO: &str = "ROLLBACK TO SAVEPOINT postrider_insert; RELEASE SAVEPOINT postrider_insert";
        let all = columns.event_id.len();
        let insert = format!("{SAVEPOINT}; {}", inlined(sql, &lists(columns, 0..all))?);
        let new = self.0.execute_unprepared(&insert).await?.rows_affected();
        if new == 0 || usize::try_from(new) == Ok(all) {
            self.0.execute_unprepared(RELEASE).await?;
            let ids = columns.event_id.iter().take(usize::try_from(new).unwrap_or(all));
            return Ok(ids.map(|id| (*id).to_owned()).collect());
        }
        // Which of them are new was not said, so each is asked for by itself.
        self.0.execute_unprepared(UNDO).await?;
        let mut ids = Vec::new();
        for (place, id) in columns.event_id.iter().enumerate() {
            let one = inlined(sql, &lists(columns, place..place + 1))?;
            if self.0.execute_unprepared(&one).await?.rows_affected() > 0 {
                ids.push((*id).to_owned());
            }
        }
        Ok(ids)
    }
}

/// The lists of those events that lie at these places.
fn lists(columns: &Columns<'_>, places: Range<usize>) -> [Value; 14] {
    fn cut<'c, T>(column: &'c [T], places: &Range<usize>) -> &'c [T] {
        column.get(places.clone()).unwrap_or_default()
    }
    [
        list(cut(&columns.event_id, &places), text),
        list(cut(&columns.event_type, &places), text),
        list(cut(&columns.aggregate_type, &places), text),
        optional(cut(&columns.aggregate_id, &places), text),
        optional(cut(&columns.ordering_key, &places), text),
        optional(cut(&columns.tenant_id, &places), text),
        list(cut(&columns.content_type, &places), text),
        optional(cut(&columns.headers, &places), |headers, to| text(&headers.as_str(), to)),
        optional(cut(&columns.payload, &places), text),
        optional(cut(&columns.payload_bytes, &places), bytes),
        list(cut(&columns.occurred_at, &places), number),
        optional(cut(&columns.available_at, &places), number),
        list(cut(&columns.delay, &places), number),
        optional(cut(&columns.lane_hint, &places), number),
    ]
}

fn statement(sql: &str, values: impl IntoIterator<Item = Value>) -> Statement {
    Statement::from_sql_and_values(DbBackend::Postgres, sql, values)
}

/// A statement of ours with its values in their places.
fn inlined(sql: &str, values: &[Value]) -> Result<String, DbErr> {
    let mut pieces = sql.split('$');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let digits = piece.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = piece.split_at(digits);
        let value = number.parse::<usize>().ok().and_then(|number| values.get(number.checked_sub(1)?));
        literal(value.ok_or_else(|| DbErr::Custom(format!("an insert has no value ${number}")))?, &mut text)?;
        text.push_str(rest);
    }
    Ok(text)
}

/// A value as SQL. Whatever it holds, only digits and the letters a to f of it stand in the text: there is nothing to escape, and
/// `standard_conforming_strings`, `backslash_quote` and encodings have no say.
fn literal(value: &Value, to: &mut String) -> Result<(), DbErr> {
    match value {
        Value::String(Some(text)) => {
            to.push_str("pg_catalog.convert_from(");
            decoded(text.as_bytes(), to);
            to.push_str(", 'UTF8')");
        }
        Value::Bytes(Some(bytes)) => decoded(bytes, to),
        // In quotes: a sign before a number is an operator, and binds less than a cast.
        Value::BigInt(Some(number)) => to.push_str(&format!("'{number}'")),
        Value::Int(Some(number)) => to.push_str(&format!("'{number}'")),
        Value::String(None) | Value::Bytes(None) | Value::BigInt(None) | Value::Int(None) => {
            to.push_str("NULL");
        }
        _ => return Err(DbErr::Custom("an insert has no value of this type".to_owned())),
    }
    Ok(())
}

fn decoded(bytes: &[u8], to: &mut String) {
    to.push_str("pg_catalog.decode('");
    hex(bytes, to);
    to.push_str("', 'hex')");
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
    to.push_str("\"\\\\x");
    hex(bytes, to);
    to.push('"');
}

fn hex(bytes: &[u8], to: &mut String) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |value: u8| DIGITS.get(usize::from(value & 15)).copied().unwrap_or_default();
    for byte in bytes {
        to.extend([digit(byte >> 4), digit(*byte)]);
    }
}

fn number(number: &impl ToString, to: &mut String) {
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

    #[test]
    fn a_value_stands_in_the_text_of_a_statement_as_digits() -> Result<(), DbErr> {
        let values = [
            Value::from("'\\ $2"),
            None::<String>.into(),
            vec![1_u8, 255].into(),
            (-7_i64).into(),
            3_i32.into(),
        ];
        assert_eq!(
            inlined("VALUES ($1::text, $2::text, $3::bytea, $4::bigint, $5::integer) $1", &values)?,
            "VALUES (pg_catalog.convert_from(pg_catalog.decode('275c202432', 'hex'), 'UTF8')::text, NULL::text, \
             pg_catalog.decode('01ff', 'hex')::bytea, '-7'::bigint, '3'::integer) \
             pg_catalog.convert_from(pg_catalog.decode('275c202432', 'hex'), 'UTF8')"
        );
        Ok(())
    }

    #[test]
    fn a_value_that_is_not_there_or_of_another_type_is_an_error_and_no_null() {
        assert!(inlined("VALUES ($2)", &[1_i64.into()]).is_err());
        assert!(inlined("VALUES ($1)", &[true.into()]).is_err());
    }
}
