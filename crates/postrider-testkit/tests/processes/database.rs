//! A database of one run, on the server that the environment names, and what the test asks of it.

use std::{collections::BTreeSet, env, process, sync::Arc};

use postrider::{Store, mysql::MysqlStore, postgres::PgStore};
use postrider_testkit::conformance::Failure;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, MySqlPool, PgConnection, PgPool};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Postgres,
    Mysql,
}

impl Kind {
    fn server(self) -> Result<String, Failure> {
        let variable = match self {
            Self::Postgres => "POSTRIDER_TEST_POSTGRES_URL",
            Self::Mysql => "POSTRIDER_TEST_MYSQL_URL",
        };
        env::var(variable).map_err(|_| {
            format!(
                "{variable} names no server: run `cargo xtask services up` and `eval $(cargo xtask services env)`"
            )
            .into()
        })
    }
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

/// A database that goes away with its run.
pub(crate) struct Database {
    kind: Kind,
    name: String,
    pool: Pool,
    pub(crate) store: Arc<dyn Store>,
}

impl Database {
    pub(crate) async fn create(kind: Kind) -> Result<Self, Failure> {
        let name = format!("processes_{}", process::id());
        let _left_behind = drop_database(kind, &name).await;
        run(kind, format!("CREATE DATABASE {name}")).await?;
        let url = named(&kind.server()?, None, &name)?;
        let store = connect(&url).await?;
        let pool = match &store {
            AnyStore::Postgres(store) => Pool::Postgres(store.pool().clone()),
            AnyStore::Mysql(store) => Pool::Mysql(store.pool().clone()),
        };
        let store = store.shared();
        store.migrate().await?;
        Ok(Self { kind, name, pool, store })
    }

    /// The server's place, for a proxy.
    pub(crate) fn server(&self) -> Result<String, Failure> {
        Ok(parts(&self.kind.server()?)?.1.to_owned())
    }

    /// Its name, through whatever listens at this address.
    pub(crate) fn url(&self, address: &str) -> Result<String, Failure> {
        named(&self.kind.server()?, Some(address), &self.name)
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

    /// The server ends every session of this database, as it does when it restarts. Sessions of the test's own are among them,
    /// and may fail for a moment.
    pub(crate) async fn end_sessions(&self) -> Result<(), Failure> {
        end_sessions(self.kind, &self.name).await
    }

    fn as_number(&self, column: &str) -> String {
        match self.kind {
            Kind::Postgres => format!("CAST({column} AS bigint)"),
            Kind::Mysql => format!("CAST({column} AS SIGNED)"),
        }
    }
}

async fn end_sessions(kind: Kind, name: &str) -> Result<(), Failure> {
    match kind {
        Kind::Postgres => {
            let sql =
                format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
            run(kind, sql).await
        }
        Kind::Mysql => {
            let mut conn = MySqlConnection::connect(&kind.server()?).await?;
            let sessions = sqlx::query_scalar::<_, i64>(
                "SELECT CAST(id AS SIGNED) FROM information_schema.processlist WHERE db = ?",
            );
            for session in sessions.bind(name).fetch_all(&mut conn).await? {
                let _gone_already =
                    sqlx::raw_sql(AssertSqlSafe(format!("KILL {session}"))).execute(&mut conn).await;
            }
            Ok(conn.close().await?)
        }
    }
}

async fn run(kind: Kind, sql: String) -> Result<(), Failure> {
    let server = kind.server()?;
    match kind {
        Kind::Postgres => {
            let mut conn = PgConnection::connect(&server).await?;
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
            Ok(conn.close().await?)
        }
        Kind::Mysql => {
            let mut conn = MySqlConnection::connect(&server).await?;
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
            Ok(conn.close().await?)
        }
    }
}

async fn drop_database(kind: Kind, name: &str) -> Result<(), Failure> {
    end_sessions(kind, name).await?;
    run(kind, format!("DROP DATABASE IF EXISTS {name}")).await
}

impl Drop for Database {
    fn drop(&mut self) {
        let (kind, name) = (self.kind, self.name.clone());
        // The runtime of the run may be about to end, so this has one of its own.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(drop_database(kind, &name)).is_ok())
        });
        let _ = dropped.join();
    }
}

/// Scheme and user of a URL, and its place.
fn parts(url: &str) -> Result<(&str, &str), Failure> {
    let (scheme, rest) = url.split_once("://").ok_or("the URL has no scheme")?;
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    Ok((url.get(..scheme.len() + 3 + authority.len() - place.len()).unwrap_or_default(), place))
}

fn named(server: &str, address: Option<&str>, database: &str) -> Result<String, Failure> {
    let (before, place) = parts(server)?;
    Ok(format!("{before}{}/{database}", address.unwrap_or(place)))
}
