//! One verb's connection, in a transaction where it needs one, and what is set for it whatever the role or the database say.
//!
//! `default_transaction_read_only` is not set: anyone who freezes a database before a switch-over does it by that.

use std::{ops, time::Duration};

use sqlx::{AssertSqlSafe, Connection, Postgres};

use super::connect::{Plans, Settings};
use crate::{
    connections::{Conn, limits::Limits},
    shared_verbs::Ending,
};

/// How plans are to be made for our statements, whatever is known of the tables: by the order of an index, which is the order that is asked
/// for. An outbox is empty most of the time, so that is what the statistics say; a planner that believes them reads all rows of a lane and
/// sorts them, which is a second for the first claim of 50,000 events and grows with them. What cannot be done by an index then seems to
/// cost more than all else, until version 17, so that it would be compiled before it runs: half a second for each lease.
const ORDERED: [(&str, &str); 3] = [("enable_seqscan", "off"), ("enable_bitmapscan", "off"), ("jit", "off")];

/// A statement is planned once for all values. Left to itself the server takes a plan for each claim and for each small settle to be cheaper than
/// a kept one; making it takes as long as running it.
const ONCE: (&str, &str) = ("plan_cache_mode", "force_generic_plan");
/// Behind a pooler nothing is kept, so nothing is gained by a plan for all values.
const AUTO: (&str, &str) = ("plan_cache_mode", "auto");

/// What sessions begin with. At any other isolation a claim would park events by what was true before it had locked their lanes. Time zone, date
/// style and encoding are set by the driver.
const SESSION: [(&str, &str); 4] = [
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_deferrable", "off"),
    ("standard_conforming_strings", "on"),
    ("idle_session_timeout", "0"),
];

/// What every transaction of ours begins with.
pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Time limits for the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerLimits {
    statement: Duration,
    lock: Duration,
}

impl From<Limits> for ServerLimits {
    fn from(limits: Limits) -> Self {
        Self { statement: limits.statement(), lock: limits.lock() }
    }
}

impl ServerLimits {
    /// As they are, but for statements that take their time.
    pub(super) fn with_statements(self, statement: Duration) -> Self {
        Self { statement, ..self }
    }

    /// The same time for statements and for locks.
    pub(super) fn of(limit: Duration) -> Self {
        Self { statement: limit, lock: limit }
    }

    fn settings(self) -> [(&'static str, String); 3] {
        let millis = |limit: Duration| limit.as_millis().max(1).to_string();
        [
            ("statement_timeout", millis(self.statement)),
            ("lock_timeout", millis(self.lock)),
            ("idle_in_transaction_session_timeout", millis(self.statement)),
        ]
    }
}

/// What a session of ours begins with, for the packet that it is opened by.
pub(super) fn settings(limits: Limits, settings: &Settings) -> Vec<(&'static str, String)> {
    let kept = match settings.plans {
        Plans::TheServers => None,
        Plans::Ours => Some(ONCE),
    };
    let planner = kept.into_iter().flat_map(|kept| ORDERED.into_iter().chain([kept]));
    let fixed = SESSION.into_iter().chain(planner);
    let fixed = fixed.map(|(name, value)| (name, value.to_owned()));
    let limits = ServerLimits::from(limits);
    let limits = settings.statements.map_or(limits, |limit| limits.with_statements(limit));
    fixed.chain(limits.settings()).collect()
}

/// What a verb runs on. A verb that ends well says [`commit`](Session::commit); one that does not has changed nothing.
pub(super) struct Session {
    conn: Conn<Postgres>,
    whole: bool,
}

impl Session {
    /// Statements that stand for themselves.
    pub(super) fn plain(conn: Conn<Postgres>) -> Self {
        Self { conn, whole: false }
    }

    /// One transaction on a session that begins as [`settings`] say; with other limits if there are some.
    pub(super) async fn whole(conn: Conn<Postgres>, limits: Option<ServerLimits>) -> sqlx::Result<Self> {
        let limits = limits.into_iter().flat_map(ServerLimits::settings);
        Self::begin(conn, limits).await
    }

    /// One transaction on a session that a pooler has begun for somebody else.
    pub(super) async fn pooled(conn: Conn<Postgres>, limits: ServerLimits) -> sqlx::Result<Self> {
        let planner = ORDERED.into_iter().chain([AUTO]).map(|(name, value)| (name, value.to_owned()));
        Self::begin(conn, planner.chain(limits.settings())).await
    }

    async fn begin(
        mut conn: Conn<Postgres>,
        settings: impl Iterator<Item = (&'static str, String)>,
    ) -> sqlx::Result<Self> {
        // An open transaction ends with its connection, unless it is committed.
        conn.close_on_drop();
        let settings: String =
            settings.map(|(name, value)| format!("; SET LOCAL {name} = {value}")).collect();
        // Safe because nothing but constants and numbers go in.
        sqlx::raw_sql(AssertSqlSafe(format!("{BEGIN}{settings}"))).execute(&mut *conn).await?;
        Ok(Self { conn, whole: true })
    }

    /// Ends it well, and gives the connection back.
    pub(super) async fn commit(mut self) -> sqlx::Result<()> {
        if self.whole {
            sqlx::raw_sql("COMMIT").execute(&mut *self.conn).await?;
        }
        self.conn.give_back();
        Ok(())
    }

    /// Ends it without effect, and gives the connection back. A server tells of an error before it lets go of what it had locked: this waits until
    /// it has.
    pub(super) async fn roll_back(mut self) -> sqlx::Result<()> {
        if self.whole {
            sqlx::raw_sql("ROLLBACK").execute(&mut *self.conn).await?;
        } else {
            // Its statement was a transaction of its own, which has ended when the next one is answered.
            self.conn.ping().await?;
        }
        self.conn.give_back();
        Ok(())
    }
}

impl Ending for Session {
    async fn end(self) -> sqlx::Result<()> {
        self.commit().await
    }
}

impl ops::Deref for Session {
    type Target = sqlx::PgConnection;

    fn deref(&self) -> &sqlx::PgConnection {
        &self.conn
    }
}

impl ops::DerefMut for Session {
    fn deref_mut(&mut self) -> &mut sqlx::PgConnection {
        &mut self.conn
    }
}
