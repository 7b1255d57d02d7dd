//! Writing through diesel-async: an `AsyncPgConnection` in a transaction.
//!
//! A transaction of diesel's has the type of its connection, so the connection is asked. diesel keeps PostgreSQL's states to
//! itself; what it tells of them is told on.

use diesel::{
    QueryResult,
    deserialize::QueryableByName,
    pg::Pg,
    query_builder::{AstPass, Query, QueryFragment, QueryId},
    result::{DatabaseErrorKind, Error as DieselError},
    sql_types::{Array, BigInt, Binary, Integer, Nullable, Text, Untyped},
};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use postrider_core::{
    BoxFuture, CallerTx, Event, Result, Target,
    tx::{Dialect, OnDuplicate},
};

use crate::postgres::{ASK, Columns, Fault, PgConn, Row, insert_all, require_transaction};

/// What the adapter of diesel-async is known by to [`CallerTx`]. Callers never name it.
#[derive(Debug, Clone, Copy)]
pub struct DieselAsync;

/// The driver's name in messages.
const DRIVER: &str = "diesel-async (PostgreSQL)";

/// The connection is asked whether it is in a transaction, and refused if it is not.
impl CallerTx<DieselAsync> for &mut AsyncPgConnection {
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
            require_transaction(ask(self).await, DRIVER, target)?;
            insert_all(self, target, events, on_duplicate).await
        })
    }
}

/// Whether there is a transaction. One that has failed refuses everything, and where there is none only the savepoint is
/// refused: that tells them apart without the state, which diesel does not give.
async fn ask(conn: &mut AsyncPgConnection) -> Result<(), Fault> {
    let Err(refused) = conn.batch_execute(ASK).await else { return Ok(()) };
    let unnamed = matches!(refused, DieselError::DatabaseError(DatabaseErrorKind::Unknown, _));
    if unnamed && conn.batch_execute("SELECT 1").await.is_ok() {
        return Err(Fault { state: Some("25P01".to_owned()), ..fault(refused) });
    }
    Err(fault(refused))
}

impl PgConn for AsyncPgConnection {
    const DRIVER: &'static str = DRIVER;

    async fn insert_one(&mut self, sql: &str, row: &Row<'_>, prepared: bool) -> Result<bool, Fault> {
        let statement = Statement { sql, values: row, prepared };
        Ok(statement.execute(self).await.map_err(fault)? > 0)
    }

    async fn insert_many(
        &mut self,
        sql: &str,
        columns: &Columns<'_>,
        prepared: bool,
    ) -> Result<Vec<String>, Fault> {
        let statement = Statement { sql, values: columns, prepared };
        let new: Vec<New> = statement.load(self).await.map_err(fault)?;
        Ok(new.into_iter().map(|new| new.event_id).collect())
    }

    async fn delete(&mut self, sql: &str, ids: &[String], _prepared: bool) -> Result<(), Fault> {
        // diesel never keeps such a statement prepared.
        diesel::sql_query(sql).bind::<Array<Text>, _>(ids).execute(self).await.map_err(fault)?;
        Ok(())
    }

    async fn command(&mut self, sql: &'static str) -> Result<(), Fault> {
        self.batch_execute(sql).await.map_err(fault)
    }
}

#[derive(QueryableByName)]
struct New {
    #[diesel(sql_type = Text)]
    event_id: String,
}

/// A statement whose values are known by the numbers of their places. It is not `sql_query`, which diesel never keeps prepared.
struct Statement<'s, V> {
    sql: &'s str,
    values: &'s V,
    prepared: bool,
}

/// Values that are bound by their numbers.
trait Numbered {
    fn bind<'b>(&'b self, number: usize, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()>;
}

