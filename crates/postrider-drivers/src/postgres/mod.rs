//! The insert into PostgreSQL, for every driver alike.
//!
//! An error inside a transaction of PostgreSQL's ends it, so an id that is there already must not become one: the insert does
//! nothing about it, and says so by what it returns. That is also why it needs no savepoint.
//!
//! A driver implements [`PgConn`], which runs three statements and commands, and has [`insert_all`] do the rest.

mod fault;
mod statement;
mod values;

use std::{collections::HashSet, future::Future};

use postrider_core::{
    Error, Event, Result, Target,
    tx::{Dialect, OnDuplicate},
};

pub use self::{
    fault::{Fault, kind_of_state, missing_table},
    statement::{ASK, target},
    values::{Columns, Row, span},
};

/// A connection of PostgreSQL's that is in a transaction.
pub trait PgConn: Send {
    /// The driver's name in messages.
    const DRIVER: &'static str;

    /// Runs a statement with the fourteen values of an event, in the order of [`Row`]'s fields, and says whether it changed
    /// anything. It may stay prepared only if `prepared` says so.
    fn insert_one(
        &mut self,
        sql: &str,
        row: &Row<'_>,
        prepared: bool,
    ) -> impl Future<Output = Result<bool, Fault>> + Send;

    /// Runs a statement with fourteen lists, in the order of [`Columns`]'s fields, and gives the text in the first column of
    /// each row that it returns.
    fn insert_many(
        &mut self,
        sql: &str,
        columns: &Columns<'_>,
        prepared: bool,
    ) -> impl Future<Output = Result<Vec<String>, Fault>> + Send;

    /// Runs a statement with one list of texts.
    fn delete(
        &mut self,
        sql: &str,
        ids: &[String],
        prepared: bool,
    ) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Runs commands that have no values and answer nothing.
    fn command(&mut self, sql: &'static str) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// Around a batch that one statement cannot take, of which a duplicate in a later piece takes the earlier ones back: who writes need not be allowed to
/// delete.
const SAVE: &str = "SAVEPOINT postrider_insert";
const KEEP: &str = "RELEASE SAVEPOINT postrider_insert";
const GO_BACK: &str = "ROLLBACK TO SAVEPOINT postrider_insert; RELEASE SAVEPOINT postrider_insert";

/// Inserts all events or none.
pub async fn insert_all<C: PgConn>(
    conn: &mut C,
    target: &Target,
    events: &[Event],
    on_duplicate: OnDuplicate,
) -> Result<Vec<bool>> {
    target.require(Dialect::Postgres, C::DRIVER)?;
    let fail = |fault: Fault| fault.into_error(what(target));
    if let [event] = events {
        let row = Row::of(event, target)?;
        let new = conn.insert_one(&target.insert_one, &row, target.prepared).await.map_err(fail)?;
        return match on_duplicate {
            OnDuplicate::Fail if !new => Err(Error::DuplicateId { id: Some(event.id().clone()) }),
            _ => Ok(vec![new]),
        };
    }
    if on_duplicate == OnDuplicate::Fail {
        values::require_distinct(events)?;
    }
    let mut inserted = HashSet::with_capacity(events.len());
    let chunks = values::chunks(events);
    let saves = on_duplicate == OnDuplicate::Fail && chunks.len() > 1;
    if saves {
        conn.command(SAVE).await.map_err(fail)?;
    }
    for chunk in chunks {
        let (sql, columns) = (statement::insert_many(target, on_duplicate), Columns::of(chunk, target)?);
        let new = conn.insert_many(&sql, &columns, target.prepared).await.map_err(fail)?;
        let complete = new.len() == chunk.len();
        inserted.extend(new);
        if on_duplicate == OnDuplicate::Fail && !complete {
            // What was inserted before the duplicate was met: in an earlier piece, or beside an event of the same id that
            // another transaction committed at the very moment, which is so rare that a single piece is not saved for it.
            let ids: Vec<String> = inserted.into_iter().collect();
            if saves {
                conn.command(GO_BACK).await.map_err(fail)?;
            } else if !ids.is_empty() {
                conn.delete(&statement::take_back(target), &ids, target.prepared).await.map_err(fail)?;
            }
            return Err(Error::DuplicateId { id: None });
        }
    }
    if saves {
        conn.command(KEEP).await.map_err(fail)?;
    }
    Ok(values::which_are_new(events, inserted).collect())
}

/// What the answer to [`ASK`] means: an error unless the connection is in a transaction.
pub fn require_transaction(answer: Result<(), Fault>, driver: &'static str, target: &Target) -> Result<()> {
    match answer {
        Ok(()) => Ok(()),
        Err(fault) if fault.is_no_transaction() => Err(Error::NotInTransaction { driver }),
        Err(fault) => Err(fault.into_error(what(target))),
    }
}

/// What failed, for messages.
fn what(target: &Target) -> String {
    format!("cannot insert into {}event", target.prefix)
}
