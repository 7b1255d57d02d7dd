//! From the name of a database to a pool of connections.

use std::{str::FromStr, time::Duration};

use postrider_core::{ConfigError, Result, StoreError, StoreErrorKind};
use sqlx::{
    AssertSqlSafe, ConnectOptions, MySql, MySqlConnection, MySqlPool,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
};

use super::error::{is_transient, of_sqlx};
use crate::connections::{
    Conn, Connections, is_alive,
    limits::{Limits, MIGRATION, OPERATOR},
    retry::retried,
};

/// How long the program's own transactions wait for a connection, and how long opening a database is tried.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// What the sessions of the verbs are set to, whatever the server's own defaults are. With gap locks, which REPEATABLE READ takes, claims and settles would
/// wait for inserts. Without `autocommit` a single statement would keep its locks, and `completion_type` would begin another transaction after each, or
/// end the session. Statements are cut off by `sql_select_limit`, and read otherwise by some of the modes.
///
/// A verb locks lanes over several statements. If its process is stopped between two of them, or its network is, the server ends the
/// session soon and frees the lanes: otherwise nobody could take them over for as long as the connection seems to be
/// there. MariaDB has limits for idle transactions and for all statements. MySQL has one for idle sessions, so there the pool has to ask before it
/// uses one, and one for queries. Each of the two comments is read by one of them only.
///
/// `transaction_read_only` is not set: anyone who freezes a database before a switch-over may do it by that.
fn session(statement: Duration, lock: Duration) -> String {
    let seconds = |limit: Duration| limit.as_secs().max(1);
    format!(
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
         SET SESSION autocommit = 1, SESSION completion_type = 0, SESSION sql_safe_updates = 0, SESSION sql_select_limit = 18446744073709551615, \
         SESSION sql_mode = 'PIPES_AS_CONCAT,NO_ENGINE_SUBSTITUTION,STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO', \
         SESSION innodb_lock_wait_timeout = {lock}, SESSION lock_wait_timeout = {lock} \
         /*M!100300 , SESSION idle_transaction_timeout = {idle}, SESSION max_statement_time = {secs:.3} */ \
         /*!80000 , SESSION wait_timeout = {idle}, SESSION max_execution_time = {millis} */",
        lock = seconds(lock),
        idle = seconds(statement),
        secs = statement.as_secs_f64(),
        millis = statement.as_millis(),
    )
}

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
    let connect = |_until| pool.clone().connect_with(options.clone());
    let connected = retried(ACQUIRE_TIMEOUT, is_transient, connect).await;
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

/// Gives what follows on a session the time of a migration. The session ends with it: the next one on it would have that too.
pub(super) async fn for_migration(conn: &mut Conn<MySql>) -> sqlx::Result<()> {
    conn.close_on_drop();
    let (secs, millis) = (MIGRATION.as_secs(), MIGRATION.as_millis());
    let set = format!(
        "SET SESSION lock_wait_timeout = {secs} \
         /*M!100300 , SESSION idle_transaction_timeout = {secs}, SESSION max_statement_time = {secs} */ \
         /*!80000 , SESSION wait_timeout = {secs}, SESSION max_execution_time = {millis} */"
    );
    // Safe because nothing but numbers go in.
    sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut **conn).await?;
    Ok(())
}

/// At most so many connections for verbs, to the same database. Nothing is opened yet.
///
/// They have connections of their own: their sessions are set otherwise than a program's may be, and a program that has all of
/// its connections in transactions does not stop delivery.
pub(crate) fn verbs(options: &MySqlConnectOptions, connections: u32) -> Connections<MySql> {
    sessions(options, connections, |limits| (limits.statement(), limits.lock()))
}

/// The same for operators, whose statements may take their time; their waits for locks may not.
pub(crate) fn operators(options: &MySqlConnectOptions, connections: u32) -> Connections<MySql> {
    sessions(options, connections, |limits| (OPERATOR, limits.lock()))
}

/// Connections whose sessions have limits for statements and for locks.
fn sessions(
    options: &MySqlConnectOptions,
    connections: u32,
    of: fn(Limits) -> (Duration, Duration),
) -> Connections<MySql> {
    let options = options.clone().timezone("+00:00".to_owned()).charset("utf8mb4").set_names(true);
    Connections::new(move |limits| {
        MySqlPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(limits.statement())
            // A verb whose connection is lost is tried again; asking before each would cost a round trip.
            .test_before_acquire(false)
            .before_acquire(|conn, meta| Box::pin(async move { Ok(is_alive(conn, meta.idle_for).await) }))
            .after_connect(move |conn, _| {
                Box::pin(async move {
                    // Safe because nothing but numbers go in.
                    let (statement, lock) = of(limits);
                    sqlx::raw_sql(AssertSqlSafe(session(statement, lock))).execute(conn).await?;
                    Ok(())
                })
            })
            .connect_lazy_with(options.clone())
    })
}

/// A connection for peeks, to the database that this pool is for. It is kept outside of the pool, which would ask it after each use whether it
/// still is one. In a transaction that nobody ends it would keep everybody from altering the table. It may be idle for as long as it likes.
pub(super) async fn peeking(pool: &MySqlPool, limits: Limits) -> sqlx::Result<MySqlConnection> {
    let mut conn = pool.connect_options().connect().await?;
    let set = format!(
        "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED; \
         SET SESSION autocommit = 1, SESSION completion_type = 0, SESSION lock_wait_timeout = {lock} \
         /*M!100300 , SESSION max_statement_time = {secs:.3} */ /*!80000 , SESSION max_execution_time = {millis} */",
        lock = limits.lock().as_secs().max(1),
        secs = limits.statement().as_secs_f64(),
        millis = limits.statement().as_millis(),
    );
    // Safe because nothing but numbers go in.
    sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut conn).await?;
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
