//! A database for one test, on the server that the environment names.

use std::{
    env,
    path::PathBuf,
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use postrider::{Store, mysql::MysqlStore, postgres::PgStore};
use postrider_testkit::conformance::Failure;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Postgres,
    Mysql,
}

/// The password of the users that tests add.
const USER_PASSWORD: &str = "sesame";

/// A database that goes away with its test.
pub(crate) struct Database {
    pub(crate) kind: Kind,
    server: String,
    name: String,
}

impl Database {
    pub(crate) async fn new(kind: Kind) -> Result<Self, Failure> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let variable = match kind {
            Kind::Postgres => "POSTRIDER_TEST_POSTGRES_URL",
            Kind::Mysql => "POSTRIDER_TEST_MYSQL_URL",
        };
        let server = env::var(variable).map_err(|_| {
            format!("{variable} names no server: run `cargo xtask services up` and `eval $(cargo xtask services env)`")
        })?;
        let name = format!("servers_{}_{}", process::id(), NUMBERS.fetch_add(1, Relaxed));
        run(kind, &server, format!("CREATE DATABASE {name}")).await?;
        Ok(Self { kind, server, name })
    }

    /// Where the server is, for a proxy.
    pub(crate) fn address(&self) -> Result<&str, Failure> {
        let (_, rest) = self.server.rsplit_once('@').ok_or("the URL names no user")?;
        Ok(rest.split(['/', '?']).next().unwrap_or(rest))
    }

    pub(crate) fn password(&self) -> Result<&str, Failure> {
        let (before, _) = self.server.rsplit_once('@').ok_or("the URL names no user")?;
        Ok(before.rsplit_once(':').ok_or("the URL has no password")?.1)
    }

    /// Its URL through whatever listens at this address.
    pub(crate) fn url_by(&self, address: &str) -> Result<String, Failure> {
        let (before, _) = self.server.rsplit_once('@').ok_or("the URL names no user")?;
        Ok(format!("{before}@{address}/{}", self.name))
    }

    pub(crate) fn url(&self) -> Result<String, Failure> {
        self.url_by(self.address()?)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its URL for a user of [`add_user`](Self::add_user).
    pub(crate) fn url_as(&self, user: &str) -> Result<String, Failure> {
        let (scheme, _) = self.server.split_once("://").ok_or("the URL has no scheme")?;
        Ok(format!("{scheme}://{user}:{USER_PASSWORD}@{}/{}", self.address()?, self.name))
    }

    /// A user who may connect and nothing else.
    pub(crate) async fn add_user(&self, user: &str) -> Result<(), Failure> {
        let sql = match self.kind {
            Kind::Postgres => format!(
                "CREATE ROLE {user} LOGIN PASSWORD '{USER_PASSWORD}'; GRANT USAGE ON SCHEMA public TO {user}"
            ),
            // Under both names of the host: a server may have an anonymous user for one of them, which would come first.
            Kind::Mysql => format!(
                "CREATE USER '{user}'@'%' IDENTIFIED BY '{USER_PASSWORD}', \
                 '{user}'@'localhost' IDENTIFIED BY '{USER_PASSWORD}'"
            ),
        };
        self.run(&sql).await
    }

    pub(crate) async fn drop_user(&self, user: &str) -> Result<(), Failure> {
        let sql = match self.kind {
            Kind::Postgres => format!("DROP OWNED BY {user}; DROP ROLE {user}"),
            Kind::Mysql => format!("DROP USER '{user}'@'%', '{user}'@'localhost'"),
        };
        self.run(&sql).await
    }

    pub(crate) async fn run(&self, sql: &str) -> Result<(), Failure> {
        run(self.kind, &self.url()?, sql.to_owned()).await
    }
}

/// A store on a pool that has opened nothing yet.
pub(crate) fn lazy_store(kind: Kind, url: &str) -> Result<Arc<dyn Store>, Failure> {
    Ok(match kind {
        Kind::Postgres => Arc::new(PgStore::new(sqlx::PgPool::connect_lazy(url)?)?),
        Kind::Mysql => Arc::new(MysqlStore::new(sqlx::MySqlPool::connect_lazy(url)?)),
    })
}

async fn run(kind: Kind, url: &str, sql: String) -> Result<(), Failure> {
    match kind {
        Kind::Postgres => {
            let mut conn = PgConnection::connect(url).await?;
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
            Ok(conn.close().await?)
        }
        Kind::Mysql => {
            let mut conn = MySqlConnection::connect(url).await?;
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
            Ok(conn.close().await?)
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (kind, server, name) = (self.kind, self.server.clone(), self.name.clone());
        let force = if kind == Kind::Postgres { " WITH (FORCE)" } else { "" };
        // The runtime of the test is about to end, so this has one of its own.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(run(kind, &server, format!("DROP DATABASE {name}{force}"))).is_ok()
        });
        let _ = dropped.join();
    }
}

/// A folder of its own with a file in it, both of which go away with the test.
pub(crate) struct TempFile {
    folder: PathBuf,
    name: &'static str,
}

impl TempFile {
    pub(crate) fn new(name: &'static str) -> Result<Self, Failure> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Relaxed);
        let folder = env::temp_dir().join(format!("postrider_servers_{}_{number}", process::id()));
        std::fs::create_dir(&folder)?;
        Ok(Self { folder, name })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(self.name)
    }

    /// Another file in the same folder.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
