//! Writing through sqlx: the caller's transaction, a bare connection, and a transaction that Postrider owns.

use postrider_core::{
    BoxFuture, CallerTx, Error, Event, EventId, OwnedTx, Result, Target, TxSource,
    tx::{Dialect, OnDuplicate, Placed},
};
use sqlx::{AssertSqlSafe, MySql, MySqlConnection, MySqlPool, Transaction};

use super::{
    MysqlStore,
    error::{duplicate_id, is_no_savepoint, of_sqlx, of_sqlx_insert},
    insert,
    statement::{LIST_MAX, Listed, filled, natural, text},
};
use crate::{Sqlx, caller_tx::caller_tx};

/// The driver's name in messages.
const DRIVER: &str = "sqlx (MySQL)";

caller_tx!(Transaction<'_, MySql>, |tx, target, events, on_duplicate| {
    insert_all(tx, target, events, on_duplicate).await
});

caller_tx!(
    /// A bare connection is asked whether it is in a transaction, and refused if it is not.
    MySqlConnection,
    |conn, target, events, on_duplicate| insert_all(conn, target, events, on_duplicate).await
);

impl TxSource<Sqlx> for &MySqlPool {
    type Tx = MysqlTx;

    fn begin<'a>(self) -> BoxFuture<'a, Result<MysqlTx>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let begun = MySqlPool::begin(self).await;
            begun.map(MysqlTx).map_err(|error| of_sqlx(error, "cannot begin a transaction"))
        })
    }
}

impl TxSource<Sqlx> for &MysqlStore {
    type Tx = MysqlTx;

    fn begin<'a>(self) -> BoxFuture<'a, Result<MysqlTx>>
    where
        Self: 'a,
    {
        TxSource::begin(self.pool())
    }
}

/// A transaction that Postrider owns. Dropping it rolls it back.
#[derive(Debug)]
pub struct MysqlTx(Transaction<'static, MySql>);

impl OwnedTx for MysqlTx {
    type Conn = MySqlConnection;

    fn conn(&mut self) -> &mut MySqlConnection {
        &mut self.0
    }

    fn insert<'a>(
        &'a mut self,
        target: &'a Target,
        events: &'a [Event],
        on_duplicate: OnDuplicate,
    ) -> BoxFuture<'a, Result<Vec<bool>>> {
        Box::pin(insert_all(&mut self.0, target, events, on_duplicate))
    }

    fn read_back<'a>(
        &'a mut self,
        target: &'a Target,
        ids: &'a [EventId],
    ) -> BoxFuture<'a, Result<Vec<Placed>>> {
        Box::pin(async move {
            require_transaction(&mut self.0, target).await?;
            let read = read_back(&mut self.0, target, ids).await;
            read.map_err(|error| of_sqlx(error, format!("cannot read from {}event", target.prefix)))
        })
    }

    fn commit(self) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { self.0.commit().await.map_err(|error| of_sqlx(error, "cannot commit")) })
    }

    fn rollback(self) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { self.0.rollback().await.map_err(|error| of_sqlx(error, "cannot roll back")) })
    }
}

/// An error unless the connection is in a transaction.
///
/// What sqlx believes is not asked: a deadlock has rolled the whole transaction back, and what a program that swallows the
/// error writes from then on would commit at once and alone. A savepoint that is set outside of a transaction is gone at
/// once, and that is a way to ask which both databases have.
async fn require_transaction(conn: &mut MySqlConnection, target: &Target) -> Result<()> {
    match sqlx::raw_sql("SAVEPOINT postrider_asked; RELEASE SAVEPOINT postrider_asked").execute(conn).await {
        Ok(_) => Ok(()),
        Err(error) if is_no_savepoint(&error) => Err(Error::NotInTransaction { driver: DRIVER }),
        Err(error) => Err(of_sqlx(error, insert::what(target))),
    }
}

