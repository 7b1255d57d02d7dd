//! Writing through sqlx: the caller's transaction, a bare connection, and a transaction that Postrider owns.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use postrider_core::{
    BoxFuture, CallerTx, Error, Event, EventId, OwnedTx, Result, Target, Timestamp, TxSource,
    tx::{Dialect, OnDuplicate, Placed},
};
use sqlx::{
    AssertSqlSafe, Row, SqlSafeStr, Sqlite, SqliteConnection, SqlitePool, Transaction, query::Query,
    sqlite::SqliteArguments,
};

use crate::{Sqlx, caller_tx::caller_tx};

use super::{
    SqliteStore, connect,
    error::{is_nested_begin, of_sqlx, of_sqlx_insert},
    insert::{self, Value},
    statement::{json, natural, splice},
};

/// The driver's name in messages.
const DRIVER: &str = "sqlx (SQLite)";

caller_tx!(Transaction<'_, Sqlite>, |tx, target, events, on_duplicate| {
    insert_all(tx, target, events, on_duplicate).await
});

caller_tx!(
    /// A bare connection is asked whether it is in a transaction, and refused if it is not.
    SqliteConnection,
    |conn, target, events, on_duplicate| {
        target.require(Dialect::Sqlite, DRIVER)?;
        require_transaction(conn, target).await?;
        insert_all(conn, target, events, on_duplicate).await
    }
);

/// Transactions that Postrider begins take the write lock at once: they will write, and a lock that is taken later can
/// be refused.
impl TxSource<Sqlx> for &SqlitePool {
    type Tx = SqliteTx;

    fn begin<'a>(self) -> BoxFuture<'a, Result<SqliteTx>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            SqliteTx::begin(self).await.map_err(|error| of_sqlx(error, "cannot begin a transaction"))
        })
    }
}

impl TxSource<Sqlx> for &SqliteStore {
    type Tx = SqliteTx;

    fn begin<'a>(self) -> BoxFuture<'a, Result<SqliteTx>>
    where
        Self: 'a,
    {
        TxSource::begin(self.pool())
    }
}

/// A transaction that Postrider owns. Dropping it rolls it back. It sets the rollback hook of its connection, in place of
/// one that the program may have set.
#[derive(Debug)]
pub struct SqliteTx {
    tx: Transaction<'static, Sqlite>,
    /// SQLite has rolled the transaction back by itself, as it does after `OR ROLLBACK` or on a full disk. sqlx does not
    /// notice, and whatever is written from then on commits at once and alone; so nothing may be.
    ended: Arc<AtomicBool>,
}

impl SqliteTx {
    async fn begin(pool: &SqlitePool) -> sqlx::Result<Self> {
        let conn = connect::acquire(pool).await?;
        let mut tx = Transaction::begin(conn, Some("BEGIN IMMEDIATE".into_sql_str())).await?;
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        tx.lock_handle().await?.set_rollback_hook(move || seen.store(true, Relaxed));
        Ok(Self { tx, ended })
    }

    fn require_open(&self) -> Result<()> {
        if self.ended.load(Relaxed) { Err(Error::NotInTransaction { driver: DRIVER }) } else { Ok(()) }
    }
}

impl OwnedTx for SqliteTx {
    type Conn = SqliteConnection;

    fn conn(&mut self) -> &mut SqliteConnection {
        &mut self.tx
    }

    fn insert<'a>(
        &'a mut self,
        target: &'a Target,
        events: &'a [Event],
        on_duplicate: OnDuplicate,
    ) -> BoxFuture<'a, Result<Vec<bool>>> {
        Box::pin(async move {
            self.require_open()?;
            insert_all(&mut self.tx, target, events, on_duplicate).await
        })
    }

    fn read_back<'a>(
        &'a mut self,
        target: &'a Target,
        ids: &'a [EventId],
    ) -> BoxFuture<'a, Result<Vec<Placed>>> {
        Box::pin(async move {
            self.require_open()?;
            let read = read_back(&mut self.tx, target, ids).await;
            read.map_err(|error| of_sqlx(error, format!("cannot read from {}event", target.prefix)))
        })
    }

    fn commit(self) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { self.tx.commit().await.map_err(|error| of_sqlx(error, "cannot commit")) })
    }

    fn rollback(self) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { self.tx.rollback().await.map_err(|error| of_sqlx(error, "cannot roll back")) })
    }
}

