//! Running statements, whichever of the databases it is. All that comes back was turned into text or bytes by the statement.

use std::{future::Future, time::Duration};

use postrider_core::{Error, Result};
#[cfg(feature = "mysql")]
use sqlx::MySql;
#[cfg(feature = "postgres")]
use sqlx::Postgres;
use sqlx::{AssertSqlSafe, Row as _};
use tokio::time::Instant;

use super::sql::{Arg, Kind, Sql};
use crate::connections::{
    Conn, Connections, Task,
    limits::{Limits, MIGRATION, OPERATOR},
    retry::Tries,
};

/// What a transaction is for. Settles and renewals have connections of their own: a program that uses up the others costs no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Verb,
    Settling,
    Keeping,
    Operating,
    Migration,
}

impl Use {
    /// How many connections there are for it at most.
    const fn connections(self) -> u32 {
        match self {
            Self::Verb | Self::Operating | Self::Migration => 2,
            Self::Settling | Self::Keeping => 1,
        }
    }
}

/// Connections, whichever of the databases it is.
enum Pools {
    #[cfg(feature = "postgres")]
    Postgres(Connections<Postgres>),
    #[cfg(feature = "mysql")]
    Mysql(Connections<MySql>),
}

/// The same to be done with either of them.
macro_rules! either {
    ($pools:expr, $connections:ident => $what:expr) => {
        match $pools {
            #[cfg(feature = "postgres")]
            Pools::Postgres($connections) => $what,
            #[cfg(feature = "mysql")]
            Pools::Mysql($connections) => $what,
        }
    };
}

/// The connections to a database.
pub(super) struct Db {
    kind: Kind,
    verbs: Pools,
    settling: Pools,
    keeping: Pools,
    operating: Pools,
}

/// A transaction. One that is not committed ends with its connection.
pub(super) enum Tx {
    #[cfg(feature = "postgres")]
    Postgres(Conn<Postgres>),
    #[cfg(feature = "mysql")]
    Mysql(Conn<MySql>),
}

/// A row, each column as text or bytes.
#[derive(Debug)]
pub(super) struct Cells(Vec<Option<Vec<u8>>>);

impl Cells {
    pub(super) fn bytes(&mut self, column: usize) -> Option<Vec<u8>> {
        self.0.get_mut(column).and_then(Option::take)
    }