/// Inserts all events or none. Never tries again: whatever fails is the caller's to know.
async fn insert_all(
    conn: &mut MySqlConnection,
    target: &Target,
    events: &[Event],
    on_duplicate: OnDuplicate,
) -> Result<Vec<bool>> {
    target.require(Dialect::Mysql, DRIVER)?;
    let chunks = insert::chunks(events);
    if chunks.is_empty() {
        return Ok(Vec::new());
    }
    require_transaction(conn, target).await?;
    let fail = |error| of_sqlx_insert(error, insert::what(target), insert::ids(events));
    // A statement is all or nothing by itself; only several need something around them.
    if let ([chunk], OnDuplicate::Fail) = (chunks.as_slice(), on_duplicate) {
        insert_chunk(conn, target, chunk).await?.map_err(fail)?;
        return Ok(vec![true; chunk.len()]);
    }
    sqlx::raw_sql(insert::SAVEPOINT).execute(&mut *conn).await.map_err(fail)?;
    match insert_chunks(conn, target, &chunks, on_duplicate).await {
        Ok(Ok(new)) => {
            sqlx::raw_sql(insert::RELEASE).execute(conn).await.map_err(fail)?;
            Ok(new)
        }
        failed => {
            // After a deadlock there is nothing left to go back to; what failed first is what counts.
            let _ = sqlx::raw_sql(insert::ROLLBACK).execute(conn).await;
            failed?.map_err(fail)
        }
    }
}

/// Inserts statement by statement, and says which events are new. The inner error is the database's.
async fn insert_chunks(
    conn: &mut MySqlConnection,
    target: &Target,
    chunks: &[&[Event]],
    on_duplicate: OnDuplicate,
) -> Result<sqlx::Result<Vec<bool>>> {
    let mut new = Vec::new();
    for chunk in chunks {
        match insert_chunk(conn, target, chunk).await? {
            Ok(()) => new.extend(chunk.iter().map(|_| true)),
            Err(error) if on_duplicate == OnDuplicate::Keep && duplicate_id(&error).is_some() => {
                // Neither database says which rows of a statement were new, so they are asked one by one.
                for event in chunk.iter() {
                    match insert_chunk(conn, target, std::slice::from_ref(event)).await? {
                        Ok(()) => new.push(true),
                        Err(error) if duplicate_id(&error).is_some() => new.push(false),
                        Err(error) => return Ok(Err(error)),
                    }
                }
            }
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(new))
}

/// Inserts what fits into one statement. The inner error is the database's.
async fn insert_chunk(
    conn: &mut MySqlConnection,
    target: &Target,
    events: &[Event],
) -> Result<sqlx::Result<()>> {
    let statement = insert::statement(target, events.len());
    // One event is the common case; other counts vary, and would push useful statements out of the cache.
    let mut query = sqlx::query(AssertSqlSafe(statement)).persistent(events.len() == 1);
    for event in events {
        query = insert::bind(query, target, event)?;
    }
    Ok(query.execute(conn).await.map(|_| ()))
}

async fn read_back(
    conn: &mut MySqlConnection,
    target: &Target,
    ids: &[EventId],
) -> sqlx::Result<Vec<Placed>> {
    let sql = "SELECT event_id, seq, lane FROM {p}event WHERE event_id IN ({list}) ORDER BY seq";
    let sql = Listed::up_to(ids.len().clamp(1, LIST_MAX), sql, "?", ", ", &target.prefix);
    let mut placed = Vec::with_capacity(ids.len());
    for ids in ids.chunks(LIST_MAX) {
        let ids: Vec<&str> = ids.iter().map(EventId::as_str).collect();
        let query = filled(&ids).fold(sql.query(ids.len()), |query, id| query.bind(id.to_owned()));
        for row in query.fetch_all(&mut *conn).await? {
            placed.push(Placed {
                id: text(&row, "event_id")?.unwrap_or_default().into(),
                seq: natural(&row, "seq")?,
                lane: natural(&row, "lane")?,
            });
        }
    }
    placed.sort_unstable_by_key(|placed| placed.seq);
    Ok(placed)
}
