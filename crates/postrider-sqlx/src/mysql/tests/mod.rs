//! What only a server can show. Each test has a database of its own on the server that `POSTRIDER_TEST_MYSQL_URL` names.

mod errors;
mod fence;
mod late;
mod plans;
mod schema;
mod write;

use std::{
    env, process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use postrider_core::{
    CallerTx, Event, Store,
    rng::Rng,
    store::{Lease, LeaseRequest},
    tx::OnDuplicate,
};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

use super::MysqlStore;

const VARIABLE: &str = "POSTRIDER_TEST_MYSQL_URL";

fn server() -> String {
    let hint = "run `cargo xtask services up` and `eval $(cargo xtask services env)`";
    env::var(VARIABLE).unwrap_or_else(|_| panic!("{VARIABLE} names no server: {hint}"))
}

async fn on_server(sql: String) {
    let mut conn = MySqlConnection::connect(&server()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}

/// A database that goes away with its test.
struct Database(String);

impl Database {
    async fn new() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let name = format!("postrider_sqlx_{}_{}", process::id(), NUMBERS.fetch_add(1, Relaxed));
        on_server(format!("DROP DATABASE IF EXISTS {name}; CREATE DATABASE {name}")).await;
        Self(name)
    }

    /// The server's URL with this database, for the server's user or another one.
    fn url(&self, user: Option<&str>) -> String {
        let server = server();
        let (scheme, rest) = server.split_once("://").unwrap();
        let authority = rest.split('/').next().unwrap();
        let (server_user, host) = authority.rsplit_once('@').unwrap_or(("root", authority));
        format!("{scheme}://{}@{host}/{}", user.unwrap_or(server_user), self.0)
    }

    async fn store(&self) -> MysqlStore {
        MysqlStore::connect(&self.url(None)).await.unwrap()
    }

    async fn migrated(&self) -> MysqlStore {
        let store = self.store().await;
        store.migrate().await.unwrap();
        store
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A test that failed may have left a transaction open: rather a database is left than a test that never ends.
        let sql = format!("SET SESSION lock_wait_timeout = 2; DROP DATABASE IF EXISTS {}", self.0);
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let mut conn = MySqlConnection::connect(&server()).await.unwrap();
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.is_ok()
            })
        });
        let _ = dropped.join();
    }
}

async fn execute(store: &MysqlStore, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(store.pool()).await.unwrap();
}

async fn number(store: &MysqlStore, sql: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(store.pool()).await.unwrap()
}

fn event(id: &str) -> Event {
    Event::json_text("Tested", "{}").id(id).key("k").build().unwrap()
}

async fn write(store: &MysqlStore, events: &[Event]) {
    let mut tx = store.pool().begin().await.unwrap();
    (&mut tx).insert(store.target(), events, OnDuplicate::Fail).await.unwrap();
    tx.commit().await.unwrap();
}

async fn lease(store: &MysqlStore, ttl: Duration) -> Vec<Lease> {
    let request =
        LeaseRequest { owner: "test".to_owned(), ttl, nonces: Rng::from_entropy(), most: usize::MAX };
    store.lease(&request).await.unwrap().leases()
}