/// An error unless the connection is in a transaction.
async fn require_transaction(conn: &mut SqliteConnection, target: &Target) -> Result<()> {
    // What sqlx believes is not asked: the caller may have said BEGIN itself, and SQLite may have ended a transaction by
    // itself. SQLite refuses to begin a second transaction, and that is the only way to ask it in SQL.
    match sqlx::raw_sql("BEGIN; ROLLBACK").execute(conn).await {
        Ok(_) => Err(Error::NotInTransaction { driver: DRIVER }),
        Err(error) if is_nested_begin(&error) => Ok(()),
        Err(error) => Err(of_sqlx(error, insert::what(target))),
    }
}

/// Inserts all events or none.
async fn insert_all(
    conn: &mut SqliteConnection,
    target: &Target,
    events: &[Event],
    on_duplicate: OnDuplicate,
) -> Result<Vec<bool>> {
    target.require(Dialect::Sqlite, DRIVER)?;
    let chunks = insert::chunks(events);
    let fail = |error| of_sqlx_insert(error, insert::what(target), insert::ids(events));
    // A statement is all or nothing by itself; only several need something around them.
    if let [chunk] = chunks.as_slice() {
        return insert_chunk(conn, target, chunk, on_duplicate, &fail).await;
    }
    if chunks.is_empty() {
        return Ok(Vec::new());
    }
    sqlx::raw_sql(insert::SAVEPOINT).execute(&mut *conn).await.map_err(fail)?;
    let mut new = Vec::with_capacity(events.len());
    for chunk in chunks {
        match insert_chunk(conn, target, chunk, on_duplicate, &fail).await {
            Ok(chunk) => new.extend(chunk),
            Err(error) => {
                sqlx::raw_sql(insert::ROLLBACK).execute(&mut *conn).await.map_err(fail)?;
                return Err(error);
            }
        }
    }
    sqlx::raw_sql(insert::RELEASE).execute(conn).await.map_err(fail)?;
    Ok(new)
}

/// Inserts what fits into one statement.
async fn insert_chunk(
    conn: &mut SqliteConnection,
    target: &Target,
    events: &[Event],
    on_duplicate: OnDuplicate,
    fail: &(impl Fn(sqlx::Error) -> Error + Sync),
) -> Result<Vec<bool>> {
    let now = Timestamp::now();
    let statement = insert::statement(target, events.len(), on_duplicate);
    // One event is the common case; other counts vary, and would push useful statements out of the cache.
    let mut query = sqlx::query(AssertSqlSafe(statement)).persistent(events.len() == 1);
    for event in events {
        for value in insert::values(event, now)? {
            query = bind(query, value);
        }
    }
    match on_duplicate {
        OnDuplicate::Fail => {
            query.execute(conn).await.map_err(fail)?;
            Ok(vec![true; events.len()])
        }
        OnDuplicate::Keep => {
            let rows = query.fetch_all(conn).await.map_err(fail)?;
            let new: sqlx::Result<HashSet<String>> = rows.iter().map(|row| row.try_get(0)).collect();
            Ok(insert::which_are_new(events, new.map_err(fail)?).collect())
        }
    }
}

type Insert = Query<'static, Sqlite, SqliteArguments>;

fn bind(query: Insert, value: Value<'_>) -> Insert {
    match value {
        Value::Null => query.bind(None::<String>),
        Value::Text(text) => query.bind(text.to_owned()),
        Value::Shared(text) => query.bind(std::sync::Arc::clone(text)),
        Value::Owned(text) => query.bind(text),
        Value::Bytes(bytes) => query.bind(bytes.to_vec()),
        Value::Integer(integer) => query.bind(integer),
    }
}

async fn read_back(
    conn: &mut SqliteConnection,
    target: &Target,
    ids: &[EventId],
) -> sqlx::Result<Vec<Placed>> {
    let sql = "SELECT event_id, seq, lane FROM {p}event WHERE event_id IN (SELECT value FROM json_each(?1)) \
               ORDER BY seq";
    let ids: Vec<&str> = ids.iter().map(EventId::as_str).collect();
    let query = sqlx::query(AssertSqlSafe(splice(sql, &target.prefix))).bind(json(&ids)?);
    let placed = |row: &sqlx::sqlite::SqliteRow| {
        Ok(Placed {
            id: row.try_get::<String, _>("event_id")?.into(),
            seq: natural(row.try_get("seq")?),
            lane: natural(row.try_get("lane")?),
        })
    };
    query.fetch_all(conn).await?.iter().map(placed).collect()
}
