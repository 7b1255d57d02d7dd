//! A database for each test, and each driver's way to a transaction in it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "each test file uses a part of this, and clippy takes functions beside the tests for no tests"
)]

pub(crate) mod drivers;
pub(crate) mod harness;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// The name of a server by the variable that has it. A server that is not there is a failed test, never one that was left out.
pub(crate) fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: start the servers with `cargo xtask services up` and name them to this shell with \
             `eval $(cargo xtask services env)`"
        )
    })
}

/// A database that goes away with its test.
pub(crate) struct Database {
    name: String,
}

const SERVER: &str = "POSTRIDER_TEST_POSTGRES_URL";

impl Database {
    pub(crate) async fn new() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let name = format!("drivers_{}_{}", std::process::id(), NUMBERS.fetch_add(1, Relaxed));
        run(&server(SERVER), &format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")).await;
        Self { name }
    }

    /// Its URL, by way of the server that this variable names.
    pub(crate) fn url_by(&self, variable: &str) -> String {
        let server = server(variable);
        let (base, _) = server.rsplit_once('/').unwrap();
        format!("{base}/{}", self.name)
    }

    pub(crate) fn url(&self) -> String {
        self.url_by(SERVER)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let name = self.name.clone();
        // The test's own runtime is about to end, so this one is.
        let _ = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(run(&server(SERVER), &format!("DROP DATABASE {name} WITH (FORCE)")));
        })
        .join();
    }
}

async fn run(url: &str, sql: &str) {
    let mut conn = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut conn).await.unwrap();
    let _ = conn.close().await;
}
