//! Creates, fills and drops the benchmark's own database on a server.

use std::sync::Arc;

use postrider::{Outbox, Store, mysql::MysqlStore, postgres::PgStore};
use postrider_relay::Failure;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};

use super::{super::files::event, KEYS};

/// Events in one transaction that fills a table.
const FILL_BATCH: u64 = 1000;

pub(super) const PAYLOAD_BYTES: usize = 1024;

/// A database that exists for one run.
pub(super) struct Database {
    /// The server's URL as given.
    server: String,
    name: String,
    /// The URL of this database.
    pub(super) url: String,
    kind: Kind,
}

enum Kind {
    Postgres(PgStore),
    Mysql(MysqlStore),
}

impl Database {
    pub(super) async fn create(server: &str) -> Result<Self, Failure> {
        let name = format!("postrider_bench_{}", std::process::id());
        let url = beside(server, &name)?;
        let create = format!("CREATE DATABASE {name}");
        let kind = match server.split_once("://") {
            Some(("postgres" | "postgresql", _)) => {
                on_postgres(server, create).await?;
                Kind::Postgres(PgStore::connect(&url).await?)
            }
            Some(("mysql" | "mariadb", _)) => {
                on_mysql(server, create).await?;
                Kind::Mysql(MysqlStore::connect(&url).await?)
            }
            _ => {
                return Err(Failure::usage("--store names no server that can be measured")
                    .hint("give postgres://user:password@host:port/database, or mysql://…"));
            }
        };
        let database = Self { server: server.to_owned(), name, url, kind };
        database.store().migrate().await?;
        Ok(database)
    }

    /// Closes the store and drops the database.
    pub(super) async fn drop(self) -> Result<(), Failure> {
        match self.kind {
            Kind::Postgres(store) => {
                store.close().await;
                on_postgres(&self.server, format!("DROP DATABASE {} WITH (FORCE)", self.name)).await
            }
            Kind::Mysql(store) => {
                store.close().await;
                on_mysql(&self.server, format!("DROP DATABASE {}", self.name)).await
            }
        }
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        match &self.kind {
            Kind::Postgres(store) => Arc::new(store.clone()),
            Kind::Mysql(store) => Arc::new(store.clone()),
        }
    }

    pub(super) fn as_postgres(&self) -> Option<&PgStore> {
        match &self.kind {
            Kind::Postgres(store) => Some(store),
            Kind::Mysql(_) => None,
        }
    }

    pub(super) fn as_mysql(&self) -> Option<&MysqlStore> {
        match &self.kind {
            Kind::Postgres(_) => None,
            Kind::Mysql(store) => Some(store),
        }
    }

    /// Leaves exactly this many fresh events in the tables, and no work that the server would do later.
    pub(super) async fn refill(&self, count: u64) -> Result<(), Failure> {
        match &self.kind {
            Kind::Postgres(store) => {
                run(store, "TRUNCATE postrider_event, postrider_hold, postrider_done").await?;
                run(store, insert(count, "")).await?;
                settle_down(store).await
            }
            Kind::Mysql(store) => {
                for table in ["event", "hold", "done"] {
                    let truncate = AssertSqlSafe(format!("TRUNCATE TABLE postrider_{table}"));
                    sqlx::raw_sql(truncate).execute(store.pool()).await?;
                }
                let outbox = Outbox::builder().store(store.clone()).write_only().await?;
                let mut written = 0;
                while written < count {
                    let until = count.min(written + FILL_BATCH);
                    let of_a_key = |n| event(n, PAYLOAD_BYTES).key(format!("key {}", n % KEYS));
                    let events: Vec<_> = (written..until).map(of_a_key).collect();
                    outbox.transaction(store, async |tx| tx.write_all(events).await).await?;
                    written = until;
                }
                Ok(())
            }
        }
    }
}

/// The statement that inserts this many events over the keys; `among` is appended.
pub(super) fn insert(count: u64, among: &str) -> String {
    format!(
        r#"INSERT INTO postrider_event (event_type, ordering_key, payload)
           SELECT 'OrderPlaced', 'key ' || i % {KEYS}, '"' || repeat('x', {}) || '"' FROM generate_series(1, {count}) AS i {among}"#,
        PAYLOAD_BYTES - 2
    )
}

/// Runs statements without values from outside.
pub(super) async fn run(store: &PgStore, sql: impl Into<String>) -> Result<(), Failure> {
    sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(store.pool()).await?;
    Ok(())
}

/// Makes the server vacuum and checkpoint now instead of later.
pub(super) async fn settle_down(store: &PgStore) -> Result<(), Failure> {
    for sql in ["VACUUM ANALYZE postrider_event", "VACUUM ANALYZE postrider_hold", "CHECKPOINT"] {
        run(store, sql).await?;
    }
    Ok(())
}

/// The URL of another database on the same server.
fn beside(server: &str, name: &str) -> Result<String, Failure> {
    let (place, parameters) = server.split_once('?').unwrap_or((server, ""));
    let (base, _) = place
        .rsplit_once('/')
        .filter(|(base, _)| !base.ends_with('/'))
        .ok_or_else(|| Failure::usage("--store names a server, but no database on it"))?;
    let question = if parameters.is_empty() { "" } else { "?" };
    Ok(format!("{base}/{name}{question}{parameters}"))
}

async fn on_postgres(server: &str, sql: String) -> Result<(), Failure> {
    let mut conn = PgConnection::connect(server).await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
    Ok(conn.close().await?)
}

async fn on_mysql(server: &str, sql: String) -> Result<(), Failure> {
    let mut conn = MySqlConnection::connect(server).await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
    Ok(conn.close().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_of_its_own_has_the_servers_parameters() {
        let named = |server| beside(server, "own").ok();
        assert_eq!(named("postgres://u:p@h:1/d?x=y").as_deref(), Some("postgres://u:p@h:1/own?x=y"));
        assert_eq!(named("mysql://h/d").as_deref(), Some("mysql://h/own"));
        assert_eq!(named("postgres://h"), None);
    }
}
