//! A database for one test, on the server that the environment names.
#![allow(unreachable_pub, reason = "each test binary has it as a module")]

use std::{
    env, process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use postrider_testkit::conformance::Failure;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

/// What names the server. A user of it must be allowed to create databases.
const VARIABLE: &str = "POSTRIDER_TEST_MYSQL_URL";

fn server() -> Result<String, Failure> {
    env::var(VARIABLE).map_err(|_| {
        format!(
            "{VARIABLE} names no server: run `cargo xtask services up` and `eval $(cargo xtask services env)`, \
             or set it to mysql://user:password@host:port/database"
        )
        .into()
    })
}

async fn on_server(sql: String) -> Result<(), Failure> {
    let mut conn = MySqlConnection::connect(&server()?).await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
    conn.close().await?;
    Ok(())
}

/// A database that goes away with its test.
pub struct Database {
    name: String,
}

impl Database {
    pub async fn new() -> Result<Self, Failure> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let name = format!("postrider_test_{}_{}", process::id(), NUMBERS.fetch_add(1, Relaxed));
        on_server(format!("DROP DATABASE IF EXISTS {name}; CREATE DATABASE {name}")).await?;
        Ok(Self { name })
    }

    /// The server's URL with this database in place of its own.
    pub fn url(&self) -> Result<String, Failure> {
        let server = server()?;
        let (scheme, rest) = server.split_once("://").ok_or("the URL has no scheme")?;
        let authority = rest.split(['/', '?']).next().unwrap_or(rest);
        Ok(format!("{scheme}://{authority}/{}", self.name))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let name = self.name.clone();
        // The runtime of the test is about to end, so this has one of its own.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(drop_database(name)).is_ok())
        });
        let _ = dropped.join();
    }
}

/// A test that failed may have left transactions open, which would keep its tables for ever: their sessions end first.
async fn drop_database(name: String) -> Result<(), Failure> {
    let mut conn = MySqlConnection::connect(&server()?).await?;
    let sessions = sqlx::query_scalar::<_, i64>(
        "SELECT CAST(id AS SIGNED) FROM information_schema.processlist WHERE db = ?",
    );
    for session in sessions.bind(name.clone()).fetch_all(&mut conn).await? {
        let _gone_already = sqlx::raw_sql(AssertSqlSafe(format!("KILL {session}"))).execute(&mut conn).await;
    }
    sqlx::raw_sql(AssertSqlSafe(format!("DROP DATABASE IF EXISTS {name}"))).execute(&mut conn).await?;
    Ok(conn.close().await?)
}
