//! Writing through sqlx: the caller's transaction, a bare connection, and a transaction that Postrider owns.

use std::collections::HashSet;

use postrider_core::{
    BoxFuture, CallerTx, Error, Event, EventId, OwnedTx, Result, Target, TxSource,
    tx::{Dialect, OnDuplicate, Placed},
};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, Row, Transaction};

use super::{
    PgStore,
    error::{is_no_transaction, of_sqlx},
    insert,
    statement::{natural, splice},
};
use crate::Sqlx;

/// The driver's name in messages.
const DRIVER: &str = "sqlx (PostgreSQL)";

impl CallerTx<Sqlx> for &mut Transaction<'_, Postgres> {
    fn insert<'a>(
        self,
        target: &'a Target,
        events: &'a [Event],
        on_duplicate: OnDuplicate,
    ) -> BoxFuture<'a, Result<Vec<bool>>>
    where
        Self: 'a,
    {
        Box::pin(insert_all(self, target, events, on_duplicate))
    }
}

/// A bare connection is asked whether it is in a transaction, and refused if it is not.
impl CallerTx<Sqlx> for &mut PgConnection {
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
            target.require(Dialect::Postgres, DRIVER)?;
            require_transaction(self, target).await?;
            insert_all(self, target, events, on_duplicate).await
        })
    }
}

impl TxSource<Sqlx> for &PgPool {
    type Tx = PgTx;

    fn begin<'a>(self) -> BoxFuture<'a, Result<PgTx>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let tx = self.begin().await.map_err(|error| of_sqlx(error, "cannot begin a transaction"))?;
            Ok(PgTx { tx, proved: false })
        })
    }
}

impl TxSource<Sqlx> for &PgStore {
    type Tx = PgTx;

    fn begin<'a>(self) -> BoxFuture<'a, Result<PgTx>>
    where
        Self: 'a,
    {
        TxSource::begin(self.pool())
    }
}

/// A transaction that Postrider owns. Dropping it rolls it back.
#[derive(Debug)]
pub struct PgTx {
    tx: Transaction<'static, Postgres>,
    /// Nothing ran since the transaction was last seen to be whole.
    proved: bool,
}

impl OwnedTx for PgTx {
    type Conn = PgConnection;

    fn conn(&mut self) -> &mut PgConnection {
        self.proved = false;
        &mut self.tx
    }

    fn insert<'a>(
        &'a mut self,
        target: &'a Target,
        events: &'a [Event],
        on_duplicate: OnDuplicate,
    ) -> BoxFuture<'a, Result<Vec<bool>>> {
        self.proved = false;
        Box::pin(insert_all(&mut self.tx, target, events, on_duplicate))
    }

    fn read_back<'a>(
        &'a mut self,
        target: &'a Target,
        ids: &'a [EventId],
    ) -> BoxFuture<'a, Result<Vec<Placed>>> {
        Box::pin(async move {
            let read = read_back(&mut self.tx, target, ids).await;
            let read =
                read.map_err(|error| of_sqlx(error, format!("cannot read from {}event", target.prefix)))?;
            self.proved = true;
            Ok(read)
        })
    }

    /// After an error that somebody swallowed PostgreSQL answers `COMMIT` with a rollback, and sqlx does not say so. A statement
    /// right before it does: it fails where the transaction has.
    fn commit(mut self) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let fail = |error| of_sqlx(error, "cannot commit");
            if !self.proved {
                sqlx::raw_sql("SELECT 1").execute(&mut *self.tx).await.map_err(fail)?;
            }
            self.tx.commit().await.map_err(fail)
        })
    }

    fn rollback(self) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { self.tx.rollback().await.map_err(|error| of_sqlx(error, "cannot roll back")) })
    }
}

/// An error unless the connection is in a transaction. What sqlx believes is not asked: the caller may have said BEGIN itself.
async fn require_transaction(conn: &mut PgConnection, target: &Target) -> Result<()> {
    // A savepoint is refused outside of a transaction, and two statements that are sent as one do not make one.
    match sqlx::raw_sql("SAVEPOINT postrider_ask; RELEASE SAVEPOINT postrider_ask").execute(conn).await {
        Ok(_) => Ok(()),
        Err(error) if is_no_transaction(&error) => Err(Error::NotInTransaction { driver: DRIVER }),
        Err(error) => Err(of_sqlx(error, insert::what(target))),
    }
}

