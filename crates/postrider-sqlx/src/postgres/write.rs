//! Writing through sqlx: the caller's transaction, a bare connection, and a transaction that Postrider owns.

use postrider_core::{
    BoxFuture, CallerTx, Event, EventId, OwnedTx, Result, Target, TxSource,
    tx::{Dialect, OnDuplicate, Placed},
};
use postrider_drivers::postgres::{ASK, Columns, Fault, PgConn, Row, insert_all, require_transaction};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, Row as _, Transaction};

use super::{
    PgStore,
    error::{fault, of_sqlx},
    statement::{natural, splice},
};
use crate::{Sqlx, caller_tx::caller_tx};

/// The driver's name in messages.
const DRIVER: &str = "sqlx (PostgreSQL)";

caller_tx!(Transaction<'_, Postgres>, |tx, target, events, on_duplicate| {
    insert_all(&mut Through(tx), target, events, on_duplicate).await
});

caller_tx!(
    /// A bare connection is asked whether it is in a transaction, and refused if it is not.
    PgConnection,
    |conn, target, events, on_duplicate| {
        target.require(Dialect::Postgres, DRIVER)?;
        // What sqlx believes is not asked: the caller may have said BEGIN itself.
        let answer = sqlx::raw_sql(ASK).execute(&mut *conn).await;
        require_transaction(answer.map(drop).map_err(fault), DRIVER, target)?;
        insert_all(&mut Through(conn), target, events, on_duplicate).await
    }
);

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
        Box::pin(async move { insert_all(&mut Through(&mut self.tx), target, events, on_duplicate).await })
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

/// A connection of sqlx's. A type of this crate's, because neither the trait nor the connection is.
struct Through<'c>(&'c mut PgConnection);

impl PgConn for Through<'_> {
    const DRIVER: &'static str = DRIVER;

    async fn insert_one(&mut self, sql: &str, row: &Row<'_>, prepared: bool) -> Result<bool, Fault> {
        let query = sqlx::query(AssertSqlSafe(sql.to_owned())).persistent(prepared);
        let query = query
            .bind(row.event_id)
            .bind(row.event_type)
            .bind(row.aggregate_type)
            .bind(row.aggregate_id)
            .bind(row.ordering_key)
            .bind(row.tenant_id)
            .bind(row.content_type)
            .bind(&row.headers)
            .bind(row.payload)
            .bind(row.payload_bytes)
            .bind(row.occurred_at)
            .bind(row.available_at)
            .bind(row.delay)
            .bind(row.lane_hint);
        Ok(query.execute(&mut *self.0).await.map_err(fault)?.rows_affected() > 0)
    }

    async fn insert_many(
        &mut self,
        sql: &str,
        columns: &Columns<'_>,
        prepared: bool,
    ) -> Result<Vec<String>, Fault> {
        let query = sqlx::query(AssertSqlSafe(sql.to_owned())).persistent(prepared);
        let query = query
            .bind(&columns.event_id)
            .bind(&columns.event_type)
            .bind(&columns.aggregate_type)
            .bind(&columns.aggregate_id)
            .bind(&columns.ordering_key)
            .bind(&columns.tenant_id)
            .bind(&columns.content_type)
            .bind(&columns.headers)
            .bind(&columns.payload)
            .bind(&columns.payload_bytes)
            .bind(&columns.occurred_at)
            .bind(&columns.available_at)
            .bind(&columns.delay)
            .bind(&columns.lane_hint);
        let rows = query.fetch_all(&mut *self.0).await.map_err(fault)?;
        rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>().map_err(fault)
    }

    async fn delete(&mut self, sql: &str, ids: &[String], _prepared: bool) -> Result<(), Fault> {
        let query = sqlx::query(AssertSqlSafe(sql.to_owned())).persistent(false);
        query.bind(ids).execute(&mut *self.0).await.map_err(fault)?;
        Ok(())
    }

    async fn command(&mut self, sql: &'static str) -> Result<(), Fault> {
        sqlx::raw_sql(sql).execute(&mut *self.0).await.map_err(fault)?;
        Ok(())
    }
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
