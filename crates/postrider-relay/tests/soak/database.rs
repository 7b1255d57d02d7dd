//! The database of a run, on a server that others may use too.

use std::str::FromStr;

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::Failure;

/// Connections of this program beside those of the writers.
const CONNECTIONS: u32 = 4;

#[derive(Debug)]
pub(crate) struct Database {
    server: PgConnectOptions,
    url: String,
    name: String,
    pub(crate) pool: PgPool,
}

impl Database {
    /// A new one, with Postrider's tables.
    pub(crate) async fn create(server: &str, name: &str) -> Result<Self, Failure> {
        let options = PgConnectOptions::from_str(server)?;
        let mut conn = options.connect().await?;
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut conn).await?;
        conn.close().await?;
        let url = format!("{}/{name}", server.rsplit_once('/').ok_or("a URL without a database")?.0);
        postrider::connect(&url).await?.store.migrate().await?;
        let ours = options.clone().database(name).application_name("soak-operator");
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect_with(ours).await?;
        Ok(Self { server: options, url, name: name.to_owned(), pool })
    }

    /// `host:port` of the server.
    pub(crate) fn address(&self) -> String {
        format!("{}:{}", self.server.get_host(), self.server.get_port())
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The URL for somebody who goes through a proxy and has a name.
    pub(crate) fn url_through(&self, address: &str, application: &str) -> String {
        format!("{}?application_name={application}", self.url.replace(&self.address(), address))
    }

    /// A connection straight to the server.
    pub(crate) async fn connect(&self, application: &str) -> Result<PgConnection, Failure> {
        Ok(self.server.clone().database(&self.name).application_name(application).connect().await?)
    }

    /// Ends sessions of this name: all of them, or about half.
    pub(crate) async fn terminate(&self, application: &str, all: bool) -> Result<i64, Failure> {
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name LIKE $1 AND ($2 OR random() < 0.5)";
        Ok(sqlx::query_scalar(sql).bind(application).bind(all).fetch_one(&self.pool).await?)
    }

    /// Rows as text, for people.
    pub(crate) async fn lines(&self, sql: &'static str) -> Result<Vec<String>, Failure> {
        Ok(sqlx::query_scalar(sql).fetch_all(&self.pool).await?)
    }

    pub(crate) async fn drop_it(&self) -> Result<(), Failure> {
        self.pool.close().await;
        let mut conn = self.server.connect().await?;
        sqlx::raw_sql(AssertSqlSafe(format!("DROP DATABASE {} WITH (FORCE)", self.name)))
            .execute(&mut conn)
            .await?;
        Ok(())
    }
}
