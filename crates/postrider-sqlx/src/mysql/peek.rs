//! Peeks: the last number that was drawn for an event, as far as its row is there, committed or not.
//!
//! It reads the end of the primary key at READ UNCOMMITTED, so that a transaction that writes a million events is one row to it and not
//! a million that it may not see. It goes no further back than the last number that is known: rows that were deleted stay in the index for a
//! while, and it would have to pass all of them.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use postrider_core::{
    store::{Claimed, Peek, Seq},
    tx::Prefix,
};
use sqlx::{Connection, MySql, MySqlConnection, Row};
use tokio::sync::Mutex;

use super::{connect::peeking, statement::Statement};
use crate::connections::Connections;

/// How often a peek is worth its price.
const EVERY: Duration = Duration::from_millis(5);

/// Nothing was read yet.
const UNKNOWN: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Peeking {
    /// The connection, whose session reads what is not committed.
    open: Mutex<Option<MySqlConnection>>,
    first: Statement,
    last: Statement,
    known: AtomicU64,
}

impl Peeking {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let statement = |template: &str| Statement::new(template, prefix);
        Self {
            open: Mutex::new(None),
            // It may be old, and then it is too small: the next one finds what is beyond.
            first: statement(
                "SELECT CAST(COALESCE(MAX(auto_increment), 1) AS UNSIGNED) FROM information_schema.tables
                 WHERE table_schema = DATABASE() AND table_name = '{p}event'",
            ),
            last: statement(
                "SELECT CAST(seq AS UNSIGNED) FROM {p}event WHERE seq > ? ORDER BY seq DESC LIMIT 1",
            ),
            known: AtomicU64::new(UNKNOWN),
        }
    }

    /// Peeks at the database that these connections are for; none once they are closed.
    pub(super) async fn peek(&self, verbs: &Connections<MySql>) -> sqlx::Result<Option<Peek>> {
        let mut place = self.open.lock().await;
        let pool = verbs.pool();
        if pool.is_closed() {
            return Ok(None);
        }
        // One that fails, or whose answer nobody has waited for, is not used again.
        let mut conn = match place.take() {
            Some(conn) => conn,
            None => peeking(&pool, verbs.limits()).await?,
        };
        let known = match self.known.load(Relaxed) {
            UNKNOWN => {
                let row = self.first.query().fetch_one(&mut conn).await?;
                row.try_get::<u64, _>(0)?.saturating_sub(1)
            }
            known => known,
        };
        let row = self.last.query().bind(known).fetch_optional(&mut conn).await?;
        let last = row.map_or(Ok(known), |row| row.try_get::<Seq, _>(0))?;
        self.note(last);
        *place = Some(conn);
        Ok(Some(Peek { last, every: EVERY, waited: false }))
    }

    /// A claim has brought these: the next peek begins behind them.
    pub(super) fn claimed(&self, claimed: &Claimed) {
        if self.known.load(Relaxed) != UNKNOWN
            && let Some(last) = claimed.events.iter().map(|event| event.seq).max()
        {
            self.known.fetch_max(last, Relaxed);
        }
    }

    fn note(&self, last: Seq) {
        let raised = |known| Some(if known == UNKNOWN { last } else { last.max(known) });
        // It never refuses.
        let _ = self.known.fetch_update(Relaxed, Relaxed, raised);
    }

    /// The database went back in time: numbers are given again.
    pub(super) fn forget(&self) {
        self.known.store(UNKNOWN, Relaxed);
    }

    /// Closes the connection.
    pub(super) async fn close(&self) {
        if let Some(conn) = self.open.lock().await.take() {
            // A connection that cannot be closed well is gone all the same.
            let _ = conn.close().await;
        }
    }
}
