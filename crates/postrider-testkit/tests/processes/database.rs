//! The database of one run, on a server of its own, and what the test asks of it.

use std::{collections::BTreeSet, sync::Arc};

use postrider::{Store, mysql::MysqlStore, postgres::PgStore};
use postrider_testkit::conformance::Failure;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, MySqlPool, PgConnection, PgPool};

use crate::server::{End, Server};

const NAME: &str = "processes";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Postgres,
    Mysql,
}

/// A store of either kind.
#[derive(Debug, Clone)]
pub(crate) enum AnyStore {
    Postgres(PgStore),
    Mysql(MysqlStore),
}

impl AnyStore {
    pub(crate) fn shared(self) -> Arc<dyn Store> {
        match self {
            Self::Postgres(store) => Arc::new(store),
            Self::Mysql(store) => Arc::new(store),
        }
    }
}

pub(crate) async fn connect(url: &str) -> Result<AnyStore, Failure> {
    Ok(if url.starts_with("postgres") {
        AnyStore::Postgres(PgStore::builder().connections(6).connect(url).await?)
    } else {
        AnyStore::Mysql(MysqlStore::connect(url).await?)
    })
}

/// A key that waits: lane, the `seq` of its head, and why.
pub(crate) type Held = (i64, i64, String);

#[derive(Debug, Clone)]
enum Pool {
    Postgres(PgPool),
    Mysql(MySqlPool),
}

/// Runs a query that is written the same for both, and gives its rows. It has no parameters; names in it are our own.
macro_rules! rows {
    ($database:expr, $type:ty, $sql:expr) => {{
        let sql: String = $sql.into();
        match &$database.pool {
            Pool::Postgres(pool) => {
                sqlx::query_as::<_, $type>(AssertSqlSafe(sql)).fetch_all(pool).await.map_err(Failure::from)
            }
            Pool::Mysql(pool) => {
                sqlx::query_as::<_, $type>(AssertSqlSafe(sql)).fetch_all(pool).await.map_err(Failure::from)
            }
        }
    }};
}

/// A database that goes away with its server.
pub(crate) struct Database {
    kind: Kind,
    server: Server,
    pool: Pool,
    pub(crate) store: Arc<dyn Store>,
}

impl Database {
    pub(crate) async fn create(kind: Kind) -> Result<Self, Failure> {
        let server = Server::borrow(match kind {
            Kind::Postgres => "postgres",
            Kind::Mysql => "mariadb",
        })?;
        run(kind, &server.url, format!("CREATE DATABASE {NAME}")).await?;
        let store = connect(&named(&server.url, None)?).await?;
        let pool = match &store {
            AnyStore::Postgres(store) => Pool::Postgres(store.pool().clone()),
            AnyStore::Mysql(store) => Pool::Mysql(store.pool().clone()),
        };
        let store = store.shared();
        store.migrate().await?;
        Ok(Self { kind, server, pool, store })
    }

    /// Where the server is, for a proxy.
    pub(crate) fn address(&self) -> Result<String, Failure> {
        Ok(parts(&self.server.url)?.1.to_owned())
    }

    /// Its URL through whatever listens at this address.
    pub(crate) fn url(&self, address: &str) -> Result<String, Failure> {
        named(&self.server.url, Some(address))
    }

    /// How many lanes an instance holds, as the database sees it.
    pub(crate) async fn lanes_of(&self, instance: &str) -> Result<BTreeSet<i64>, Failure> {
        let lane = self.as_number("lane");
        let sql = format!("SELECT {lane} FROM postrider_lane WHERE owner = '{instance}'");
        Ok(rows!(self, (i64,), sql)?.into_iter().map(|(lane,)| lane).collect())
    }

    /// Held keys, whatever they wait for.
    pub(crate) async fn held(&self) -> Result<BTreeSet<Held>, Failure> {
        let (lane, seq) = (self.as_number("lane"), self.as_number("seq"));
        let rows = rows!(self, Held, format!("SELECT {lane}, {seq}, reason FROM postrider_hold"))?;
        Ok(rows.into_iter().collect())
    }

    /// Whether an event's delivery is committed.
    pub(crate) async fn is_done(&self, seq: u64) -> Result<bool, Failure> {
        let sql = format!("SELECT {} FROM postrider_done WHERE seq = {seq}", self.as_number("seq"));
        Ok(!rows!(self, (i64,), sql)?.is_empty())
    }

    /// The ids of everything whose delivery is committed.
    pub(crate) async fn done(&self) -> Result<BTreeSet<String>, Failure> {
        Ok(rows!(self, (String,), "SELECT event_id FROM postrider_done")?
            .into_iter()
            .map(|(id,)| id)
            .collect())
    }

    /// Ends the server and starts it again.
    pub(crate) fn restart(&mut self, end: End) -> Result<(), Failure> {
        self.server.restart(end)
    }

    /// The server ends every session of this database. Sessions of the test's own are among them, and may fail for a moment.
    pub(crate) async fn end_sessions(&self) -> Result<(), Failure> {
        match self.kind {
            Kind::Postgres => {
                let sql = format!(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{NAME}'"
                );
                run(self.kind, &self.server.url, sql).await
            }
            Kind::Mysql => {
                let mut conn = MySqlConnection::connect(&self.server.url).await?;
                let sessions = sqlx::query_scalar::<_, i64>(
                    "SELECT CAST(id AS SIGNED) FROM information_schema.processlist WHERE db = ?",
                );
                for session in sessions.bind(NAME).fetch_all(&mut conn).await? {
                    let _gone_already =
                        sqlx::raw_sql(AssertSqlSafe(format!("KILL {session}"))).execute(&mut conn).await;
                }
                Ok(conn.close().await?)
            }
        }
    }

    fn as_number(&self, column: &str) -> String {
        match self.kind {
            Kind::Postgres => format!("CAST({column} AS bigint)"),
            Kind::Mysql => format!("CAST({column} AS SIGNED)"),
        }
    }
}

async fn run(kind: Kind, server: &str, sql: String) -> Result<(), Failure> {
    match kind {
        Kind::Postgres => {
            let mut conn = PgConnection::connect(server).await?;
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
            Ok(conn.close().await?)
        }
        Kind::Mysql => {
            let mut conn = MySqlConnection::connect(server).await?;
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
            Ok(conn.close().await?)
        }
    }
}

/// Scheme and user of a URL, and its place.
fn parts(url: &str) -> Result<(&str, &str), Failure> {
    let (scheme, rest) = url.split_once("://").ok_or("the URL has no scheme")?;
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    Ok((url.get(..scheme.len() + 3 + authority.len() - place.len()).unwrap_or_default(), place))
}

fn named(server: &str, address: Option<&str>) -> Result<String, Failure> {
    let (before, place) = parts(server)?;
    Ok(format!("{before}{}/{NAME}", address.unwrap_or(place)))
}