    /// Text, cleaned of what is not UTF-8: such a row is judged by its length and its payload, not by this.
    pub(super) fn text(&self, column: usize) -> Option<String> {
        let bytes = self.0.get(column)?.as_deref()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    /// A number; none if it is null or is not one.
    pub(super) fn number(&self, column: usize) -> Option<i64> {
        self.text(column)?.parse().ok()
    }
}

impl Db {
    /// Opens the database that a URL names, and a place for messages.
    pub(super) async fn open(url: &str) -> Result<(Self, String)> {
        match Kind::of(url)? {
            #[cfg(feature = "mysql")]
            Kind::Mysql => {
                use crate::mysql::connect::{operators, parse, place, verbs};
                let options = parse(url)?;
                let of = |of: Use| Pools::Mysql(verbs(&options, of.connections()));
                let db = Self {
                    kind: Kind::Mysql,
                    verbs: of(Use::Verb),
                    settling: of(Use::Settling),
                    keeping: of(Use::Keeping),
                    operating: Pools::Mysql(operators(&options, Use::Operating.connections())),
                };
                Ok((db, place(&options)))
            }
            #[cfg(feature = "postgres")]
            Kind::Postgres => {
                use crate::postgres::connect::{Opening, Plans, Settings, parse, place};
                let options = parse(url)?.options;
                let opening = |statements| Opening {
                    pool: sqlx::postgres::PgPoolOptions::new(),
                    options: options.clone(),
                    settings: Some(Settings { plans: Plans::TheServers, statements }),
                };
                let (verbs, operating) = (opening(None), opening(Some(OPERATOR)));
                let of = |of: Use| Pools::Postgres(verbs.lazily(of.connections()));
                let db = Self {
                    kind: Kind::Postgres,
                    verbs: of(Use::Verb),
                    settling: of(Use::Settling),
                    keeping: of(Use::Keeping),
                    operating: Pools::Postgres(operating.at_once(Use::Operating.connections()).await?),
                };
                Ok((db, place(&options)))
            }
        }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    fn all(&self) -> [&Pools; 4] {
        [&self.verbs, &self.settling, &self.keeping, &self.operating]
    }

    fn of(&self, of: Use) -> &Pools {
        match of {
            Use::Verb => &self.verbs,
            Use::Settling => &self.settling,
            Use::Keeping => &self.keeping,
            Use::Operating | Use::Migration => &self.operating,
        }
    }

    pub(super) fn limits(&self) -> Limits {
        either!(&self.verbs, connections => connections.limits())
    }

    /// From now on verbs have the limits of this lease.
    pub(super) fn set_lease(&self, lease: Duration) {
        for pools in self.all() {
            either!(pools, connections => connections.set_limits(Limits::of_lease(lease)));
        }
    }

    /// As many tries as there is time for.
    pub(super) fn tries(&self, of: Use) -> Tries {
        Tries::within(match of {
            Use::Verb | Use::Settling | Use::Keeping => self.limits().verb(),
            Use::Operating => OPERATOR,
            Use::Migration => MIGRATION,
        })
    }

    /// Runs one try until `until` at the latest.
    pub(super) async fn in_time<T>(
        &self,
        of: Use,
        until: Instant,
        trying: impl Future<Output = sqlx::Result<T>>,
    ) -> sqlx::Result<T> {
        either!(self.of(of), connections => connections.in_time(until, trying).await)
    }

    pub(super) async fn begin(&self, of: Use) -> sqlx::Result<Tx> {
        Ok(match self.of(of) {
            #[cfg(feature = "postgres")]
            Pools::Postgres(connections) => {
                let mut conn = connections.acquire(Task::Seldom).await?;
                sqlx::raw_sql(crate::postgres::BEGIN).execute(&mut *conn).await?;
                Tx::Postgres(conn)
            }
            #[cfg(feature = "mysql")]
            Pools::Mysql(connections) => {
                let mut conn = connections.acquire(Task::Seldom).await?;
                sqlx::raw_sql("START TRANSACTION").execute(&mut *conn).await?;
                Tx::Mysql(conn)
            }
        })
    }

    pub(super) async fn close(&self) {
        for pools in self.all() {
            either!(pools, connections => connections.close().await);
        }
    }

    pub(super) fn may_pass(&self, error: &sqlx::Error) -> bool {
        match self.kind {
            #[cfg(feature = "postgres")]
            Kind::Postgres => crate::postgres::error::may_pass(error),
            #[cfg(feature = "mysql")]
            Kind::Mysql => crate::mysql::error::may_pass(error),
        }
    }

    /// Whether it is a right that is missing.
    pub(super) fn is_denied(&self, error: &sqlx::Error) -> bool {
        match self.kind {
            #[cfg(feature = "postgres")]
            Kind::Postgres => crate::postgres::error::is_denied(error),
            #[cfg(feature = "mysql")]
            Kind::Mysql => crate::mysql::error::is_denied(error),
        }
    }

    /// Whether it is a table that is missing.
    pub(super) fn is_missing_table(&self, error: &sqlx::Error) -> bool {
        match self.kind {
            #[cfg(feature = "postgres")]
            Kind::Postgres => crate::postgres::error::is_no_match(error),
            #[cfg(feature = "mysql")]
            Kind::Mysql => crate::mysql::error::is_missing_table(error),
        }
    }

    pub(super) fn error(&self, error: sqlx::Error, what: String) -> Error {
        match self.kind {
            #[cfg(feature = "postgres")]
            Kind::Postgres => crate::postgres::error::of_sqlx(error, what),
            #[cfg(feature = "mysql")]
            Kind::Mysql => crate::mysql::error::of_sqlx(error, what),
        }
    }
}

/// The statement with its values bound. Safe because a [`Sql`] takes up nothing but checked names.
macro_rules! query {
    ($sql:expr, $list:ident => $bind_list:expr) => {{
        let mut query = sqlx::query(AssertSqlSafe($sql.text));
        for arg in $sql.args {
            query = match arg {
                Arg::Text(text) => query.bind(text),
                Arg::Number(number) => query.bind(number),
                Arg::List($list) => query.bind($bind_list),
            };
        }
        query
    }};
}

/// The columns of a row as bytes.
macro_rules! cells {
    ($rows:expr) => {
        $rows
            .iter()
            .map(|row| {
                (0..row.len()).map(|column| row.try_get_unchecked(column)).collect::<sqlx::Result<_>>()
            })
            .map(|cells| cells.map(Cells))
            .collect()
    };
}

impl Tx {
    pub(super) async fn fetch(&mut self, sql: Sql) -> sqlx::Result<Vec<Cells>> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(tx) => cells!(query!(sql, list => list).fetch_all(&mut **tx).await?),
            #[cfg(feature = "mysql")]
            Self::Mysql(tx) => {
                // Prepared once: one that is closed again is answered by nothing, and what follows it waits for the network's delayed
                // acknowledgement, 40 ms.
                let query = query!(sql, list => list.join(","));
                cells!(query.fetch_all(&mut **tx).await?)
            }
        }
    }

    /// Says how many rows there were.
    pub(super) async fn execute(&mut self, sql: Sql) -> sqlx::Result<u64> {
        Ok(match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(tx) => query!(sql, list => list).execute(&mut **tx).await?.rows_affected(),
            #[cfg(feature = "mysql")]
            Self::Mysql(tx) => {
                let query = query!(sql, list => list.join(","));
                query.execute(&mut **tx).await?.rows_affected()
            }
        })
    }

    pub(super) async fn rollback(self) -> sqlx::Result<()> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(mut conn) => {
                sqlx::raw_sql("ROLLBACK").execute(&mut *conn).await?;
                conn.give_back();
            }
            #[cfg(feature = "mysql")]
            Self::Mysql(mut conn) => {
                sqlx::raw_sql("ROLLBACK").execute(&mut *conn).await?;
                conn.give_back();
            }
        }
        Ok(())
    }

    pub(super) async fn commit(self) -> sqlx::Result<()> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(mut conn) => {
                sqlx::raw_sql("COMMIT").execute(&mut *conn).await?;
                conn.give_back();
            }
            #[cfg(feature = "mysql")]
            Self::Mysql(mut conn) => {
                sqlx::raw_sql("COMMIT").execute(&mut *conn).await?;
                conn.give_back();
            }
        }
        Ok(())
    }
}
