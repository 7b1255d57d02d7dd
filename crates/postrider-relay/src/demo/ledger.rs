//! The ledger: the shop's own record of its events, in tables beside its orders.
//!
//! The conclusion reads it, so nothing in it comes from the outbox and nothing is kept in memory.

use std::time::Duration;

use postrider::{Delivery, Event, EventId, Source, Timestamp};
use sqlx::{Row, SqliteConnection, SqlitePool, sqlite::SqliteRow};

use super::story::{Story, Treatment};
use crate::failure::Failure;

const SCHEMA: &str = include_str!("sql/schema.sql");
const WRITTEN: &str = include_str!("sql/written.sql");
const COUNTS: &str = include_str!("sql/counts.sql");

/// Number of tables in the schema.
const TABLES: i64 = 5;

/// Reads and writes the ledger outside of the shop's transactions.
#[derive(Clone)]
pub(crate) struct Ledger {
    pool: SqlitePool,
}

/// The numbers of ledger and outbox for the whole file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) committed: i64,
    pub(crate) rolled_back: i64,
    pub(crate) delivered: i64,
    pub(crate) dead: i64,
    pub(crate) pending: i64,
    pub(crate) held: i64,
    pub(crate) duplicates: i64,
    pub(crate) out_of_order: i64,
    pub(crate) lost: i64,
    pub(crate) phantom: i64,
}

impl Counts {
    fn read(row: &SqliteRow) -> sqlx::Result<Self> {
        Ok(Self {
            committed: row.try_get("committed")?,
            rolled_back: row.try_get("rolled_back")?,
            delivered: row.try_get("delivered")?,
            dead: row.try_get("dead")?,
            pending: row.try_get("pending")?,
            held: row.try_get("held")?,
            duplicates: row.try_get("duplicates")?,
            out_of_order: row.try_get("out_of_order")?,
            lost: row.try_get("lost")?,
            phantom: row.try_get("phantom")?,
        })
    }
}

impl Ledger {
    /// Creates the shop's tables if there are none. A file with only some of them belongs to another program.
    pub(crate) async fn open(pool: SqlitePool) -> Result<Self, Failure> {
        let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
        let found: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN
             ('shop_start', 'shop_order', 'shop_written', 'shop_rolled_back', 'shop_delivered')",
        )
        .fetch_one(&mut *tx)
        .await?;
        match found {
            0 => {
                sqlx::raw_sql(SCHEMA).execute(&mut *tx).await?;
            }
            TABLES => {}
            _ => {
                let file = pool.connect_options().get_filename().display().to_string();
                let what = format!("{file} has tables named shop_… that this demo did not create");
                return Err(Failure::unusable(what).hint("give another file with --db; nothing was changed"));
            }
        }
        tx.commit().await?;
        Ok(Self { pool })
    }

    pub(crate) fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    /// Records a new start of the demo and returns its number.
    pub(crate) async fn start(&self, seed: u64) -> sqlx::Result<i64> {
        sqlx::query_scalar("INSERT INTO shop_start (seed) VALUES (?1) RETURNING start")
            .bind(seed.to_string())
            .fetch_one(&self.pool)
            .await
    }

    /// Records that events were rolled back.
    pub(crate) async fn rolled_back(&self, ids: &[EventId], why: &str) -> sqlx::Result<()> {
        let ids: Vec<&str> = ids.iter().map(EventId::as_str).collect();
        sqlx::query(
            "INSERT OR IGNORE INTO shop_rolled_back (event_id, why) SELECT value, ?2 FROM json_each(?1)",
        )
        .bind(serde_json::json!(ids).to_string())
        .bind(why)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Records that the receiver accepted an event.
    pub(crate) async fn delivered(&self, delivery: &Delivery) -> sqlx::Result<()> {
        let path = match delivery.source {
            Source::Hot => "hot",
            Source::Cold => "cold",
        };
        sqlx::query("INSERT INTO shop_delivered (event_id, attempt, path) VALUES (?1, ?2, ?3)")
            .bind(delivery.id().as_str())
            .bind(delivery.attempt)
            .bind(path)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Number of events parked behind a dead one.
    pub(crate) async fn held(&self) -> sqlx::Result<u64> {
        let held: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM postrider_hold AS hold
             JOIN postrider_event AS event
                 ON event.lane = hold.lane AND event.effective_key = hold.effective_key AND event.parked = 1
             WHERE hold.reason = 'dead'",
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(held.unsigned_abs())
    }

    /// Number of events that wait behind an event of the same key.
    pub(crate) async fn behind(&self, seq: u64) -> sqlx::Result<i64> {
        sqlx::query_scalar(
            "SELECT count(*) FROM postrider_event AS head
             JOIN postrider_event AS event
                 ON event.lane = head.lane AND event.effective_key = head.effective_key AND event.seq > head.seq
             WHERE head.seq = ?1 AND event.status <> 3",
        )
        .bind(i64::try_from(seq).unwrap_or(i64::MAX))
        .fetch_one(&self.pool)
        .await
    }

    /// How long the current lease lasts.
    pub(crate) async fn lease_left(&self) -> sqlx::Result<Duration> {
        let until: Option<i64> =
            sqlx::query_scalar("SELECT max(leased_until) FROM postrider_lane").fetch_one(&self.pool).await?;
        Ok(until.map_or(Duration::ZERO, |until| Timestamp::from_micros(until).since(Timestamp::now())))
    }

    /// The conclusion's numbers, all from the same moment.
    pub(crate) async fn counts(&self) -> sqlx::Result<Counts> {
        Counts::read(&sqlx::query(COUNTS).fetch_one(&self.pool).await?)
    }
}

/// Sets the state of an order.
pub(crate) async fn change_order(
    conn: &mut SqliteConnection,
    story: &Story,
    state: &str,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO shop_order (order_id, customer, cents, state) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (order_id) DO UPDATE SET state = excluded.state",
    )
    .bind(&story.order)
    .bind(story.customer.cast_signed())
    .bind(story.cents.cast_signed())
    .bind(state)
    .execute(conn)
    .await?;
    Ok(())
}

/// A statement that breaks a constraint in the one way that makes SQLite roll back the whole transaction.
pub(crate) async fn break_transaction(conn: &mut SqliteConnection, story: &Story) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT OR ROLLBACK INTO shop_order (order_id, customer, cents, state) VALUES (?1, 0, 0, '')",
    )
    .bind(&story.order)
    .execute(conn)
    .await?;
    Ok(())
}

/// Records that an event was written, if the transaction of `conn` commits.
pub(crate) async fn written(conn: &mut SqliteConnection, event: &Event) -> sqlx::Result<()> {
    sqlx::query(WRITTEN)
        .bind(event.id().as_str())
        .bind(event.key())
        .bind(event.event_type())
        .bind(Treatment::of(event).as_str())
        .execute(conn)
        .await?;
    Ok(())
}
