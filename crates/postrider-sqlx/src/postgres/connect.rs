//! From the name of a database to a pool of connections.

use std::{str::FromStr, time::Duration};

use postrider_core::{ConfigError, Result};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, PgConnection, PgPool, Postgres, Row,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use super::{
    error::{is_out_of_time, of_sqlx},
    session::{self, BEGIN},
};
use crate::connections::{
    Connections, is_alive,
    limits::{Limits, OPENING},
    opening,
    retry::retried,
};

/// What a database can be named by.
const KNOWN: &str = "postgres://user:password@host:port/database";

/// What a name stands for.
pub(crate) struct Named {
    pub(crate) options: PgConnectOptions,
    /// Whether a pooler stands before the server, where the name says it.
    pub(super) pooled: Option<bool>,
}

/// Reads a name. Its password appears in no message.
pub(crate) fn parse(url: &str) -> Result<Named> {
    let refused = |given: &str| ConfigError::Database { given: given.to_owned(), known: KNOWN };
    let (scheme, rest) = url.split_once("://").ok_or_else(|| refused("a name without a scheme"))?;
    if !matches!(scheme, "postgres" | "postgresql") {
        return Err(refused(scheme).into());
    }
    let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let mut pooled = None;
    let others: Vec<&str> = parameters
        .split('&')
        .filter(|parameter| match parameter.split_once('=') {
            Some(("pgbouncer", value)) => {
                pooled = Some(value == "true");
                false
            }
            _ => !parameter.is_empty(),
        })
        .collect();
    let url = format!("{scheme}://{place}?{}", others.join("&"));
    let options = PgConnectOptions::from_str(&url)
        .map_err(|error| of_sqlx(error, "the name of the PostgreSQL database cannot be read"))?;
    // No number of ours has a fraction, and PgBouncer refuses a client that asks for digits of them.
    let options = options.extra_float_digits(None).disable_statement_logging();
    Ok(Named { options, pooled })
}

/// The encoding that a database must have, and how to get one that has it.
pub(super) const ENCODING: &str = "UTF8";
pub(super) const ENCODING_NEEDED: &str = "UTF8: make a database with `CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0` and have the outbox there";

/// What every pool of ours is like.
pub(super) fn pool(connections: u32) -> PgPoolOptions {
    like(PgPoolOptions::new(), connections, Limits::default())
}

/// A pool as a program has configured it, but for so many connections of ours. What the program does to each new connection is done to these too.
fn like(options: PgPoolOptions, connections: u32, limits: Limits) -> PgPoolOptions {
    // Asking a connection before each use costs a round trip. One that was used a moment ago is trusted: a verb that fails is
    // tried again.
    options
        .max_connections(connections)
        .min_connections(0)
        .acquire_timeout(limits.statement())
        .test_before_acquire(false)
        .before_acquire(|conn, meta| Box::pin(async move { Ok(is_alive(conn, meta.idle_for).await) }))
}

/// How connections of our own are made.
#[derive(Clone)]
pub(crate) struct Opening {
    pub(crate) pool: PgPoolOptions,
    pub(crate) options: PgConnectOptions,
    /// How a session begins; none behind a pooler, which refuses a client that asks for settings.
    pub(crate) settings: Option<Settings>,
}

/// How a session of ours begins.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) plans: Plans,
    /// How long a statement may take, where that does not follow from the lease.
    pub(crate) statements: Option<Duration>,
}

/// How a session plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plans {
    /// As the server is set.
    TheServers,
    /// As the statements on our own tables want it: by the order of an index, and once for all values.
    Ours,
}

impl Opening {
    /// How a connection is opened that is to have the limits of no lease in particular.
    pub(super) fn session(&self) -> PgConnectOptions {
        self.options(Limits::default())
    }

    fn options(&self, limits: Limits) -> PgConnectOptions {
        let options = self.options.clone();
        match &self.settings {
            Some(settings) => options.options(session::settings(limits, settings)),
            None => options,
        }
    }

    /// Connections that are opened when they are needed.
    pub(crate) fn lazily(&self, connections: u32) -> Connections<Postgres> {
        let this = self.clone();
        Connections::new(move |limits| this.pool_of(connections, limits))
    }

    /// Connections of which the first is open, so that a wrong password is known at once.
    pub(crate) async fn at_once(&self, connections: u32) -> Result<Connections<Postgres>> {
        let (this, limits) = (self.clone(), Limits::default());
        let made = like(self.pool.clone(), connections, limits).connect_with(self.options(limits)).await;
        let made =
            made.map_err(|error| of_sqlx(error, format!("cannot connect to {}", place(&self.options))))?;
        Ok(Connections::on(made, move |limits| this.pool_of(connections, limits)))
    }

    fn pool_of(&self, connections: u32, limits: Limits) -> PgPool {
        like(self.pool.clone(), connections, limits).connect_lazy_with(self.options(limits))
    }
}

/// Where a database is, without its password.
pub(crate) fn place(options: &PgConnectOptions) -> String {
    let (user, port) = (options.get_username(), options.get_port());
    let host = options.get_socket().map_or(options.get_host().into(), |socket| socket.to_string_lossy());
    format!("postgres://{user}@{host}:{port}/{}", options.get_database().unwrap_or(user))
}

/// Whether a pooler hands each transaction to another connection of its own. Two connections that are open at the same time have
/// a server process each, unless somebody stands between who has one for both. A pooler that is busy may give them two; say so in
/// the name of the database then.
pub(super) async fn is_pooled(options: &PgConnectOptions) -> Result<bool> {
    let ask = |_until| async move {
        let (mut one, mut two) =
            (PgConnection::connect_with(options).await?, PgConnection::connect_with(options).await?);
        let same = process(&mut one).await? == process(&mut two).await?
            || process(&mut one).await? == process(&mut two).await?;
        let _ = (one.close().await, two.close().await);
        Ok(same)
    };
    // The role's own limit may end even the statement that sets another.
    let asked = opening(retried(OPENING, is_out_of_time, ask)).await;
    asked.map_err(|error| of_sqlx(error, format!("cannot connect to {}", place(options))))
}

/// Which process serves this connection. The limit is for this transaction alone: behind a pooler the session is somebody else's afterwards.
async fn process(conn: &mut PgConnection) -> sqlx::Result<i32> {
    let ask = format!(
        "{BEGIN}; SET LOCAL statement_timeout = {}; SELECT pg_backend_pid(); COMMIT",
        OPENING.as_millis()
    );
    // Safe because nothing but numbers go in.
    let rows = sqlx::raw_sql(AssertSqlSafe(ask)).fetch_all(conn).await?;
    rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_scheme_is_refused_with_what_can_be_given_and_without_the_password() {
        for url in ["", "shop.db", "mysql://u:secret@h/d", "sqlite://x"] {
            let error = parse(url).err().map(|error| format!("{error} {error:?}")).unwrap();
            assert!(error.contains("names no database that can be opened here: give postgres://"), "{error}");
            assert!(!error.contains("secret"));
        }
        let error = parse("postgres://u:secret@h:notaport/d")
            .err()
            .map(|error| format!("{error} {error:?}"))
            .unwrap();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn a_pooler_can_be_named_and_other_parameters_stay() {
        let named = parse("postgres://u:secret@h:1234/d?pgbouncer=true&application_name=x").unwrap();
        assert_eq!((named.pooled, named.options.get_application_name()), (Some(true), Some("x")));
        assert_eq!(place(&named.options), "postgres://u@h:1234/d");
        assert_eq!(parse("postgresql://h/d").unwrap().pooled, None);
    }
}