impl Numbered for Row<'_> {
    fn bind<'b>(&'b self, number: usize, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        match number {
            1 => out.push_bind_param::<Text, _>(&self.event_id),
            2 => out.push_bind_param::<Text, _>(&self.event_type),
            3 => out.push_bind_param::<Text, _>(&self.aggregate_type),
            4 => out.push_bind_param::<Nullable<Text>, _>(&self.aggregate_id),
            5 => out.push_bind_param::<Nullable<Text>, _>(&self.ordering_key),
            6 => out.push_bind_param::<Nullable<Text>, _>(&self.tenant_id),
            7 => out.push_bind_param::<Text, _>(&self.content_type),
            8 => out.push_bind_param::<Nullable<Text>, _>(&self.headers),
            9 => out.push_bind_param::<Nullable<Text>, _>(&self.payload),
            10 => out.push_bind_param::<Nullable<Binary>, _>(&self.payload_bytes),
            11 => out.push_bind_param::<BigInt, _>(&self.occurred_at),
            12 => out.push_bind_param::<Nullable<BigInt>, _>(&self.available_at),
            13 => out.push_bind_param::<BigInt, _>(&self.delay),
            14 => out.push_bind_param::<Nullable<Integer>, _>(&self.lane_hint),
            other => no_such_value(other),
        }
    }
}

impl Numbered for Columns<'_> {
    fn bind<'b>(&'b self, number: usize, out: &mut AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        match number {
            1 => out.push_bind_param::<Array<Text>, _>(&self.event_id),
            2 => out.push_bind_param::<Array<Text>, _>(&self.event_type),
            3 => out.push_bind_param::<Array<Text>, _>(&self.aggregate_type),
            4 => out.push_bind_param::<Array<Nullable<Text>>, _>(&self.aggregate_id),
            5 => out.push_bind_param::<Array<Nullable<Text>>, _>(&self.ordering_key),
            6 => out.push_bind_param::<Array<Nullable<Text>>, _>(&self.tenant_id),
            7 => out.push_bind_param::<Array<Text>, _>(&self.content_type),
            8 => out.push_bind_param::<Array<Nullable<Text>>, _>(&self.headers),
            9 => out.push_bind_param::<Array<Nullable<Text>>, _>(&self.payload),
            10 => out.push_bind_param::<Array<Nullable<Binary>>, _>(&self.payload_bytes),
            11 => out.push_bind_param::<Array<BigInt>, _>(&self.occurred_at),
            12 => out.push_bind_param::<Array<Nullable<BigInt>>, _>(&self.available_at),
            13 => out.push_bind_param::<Array<BigInt>, _>(&self.delay),
            14 => out.push_bind_param::<Array<Nullable<Integer>>, _>(&self.lane_hint),
            other => no_such_value(other),
        }
    }
}

fn no_such_value(number: usize) -> QueryResult<()> {
    Err(DieselError::QueryBuilderError(format!("an insert has no value ${number}").into()))
}

impl<V: Numbered> QueryFragment<Pg> for Statement<'_, V> {
    /// diesel numbers values by the order in which they come, so one that is named twice is bound twice.
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        if !self.prepared {
            out.unsafe_to_cache_prepared();
        }
        let mut pieces = self.sql.split('$');
        out.push_sql(pieces.next().unwrap_or_default());
        for piece in pieces {
            let digits = piece.bytes().take_while(u8::is_ascii_digit).count();
            let (number, text) = piece.split_at(digits);
            self.values.bind(number.parse().unwrap_or_default(), &mut out)?;
            out.push_sql(text);
        }
        Ok(())
    }
}

impl<V> Query for Statement<'_, V> {
    type SqlType = Untyped;
}

impl<V> QueryId for Statement<'_, V> {
    type QueryId = ();

    // There is one for each prefix, so its text is what it is known by.
    const HAS_STATIC_QUERY_ID: bool = false;
}

fn fault(error: DieselError) -> Fault {
    let (state, message, lost) = match &error {
        DieselError::DatabaseError(kind, told) => {
            let message = told.message().to_owned();
            let state = match kind {
                DatabaseErrorKind::SerializationFailure => Some("40001"),
                DatabaseErrorKind::ReadOnlyTransaction => Some("25006"),
                // Only in English; otherwise the table is named in the source alone.
                DatabaseErrorKind::Unknown
                    if message.starts_with("relation ") && message.ends_with(" does not exist") =>
                {
                    Some("42P01")
                }
                _ => None,
            };
            let lost =
                matches!(kind, DatabaseErrorKind::ClosedConnection | DatabaseErrorKind::UnableToSendCommand);
            (state.map(str::to_owned), message, lost)
        }
        DieselError::BrokenTransactionManager => (None, String::new(), true),
        _ => (None, String::new(), false),
    };
    Fault { state, message, lost, source: Box::new(error) }
}
