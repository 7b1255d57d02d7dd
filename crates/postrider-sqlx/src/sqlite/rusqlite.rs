//! Writing through rusqlite, which blocks.

use std::collections::HashSet;

use postrider_core::{
    BlockingCallerTx, Error, Event, Result, StoreError, StoreErrorKind, Target, Timestamp,
    tx::{Dialect, OnDuplicate},
};
use rusqlite::{
    Connection, Savepoint, ToSql, Transaction, params_from_iter,
    types::{ToSqlOutput, ValueRef},
};

use super::{
    error::{Report, duplicate_id},
    insert::{self, Value},
};

/// What the adapters of rusqlite are known by to [`BlockingCallerTx`]. Callers never name it.
#[derive(Debug, Clone, Copy)]
pub struct Rusqlite;

/// The driver's name in messages.
const DRIVER: &str = "rusqlite";

impl BlockingCallerTx<Rusqlite> for &Transaction<'_> {
    fn insert(self, target: &Target, events: &[Event], on_duplicate: OnDuplicate) -> Result<Vec<bool>> {
        insert_all(self, target, events, on_duplicate)
    }
}

impl BlockingCallerTx<Rusqlite> for &Savepoint<'_> {
    fn insert(self, target: &Target, events: &[Event], on_duplicate: OnDuplicate) -> Result<Vec<bool>> {
        insert_all(self, target, events, on_duplicate)
    }
}

/// A bare connection is asked whether it is in a transaction, and refused if it is not.
impl BlockingCallerTx<Rusqlite> for &Connection {
    fn insert(self, target: &Target, events: &[Event], on_duplicate: OnDuplicate) -> Result<Vec<bool>> {
        insert_all(self, target, events, on_duplicate)
    }
}

/// Inserts all events or none.
fn insert_all(
    conn: &Connection,
    target: &Target,
    events: &[Event],
    on_duplicate: OnDuplicate,
) -> Result<Vec<bool>> {
    target.require(Dialect::Sqlite, DRIVER)?;
    // Asked of typed transactions too: SQLite ends a transaction by itself after some errors, a full disk for one.
    if conn.is_autocommit() {
        return Err(Error::NotInTransaction { driver: DRIVER });
    }
    let chunks = insert::chunks(events);
    let fail = |error| of_rusqlite(error, target, events);
    if let [chunk] = chunks.as_slice() {
        return insert_chunk(conn, target, chunk, on_duplicate, &fail);
    }
    if chunks.is_empty() {
        return Ok(Vec::new());
    }
    conn.execute_batch(insert::SAVEPOINT).map_err(fail)?;
    let mut new = Vec::with_capacity(events.len());
    for chunk in chunks {
        match insert_chunk(conn, target, chunk, on_duplicate, &fail) {
            Ok(chunk) => new.extend(chunk),
            Err(error) => {
                conn.execute_batch(insert::ROLLBACK).map_err(fail)?;
                return Err(error);
            }
        }
    }
    conn.execute_batch(insert::RELEASE).map_err(fail)?;
    Ok(new)
}

/// Inserts what fits into one statement.
fn insert_chunk(
    conn: &Connection,
    target: &Target,
    events: &[Event],
    on_duplicate: OnDuplicate,
    fail: &impl Fn(rusqlite::Error) -> Error,
) -> Result<Vec<bool>> {
    let now = Timestamp::now();
    let mut values = Vec::with_capacity(events.len() * 13);
    for event in events {
        values.extend(insert::values(event, now)?);
    }
    let sql = insert::statement(target, events.len(), on_duplicate);
    let mut statement = conn.prepare(&sql).map_err(fail)?;
    match on_duplicate {
        OnDuplicate::Fail => {
            statement.execute(params_from_iter(values)).map_err(fail)?;
            Ok(vec![true; events.len()])
        }
        OnDuplicate::Keep => {
            let rows = statement.query_map(params_from_iter(values), |row| row.get(0)).map_err(fail)?;
            let new: HashSet<String> = rows.collect::<rusqlite::Result<_>>().map_err(fail)?;
            Ok(insert::which_are_new(events, new).collect())
        }
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Shared(text) => ValueRef::Text(text.as_bytes()),
            Value::Owned(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
            Value::Integer(integer) => ValueRef::Integer(*integer),
        }))
    }
}

fn of_rusqlite(error: rusqlite::Error, target: &Target, events: &[Event]) -> Error {
    let what = insert::what(target);
    let Some(failure) = error.sqlite_error() else {
        return StoreError::new(StoreErrorKind::Other, what, error).into();
    };
    let (code, message) = (failure.extended_code.unsigned_abs(), error.to_string());
    let told = Report { code, message: &message };
    duplicate_id(told, insert::ids(events)).unwrap_or_else(|| told.into_error(what, error))
}
