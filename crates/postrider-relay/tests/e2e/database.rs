//! A database of its own for each test, and statements that run on either product.

use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, Row};

use crate::{place::fresh_name, server, time::until};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Postgres,
    Mysql,
}

/// A database that goes away with its test.
pub(crate) struct Database {
    pub(crate) kind: Kind,
    pub(crate) url: String,
    server: String,
    name: String,
    conn: tokio::sync::Mutex<Conn>,
}

enum Conn {
    Postgres(PgConnection),
    Mysql(MySqlConnection),
}

impl Conn {
    async fn open(kind: Kind, url: &str) -> Self {
        match kind {
            Kind::Postgres => Self::Postgres(PgConnection::connect(url).await.unwrap()),
            Kind::Mysql => Self::Mysql(MySqlConnection::connect(url).await.unwrap()),
        }
    }

    async fn run(&mut self, sql: &str) {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Postgres(conn) => _ = sqlx::raw_sql(sql).execute(conn).await.unwrap(),
            Self::Mysql(conn) => _ = sqlx::raw_sql(sql).execute(conn).await.unwrap(),
        }
    }
}

impl Database {
    /// An empty one.
    pub(crate) async fn new(kind: Kind) -> Self {
        let server = server::url(match kind {
            Kind::Postgres => "POSTRIDER_TEST_POSTGRES_URL",
            Kind::Mysql => "POSTRIDER_TEST_MYSQL_URL",
        });
        let name = fresh_name("e2e_");
        Conn::open(kind, &server).await.run(&format!("CREATE DATABASE {name}")).await;
        let url = format!("{}/{name}", server.rsplit_once('/').unwrap().0);
        let conn = Conn::open(kind, &url).await.into();
        Self { kind, url, server, name, conn }
    }

    /// One with Postrider's own tables.
    pub(crate) async fn native(kind: Kind) -> Self {
        let database = Self::new(kind).await;
        let found = postrider::connect(&database.url).await.unwrap();
        found.store.migrate().await.unwrap();
        database
    }

    pub(crate) async fn run(&self, sql: &str) {
        self.conn.lock().await.run(sql).await;
    }

    /// Rows as `a|b|c`, null as nothing.
    pub(crate) async fn lines(&self, sql: &str) -> Vec<String> {
        macro_rules! lines {
            ($conn:expr) => {{
                let rows = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_all($conn).await.unwrap();
                let line = rows.iter().map(|row| {
                    let text = |n| row.try_get_unchecked::<Option<String>, _>(n).unwrap().unwrap_or_default();
                    (0..row.len()).map(text).collect::<Vec<_>>().join("|")
                });
                line.collect()
            }};
        }
        match &mut *self.conn.lock().await {
            Conn::Postgres(conn) => lines!(conn),
            Conn::Mysql(conn) => lines!(conn),
        }
    }

    /// Waits until a statement gives these lines.
    pub(crate) async fn until(&self, sql: &str, expected: &[&str]) {
        let what = format!("{:?}: {sql} gives {expected:?}", self.kind);
        until(&what, async || self.lines(sql).await == expected).await;
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (kind, server, name) = (self.kind, self.server.clone(), self.name.clone());
        let force = if kind == Kind::Postgres { " WITH (FORCE)" } else { "" };
        // From a thread of its own: the test's runtime is about to end.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                Conn::open(kind, &server).await.run(&format!("DROP DATABASE {name}{force}")).await;
            });
        });
        _ = dropping.join();
    }
}
