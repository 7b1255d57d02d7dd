//! Writing through tokio-postgres: its transaction, and a bare client.
//!
//! Statements are sent unprepared with the types of their values, in one message: one round trip, and nothing that outlives the
//! transaction, so a pooler does no harm.

use std::io;

use postrider_core::{
    BoxFuture, CallerTx, Event, Result, Target,
    tx::{Dialect, OnDuplicate},
};
use tokio_postgres::{
    Client, GenericClient, Transaction,
    types::{ToSql, Type},
};

use crate::postgres::{ASK, Columns, Fault, PgConn, Row, insert_all, require_transaction};

/// What the adapters of tokio-postgres are known by to [`CallerTx`]. Callers never name it.
#[derive(Debug, Clone, Copy)]
pub struct TokioPostgres;

/// The driver's name in messages.
const DRIVER: &str = "tokio-postgres";

impl CallerTx<TokioPostgres> for &Transaction<'_> {
    fn insert<'a>(
        self,
        target: &'a Target,
        events: &'a [Event],
        on_duplicate: OnDuplicate,
    ) -> BoxFuture<'a, Result<Vec<bool>>>
    where
        Self: 'a,
    {
        Box::pin(async move { insert_all(&mut Through(self), target, events, on_duplicate).await })
    }
}

/// A bare client is asked whether it is in a transaction, and refused if it is not.
impl CallerTx<TokioPostgres> for &Client {
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
            let answer = self.batch_execute(ASK).await.map_err(fault);
            require_transaction(answer, DRIVER, target)?;
            insert_all(&mut Through(self), target, events, on_duplicate).await
        })
    }
}

/// A client or a transaction.
pub(crate) struct Through<'c, C>(pub(crate) &'c C);

impl<C: GenericClient + Sync> PgConn for Through<'_, C> {
    const DRIVER: &'static str = DRIVER;

    async fn insert_one(&mut self, sql: &str, row: &Row<'_>, _prepared: bool) -> Result<bool, Fault> {
        let values: [(&(dyn ToSql + Sync), Type); 14] = [
            (&row.event_id, Type::TEXT),
            (&row.event_type, Type::TEXT),
            (&row.aggregate_type, Type::TEXT),
            (&row.aggregate_id, Type::TEXT),
            (&row.ordering_key, Type::TEXT),
            (&row.tenant_id, Type::TEXT),
            (&row.content_type, Type::TEXT),
            (&row.headers, Type::TEXT),
            (&row.payload, Type::TEXT),
            (&row.payload_bytes, Type::BYTEA),
            (&row.occurred_at, Type::INT8),
            (&row.available_at, Type::INT8),
            (&row.delay, Type::INT8),
            (&row.lane_hint, Type::INT4),
        ];
        Ok(self.0.execute_typed(sql, &values).await.map_err(fault)? > 0)
    }

    async fn insert_many(
        &mut self,
        sql: &str,
        columns: &Columns<'_>,
        _prepared: bool,
    ) -> Result<Vec<String>, Fault> {
        let values: [(&(dyn ToSql + Sync), Type); 14] = [
            (&columns.event_id, Type::TEXT_ARRAY),
            (&columns.event_type, Type::TEXT_ARRAY),
            (&columns.aggregate_type, Type::TEXT_ARRAY),
            (&columns.aggregate_id, Type::TEXT_ARRAY),
            (&columns.ordering_key, Type::TEXT_ARRAY),
            (&columns.tenant_id, Type::TEXT_ARRAY),
            (&columns.content_type, Type::TEXT_ARRAY),
            (&columns.headers, Type::TEXT_ARRAY),
            (&columns.payload, Type::TEXT_ARRAY),
            (&columns.payload_bytes, Type::BYTEA_ARRAY),
            (&columns.occurred_at, Type::INT8_ARRAY),
            (&columns.available_at, Type::INT8_ARRAY),
            (&columns.delay, Type::INT8_ARRAY),
            (&columns.lane_hint, Type::INT4_ARRAY),
        ];
        let rows = self.0.query_typed(sql, &values).await.map_err(fault)?;
        rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(fault)
    }

    async fn delete(&mut self, sql: &str, ids: &[String], _prepared: bool) -> Result<(), Fault> {
        self.0.execute_typed(sql, &[(&ids, Type::TEXT_ARRAY)]).await.map_err(fault)?;
        Ok(())
    }

    async fn command(&mut self, sql: &'static str) -> Result<(), Fault> {
        self.0.batch_execute(sql).await.map_err(fault)
    }
}

fn fault(error: tokio_postgres::Error) -> Fault {
    let lost =
        error.is_closed() || std::error::Error::source(&error).is_some_and(|source| source.is::<io::Error>());
    Fault {
        state: error.code().map(|state| state.code().to_owned()),
        message: error.as_db_error().map_or(String::new(), |told| told.message().to_owned()),
        lost,
        source: Box::new(error),
    }
}
