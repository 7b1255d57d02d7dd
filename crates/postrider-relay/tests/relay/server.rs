//! A schema of a test's own on a real server.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, Row};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Postgres,
    Mysql,
}

pub(crate) const BOTH: [Kind; 2] = [Kind::Postgres, Kind::Mysql];

/// A schema that is dropped with [`Database::drop`]; one that a failed test left behind hurts nobody.
pub(crate) struct Database {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) url: String,
    conn: Conn,
}

enum Conn {
    Postgres(PgConnection),
    Mysql(MySqlConnection),
}

impl Database {
    pub(crate) async fn new(kind: Kind) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let variable = match kind {
            Kind::Postgres => "POSTRIDER_TEST_POSTGRES_URL",
            Kind::Mysql => "POSTRIDER_TEST_MYSQL_URL",
        };
        let server = std::env::var(variable).unwrap_or_else(|_| {
            panic!("{variable} names no server: run `cargo xtask services up` and `eval $(cargo xtask services env)`")
        });
        let name = format!("relay_{}_{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let conn = match kind {
            Kind::Postgres => Conn::Postgres(PgConnection::connect(&server).await.unwrap()),
            Kind::Mysql => Conn::Mysql(MySqlConnection::connect(&server).await.unwrap()),
        };
        let mut database = Self { kind, url: String::new(), name, conn };
        database.url = database.url_of(None);
        database.run(&format!("CREATE SCHEMA {}", database.name)).await;
        let enter = match kind {
            Kind::Postgres => format!("SET search_path = {}", database.name),
            Kind::Mysql => format!("USE {}", database.name),
        };
        database.run(&enter).await;
        database
    }

    /// The URL of the schema, for the user that the server was started with or for another one, as `user:password`.
    pub(crate) fn url_of(&self, user: Option<&str>) -> String {
        let variable = match self.kind {
            Kind::Postgres => "POSTRIDER_TEST_POSTGRES_URL",
            Kind::Mysql => "POSTRIDER_TEST_MYSQL_URL",
        };
        let server = std::env::var(variable).unwrap();
        let (base, _) = server.split_once('?').unwrap_or((&server, ""));
        let (scheme, rest) = base.split_once("://").unwrap();
        let (own, place) = rest.rsplit_once('@').unwrap();
        let (host, database) = place.split_once('/').unwrap();
        let user = user.unwrap_or(own);
        match self.kind {
            Kind::Postgres => {
                format!("{scheme}://{user}@{host}/{database}?options=-csearch_path%3D{}", self.name)
            }
            Kind::Mysql => format!("{scheme}://{user}@{host}/{}", self.name),
        }
    }

    pub(crate) async fn run(&mut self, sql: &str) {
        let text = AssertSqlSafe(sql.to_owned());
        let done = match &mut self.conn {
            Conn::Postgres(conn) => sqlx::raw_sql(text).execute(conn).await.map(|_| ()),
            Conn::Mysql(conn) => sqlx::raw_sql(text).execute(conn).await.map(|_| ()),
        };
        done.unwrap_or_else(|error| panic!("{error}: {sql}"));
    }

    /// The first column of the first row, as text.
    pub(crate) async fn one(&mut self, sql: &str) -> String {
        let text = AssertSqlSafe(sql.to_owned());
        match &mut self.conn {
            Conn::Postgres(conn) => {
                sqlx::raw_sql(text).fetch_one(conn).await.unwrap().try_get_unchecked(0).unwrap()
            }
            Conn::Mysql(conn) => {
                sqlx::raw_sql(text).fetch_one(conn).await.unwrap().try_get_unchecked(0).unwrap()
            }
        }
    }

    /// Somebody with the password `sesame` who may do nothing yet.
    pub(crate) async fn user(&mut self, name: &str) {
        let schema = self.name.clone();
        match self.kind {
            Kind::Postgres => {
                self.run(&format!(
                    "CREATE ROLE {name} LOGIN PASSWORD 'sesame'; GRANT USAGE ON SCHEMA {schema} TO {name}"
                ))
                .await;
            }
            // Under both names of the host: a server may have an anonymous user for one of them, which would come first.
            Kind::Mysql => {
                let password = "IDENTIFIED BY 'sesame'";
                self.run(&format!("CREATE USER '{name}'@'%' {password}, '{name}'@'localhost' {password}"))
                    .await;
            }
        }
    }

    /// Drops the schema and these users.
    pub(crate) async fn drop(mut self, users: &[&str]) {
        let name = self.name.clone();
        match self.kind {
            Kind::Postgres => self.run(&format!("DROP SCHEMA {name} CASCADE")).await,
            Kind::Mysql => self.run(&format!("DROP SCHEMA {name}")).await,
        }
        for user in users {
            match self.kind {
                Kind::Postgres => self.run(&format!("DROP OWNED BY {user}; DROP ROLE {user}")).await,
                Kind::Mysql => self.run(&format!("DROP USER '{user}'@'%', '{user}'@'localhost'")).await,
            }
        }
    }
}
