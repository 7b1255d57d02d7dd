//! From the name of a database to a pool of connections.

use std::{str::FromStr, time::Duration};

use postrider_core::{ConfigError, Result, StoreError, StoreErrorKind};
use sqlx::{
    ConnectOptions, Connection, Executor, MySqlConnection, MySqlPool,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
};

use super::{
    error::of_sqlx,
    patience::{VERB_TRIES, patiently},
};

/// Most connections that the verbs use: at most one claim, one settle, one renewal and one purge of an outbox run at a time,
/// and operators look in between.
const VERB_CONNECTIONS_MAX: u32 = 6;

/// How long a verb waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection of the verbs that was idle for as long as this is asked whether it still is one before it is used.
const IDLE_IS_DOUBTFUL: Duration = Duration::from_secs(1);

/// What the sessions of the verbs are set to. With gap locks, which REPEATABLE READ takes, claims and settles would wait for
/// inserts. A lock is waited for five seconds, a third of the default lease: a settle that waits longer may have lost its lane.
///
/// A verb locks lanes over several statements. If its process is stopped between two of them, or its network is, the server ends the
/// session after two seconds and frees the lanes: otherwise nobody could take them over for as long as the connection seems to be
/// there. MariaDB has a limit for idle transactions. MySQL has one only for idle sessions, so there the pool has to look before it
/// uses one. Each of the two comments is read by one of them only.
const SESSION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
     SET SESSION innodb_lock_wait_timeout = 5 /*M!100300 , SESSION idle_transaction_timeout = 2 */ \
     /*!80000 , SESSION wait_timeout = 2 */";

/// What a database can be named by.
const KNOWN: &str = "mysql://user:password@host:port/database, or the same with mariadb:";

/// The options that a URL stands for. What is said about a bad one names no part of it: it may hold a password.
pub(crate) fn parse(url: &str) -> Result<MySqlConnectOptions> {
    let refuse = |given: &str| ConfigError::Database { given: given.to_owned(), known: KNOWN };
    let (scheme, _) = url.split_once("://").ok_or_else(|| refuse("a name without a scheme"))?;
    if !matches!(scheme, "mysql" | "mariadb") {
        return Err(refuse(scheme).into());
    }
    let options = MySqlConnectOptions::from_str(url).map_err(|_| refuse(&format!("{scheme}://…")))?;
    if options.get_database().is_none_or(str::is_empty) {
        return Err(refuse(&format!("{scheme}://… without a database")).into());
    }
    Ok(options.disable_statement_logging())
}

/// Where the database is, for messages: no user, no password.
pub(crate) fn place(options: &MySqlConnectOptions) -> String {
    let database = options.get_database().unwrap_or("no database");
    match options.get_socket() {
        Some(socket) => format!("{database} at {}", socket.display()),
        None => format!("{database} at {}:{}", options.get_host(), options.get_port()),
    }
}

/// A pool for the program's own transactions, with the settings of the server. It is tried out, so that a wrong password is
/// known at once.
pub(super) async fn connect(options: &MySqlConnectOptions) -> Result<MySqlPool> {
    let pool = MySqlPoolOptions::new().acquire_timeout(ACQUIRE_TIMEOUT);
    let connected = patiently(VERB_TRIES, || pool.clone().connect_with(options.clone())).await;
    connected.map_err(|error| match error {
        sqlx::Error::PoolTimedOut => StoreError::new(
            StoreErrorKind::Unreachable,
            format!("cannot open {}", place(options)),
            "no connection within five seconds",
        )
        .into(),
        error => of_sqlx(error, format!("cannot open {}", place(options))),
    })
}

/// A pool for the verbs, to the same database. Nothing is opened yet.
///
/// They have connections of their own: their sessions are set otherwise than a program's may be, and a program that has all of
/// its connections in transactions does not stop delivery.
pub(crate) fn verbs(options: &MySqlConnectOptions) -> MySqlPool {
    MySqlPoolOptions::new()
        .max_connections(VERB_CONNECTIONS_MAX)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        // A verb whose connection is lost is tried again; asking before each would cost a round trip.
        .test_before_acquire(false)
        .before_acquire(|conn, meta| {
            Box::pin(async move {
                // One that was ended meanwhile is no error, which the pool would warn of: another is opened.
                Ok(meta.idle_for < IDLE_IS_DOUBTFUL || conn.ping().await.is_ok())
            })
        })
        .after_connect(|conn, _| {
            Box::pin(async move {
                conn.execute(SESSION).await?;
                Ok(())
            })
        })
        .connect_lazy_with(options.clone().timezone("+00:00".to_owned()).charset("utf8mb4").set_names(true))
}

/// A connection for peeks, to the database that this pool is for. It is kept outside of the pool, which would ask it after each use whether it
/// still is one.
pub(super) async fn peeking(pool: &MySqlPool) -> sqlx::Result<MySqlConnection> {
    let mut conn = pool.connect_options().connect().await?;
    conn.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED").await?;
    Ok(conn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_name_is_refused_with_what_can_be_given_and_without_the_password() {
        for url in [
            "",
            "shop",
            "postgres://u:secret@h/d",
            "sqlite://shop.db",
            "mysql://u:secret@h:notaport/d",
            "mysql://u:secret@h",
            "mysql://u:secret@h/",
        ] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains("give mysql://user:password@host"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn the_place_of_a_database_names_neither_user_nor_password() {
        let options = parse("mysql://u:secret@db.example:3307/shop").unwrap();
        assert_eq!(place(&options), "shop at db.example:3307");
        assert!(parse("mariadb://u@h/d").is_ok());
    }
}
