//! Running statements, whichever of the databases it is. All that comes back was turned into text or bytes by the statement.

use postrider_core::{Error, Result};
use sqlx::{AssertSqlSafe, Row as _, Transaction};
#[cfg(feature = "mysql")]
use sqlx::{MySql, MySqlPool};
#[cfg(feature = "postgres")]
use sqlx::{PgPool, Postgres};

use super::sql::{Arg, Kind, Sql};

/// How many connections the verbs have at most.
#[cfg(feature = "postgres")]
const CONNECTIONS: u32 = 4;

/// A pool of connections.
#[derive(Debug, Clone)]
pub(super) enum Db {
    #[cfg(feature = "postgres")]
    Postgres(PgPool),
    #[cfg(feature = "mysql")]
    Mysql(MySqlPool),
}

/// A transaction.
pub(super) enum Tx {
    #[cfg(feature = "postgres")]
    Postgres(Transaction<'static, Postgres>),
    #[cfg(feature = "mysql")]
    Mysql(Transaction<'static, MySql>),
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
                let options = crate::mysql::connect::parse(url)?;
                let place = crate::mysql::connect::place(&options);
                Ok((Self::Mysql(crate::mysql::connect::verbs(&options)), place))
            }
            #[cfg(feature = "postgres")]
            Kind::Postgres => {
                let options = crate::postgres::connect::parse(url)?.options.options([("timezone", "UTC")]);
                let place = crate::postgres::connect::place(&options);
                Ok((Self::Postgres(crate::postgres::connect::connect(options, CONNECTIONS).await?), place))
            }
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Kind::Postgres,
            #[cfg(feature = "mysql")]
            Self::Mysql(_) => Kind::Mysql,
        }
    }

    pub(super) async fn begin(&self) -> sqlx::Result<Tx> {
        Ok(match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => Tx::Postgres(pool.begin().await?),
            #[cfg(feature = "mysql")]
            Self::Mysql(pool) => Tx::Mysql(pool.begin().await?),
        })
    }

    pub(super) async fn close(&self) {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => pool.close().await,
            #[cfg(feature = "mysql")]
            Self::Mysql(pool) => pool.close().await,
        }
    }

    pub(super) fn is_transient(&self, error: &sqlx::Error) -> bool {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => crate::postgres::error::is_transient(error),
            #[cfg(feature = "mysql")]
            Self::Mysql(_) => crate::mysql::error::is_transient(error),
        }
    }

    pub(super) fn error(&self, error: sqlx::Error, what: String) -> Error {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => crate::postgres::error::of_sqlx(error, what),
            #[cfg(feature = "mysql")]
            Self::Mysql(_) => crate::mysql::error::of_sqlx(error, what),
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
                // Lists of any length would fill the cache of statements.
                let query = query!(sql, list => list.join(",")).persistent(false);
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
                let query = query!(sql, list => list.join(",")).persistent(false);
                query.execute(&mut **tx).await?.rows_affected()
            }
        })
    }

    pub(super) async fn rollback(self) -> sqlx::Result<()> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(tx) => tx.rollback().await,
            #[cfg(feature = "mysql")]
            Self::Mysql(tx) => tx.rollback().await,
        }
    }

    pub(super) async fn commit(self) -> sqlx::Result<()> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(tx) => tx.commit().await,
            #[cfg(feature = "mysql")]
            Self::Mysql(tx) => tx.commit().await,
        }
    }
}
