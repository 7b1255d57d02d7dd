//! Peeks: the last number that was drawn for an event that is committed.
//!
//! `PRAGMA data_version` tells a connection whether another one has committed anything since; it reads a page of shared memory. Only
//! then the number is read. The connection is a peek's own: one that writes does not see its own commits in it.

use std::time::Duration;

use postrider_core::{
    store::{Peek, Seq},
    tx::Prefix,
};
use sqlx::{ConnectOptions, Connection, SqliteConnection, SqlitePool};
use tokio::sync::Mutex;

use super::connect::is_in_memory;

/// How often a peek is worth its price.
const EVERY: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Peeking {
    /// What the table is called where SQLite keeps the last number of each.
    table: String,
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    conn: SqliteConnection,
    /// What the file was like when the number was read.
    version: Option<i64>,
    last: Seq,
}

impl Peeking {
    pub(super) fn new(prefix: &Prefix) -> Self {
        Self { table: format!("{prefix}event"), open: Mutex::new(None) }
    }

    /// None for a database in memory: it has one connection, and everything that writes through it is in this process.
    pub(super) async fn peek(&self, pool: &SqlitePool) -> sqlx::Result<Option<Peek>> {
        let mut place = self.open.lock().await;
        if is_in_memory(pool) || pool.is_closed() {
            return Ok(None);
        }
        // One whose answer nobody has waited for is not used again.
        let mut open = match place.take() {
            Some(open) => open,
            None => {
                let conn = pool.connect_options().as_ref().clone().create_if_missing(false).connect().await?;
                Open { conn, version: None, last: 0 }
            }
        };
        let version = sqlx::query_scalar("PRAGMA data_version").fetch_one(&mut open.conn).await?;
        if open.version != Some(version) {
            let last = sqlx::query_scalar("SELECT seq FROM sqlite_sequence WHERE name = ?");
            let last: Option<i64> = last.bind(&self.table).fetch_optional(&mut open.conn).await?;
            open.last = last.map_or(0, |last| Seq::try_from(last).unwrap_or_default());
            open.version = Some(version);
        }
        let last = open.last;
        *place = Some(open);
        Ok(Some(Peek { last, every: EVERY, waited: false }))
    }

    /// Closes the connection.
    pub(super) async fn close(&self) {
        if let Some(open) = self.open.lock().await.take() {
            // A connection that cannot be closed well is gone all the same.
            let _ = open.conn.close().await;
        }
    }
}