/// Inserts all events or none.
async fn insert_all(
    conn: &mut PgConnection,
    target: &Target,
    events: &[Event],
    on_duplicate: OnDuplicate,
) -> Result<Vec<bool>> {
    target.require(Dialect::Postgres, DRIVER)?;
    let fail = |error| of_sqlx(error, insert::what(target));
    if let [event] = events {
        let new = insert_one(conn, target, event, &fail).await?;
        return match on_duplicate {
            OnDuplicate::Fail if !new => Err(insert::duplicate(event.id())),
            _ => Ok(vec![new]),
        };
    }
    if on_duplicate == OnDuplicate::Fail {
        insert::require_distinct(events)?;
    }
    let mut inserted = HashSet::with_capacity(events.len());
    for chunk in insert::chunks(events) {
        let new = insert_chunk(conn, target, chunk, on_duplicate, &fail).await?;
        let complete = new.len() == chunk.len();
        inserted.extend(new);
        if on_duplicate == OnDuplicate::Fail && !complete {
            take_back(conn, target, inserted).await.map_err(fail)?;
            return Err(Error::DuplicateId { id: None });
        }
    }
    Ok(insert::which_are_new(events, inserted).collect())
}

async fn insert_one(
    conn: &mut PgConnection,
    target: &Target,
    event: &Event,
    fail: &(impl Fn(sqlx::Error) -> Error + Sync),
) -> Result<bool> {
    let values = insert::values(event)?;
    let query = sqlx::query(AssertSqlSafe(target.insert_one.clone())).persistent(target.prepared);
    let query = query
        .bind(event.id().as_str())
        .bind(event.event_type())
        .bind(event.aggregate_type())
        .bind(event.aggregate_id())
        .bind(event.ordering_key())
        .bind(event.tenant_id())
        .bind(event.content_type())
        .bind(values.headers)
        .bind(values.payload)
        .bind(values.payload_bytes)
        .bind(values.occurred_at)
        .bind(values.available_at)
        .bind(values.delay);
    Ok(query.execute(conn).await.map_err(fail)?.rows_affected() > 0)
}

/// Inserts what fits into one statement and gives the ids of the new events.
async fn insert_chunk(
    conn: &mut PgConnection,
    target: &Target,
    events: &[Event],
    on_duplicate: OnDuplicate,
    fail: &(impl Fn(sqlx::Error) -> Error + Sync),
) -> Result<Vec<String>> {
    let values = events.iter().map(insert::values).collect::<Result<Vec<_>>>()?;
    fn of<'e, T>(events: &'e [Event], value: impl Fn(&'e Event) -> T) -> Vec<T> {
        events.iter().map(value).collect()
    }
    let query =
        sqlx::query(AssertSqlSafe(insert::statement(target, on_duplicate))).persistent(target.prepared);
    let query = query
        .bind(of(events, |event| event.id().as_str()))
        .bind(of(events, Event::event_type))
        .bind(of(events, Event::aggregate_type))
        .bind(of(events, Event::aggregate_id))
        .bind(of(events, Event::ordering_key))
        .bind(of(events, Event::tenant_id))
        .bind(of(events, Event::content_type))
        .bind(values.iter().map(|v| v.headers.as_deref()).collect::<Vec<_>>())
        .bind(values.iter().map(|v| v.payload).collect::<Vec<_>>())
        .bind(values.iter().map(|v| v.payload_bytes).collect::<Vec<_>>())
        .bind(values.iter().map(|v| v.occurred_at).collect::<Vec<_>>())
        .bind(values.iter().map(|v| v.available_at).collect::<Vec<_>>())
        .bind(values.iter().map(|v| v.delay).collect::<Vec<_>>());
    let rows = query.fetch_all(conn).await.map_err(fail)?;
    rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>().map_err(fail)
}

/// Takes back what was inserted before a duplicate was met: in an earlier piece, or beside an event of the same id that another
/// transaction committed at the very moment.
async fn take_back(conn: &mut PgConnection, target: &Target, ids: HashSet<String>) -> sqlx::Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let sql = splice("DELETE FROM {p}event WHERE event_id = ANY ($1)", &target.prefix);
    let ids: Vec<String> = ids.into_iter().collect();
    sqlx::query(AssertSqlSafe(sql)).persistent(false).bind(ids).execute(conn).await?;
    Ok(())
}

async fn read_back(conn: &mut PgConnection, target: &Target, ids: &[EventId]) -> sqlx::Result<Vec<Placed>> {
    let sql = splice(
        "SELECT event_id, seq, lane FROM {p}event WHERE event_id = ANY ($1) ORDER BY seq",
        &target.prefix,
    );
    let ids: Vec<&str> = ids.iter().map(EventId::as_str).collect();
    let query = sqlx::query(AssertSqlSafe(sql)).persistent(target.prepared).bind(ids);
    let placed = |row: &sqlx::postgres::PgRow| {
        Ok(Placed {
            id: row.try_get::<String, _>("event_id")?.into(),
            seq: natural(row.try_get("seq")?),
            lane: natural(row.try_get::<i32, _>("lane")?.into()),
        })
    };
    query.fetch_all(conn).await?.iter().map(placed).collect()
}
