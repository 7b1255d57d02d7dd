//! Peeks: the last number that was drawn for an event, by any writer, whatever becomes of it.
//!
//! The sequence is a table of one row that no transaction hides: reading it costs a round trip and next to nothing else. With a statement that
//! stays prepared, 200 a second took 0.9 % of a core, client and server together.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use postrider_core::store::{Peek, PeekWait, Seq};
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::{
    error::is_denied,
    identity::Identity,
    statement::{Shape, Statement, integer, natural, small, splice},
};

/// Before the first number is drawn, the sequence says that this is the first.
const LAST: &str = "SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END FROM {p}event_seq_seq";

/// The same, but the server itself looks again and again ($2 seconds between), until the number is no longer $1 or it has looked $3 times. The reads name
/// the round that they belong to, or they would be made once. A look takes 14 µs of the server's time; to ask anew takes 45 µs of
/// it, and the client's.
const WAIT: &str = "
    WITH RECURSIVE watch (round, last) AS (
        SELECT 0, $1::bigint
        UNION ALL
        SELECT watch.round + 1,
               CASE WHEN pg_sleep($2::double precision)::text = ''
                    THEN (SELECT s.last_value - CASE WHEN s.is_called THEN 0 ELSE 1 END FROM {p}event_seq_seq AS s WHERE watch.round >= 0) END
        FROM watch WHERE watch.round < $3::integer AND watch.last = $1
    )
    SELECT last FROM watch ORDER BY round DESC LIMIT 1";

/// How often a peek is worth its price: directly, and through a pooler, which has to find a connection of its own for each.
const EVERY: Duration = Duration::from_millis(5);
const EVERY_POOLED: Duration = Duration::from_millis(10);

/// When to ask again after the role was not allowed to read the sequence: rights can be granted. A sequence that is missing is an error like any other,
/// because tables that were dropped are restored.
const REFUSED_FOR: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Peeking {
    last: Statement,
    wait: Statement,
    /// For a pooler: one message, which is a transaction by itself.
    plain: String,
    /// When the role was last found not to be allowed to read the sequence.
    refused_at: Mutex<Option<Instant>>,
    identity: Identity,
}

impl Peeking {
    pub(super) fn new(shape: &Shape) -> Self {
        Self {
            last: Statement::new(LAST, shape),
            wait: Statement::new(WAIT, shape),
            plain: splice(LAST, &shape.prefix),
            refused_at: Mutex::new(None),
            identity: Identity::default(),
        }
    }

    pub(super) fn is_refused(&self) -> bool {
        let refused_at = *self.refused_at.lock().unwrap_or_else(PoisonError::into_inner);
        refused_at.is_some_and(|at| at.elapsed() < REFUSED_FOR)
    }

    fn note_refusal(&self, at: Option<Instant>) {
        *self.refused_at.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// Peeks on a connection that keeps statements prepared.
    pub(super) async fn direct(&self, conn: &mut PgConnection) -> sqlx::Result<Option<Peek>> {
        let before = self.identity.known();
        let read = self.last.query().fetch_one(conn).await.and_then(|row| row.try_get(0));
        self.peek(read, before, EVERY)
    }

    /// Peeks on such a connection, and lets the server wait. Not through a pooler, whose connections are for others too.
    pub(super) async fn waiting(
        &self,
        conn: &mut PgConnection,
        wait: PeekWait,
    ) -> sqlx::Result<Option<Peek>> {
        let before = self.identity.known();
        let rounds = wait.longest.as_micros() / wait.every.as_micros().max(1);
        let query = self.wait.query().bind(integer(wait.known)).bind(wait.every.as_secs_f64());
        let read = query.bind(small(rounds.max(1))).fetch_one(conn).await.and_then(|row| row.try_get(0));
        let peek = self.peek(read, before, EVERY)?;
        Ok(peek.map(|peek| Peek { waited: true, ..peek }))
    }

    /// Peeks through a pooler.
    pub(super) async fn pooled(&self, conn: &mut PgConnection) -> sqlx::Result<Option<Peek>> {
        let before = self.identity.known();
        // Safe because the template is a constant and a prefix is a plain identifier.
        let read = sqlx::raw_sql(AssertSqlSafe(self.plain.clone())).fetch_one(conn).await;
        self.peek(read.and_then(|row| row.try_get(0)), before, EVERY_POOLED)
    }

    /// What tells whether the sequence was set back: every peek does.
    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The database went back in time, which was told: what was known of the sequence says nothing any more.
    pub(super) fn forget(&self) {
        self.identity.forget();
        self.note_refusal(None);
    }

    fn peek(
        &self,
        read: sqlx::Result<i64>,
        before: Option<Seq>,
        every: Duration,
    ) -> sqlx::Result<Option<Peek>> {
        match read {
            Ok(last) => {
                self.identity.told(natural(last), before);
                Ok(Some(Peek { last: natural(last), every, waited: false }))
            }
            Err(error) if is_denied(&error) => {
                tracing::debug!(%error, "cannot read the sequence of the events: polling finds what nobody told of");
                self.note_refusal(Some(Instant::now()));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
