//! Measures writing in the caller's transaction against bare inserts.
//!
//! * **Ours:** 100 calls of `write` in one transaction of the caller, each with an event that is built there.
//! * **The bound:** 100 `INSERT`s of the same values into the same table, with its indexes, in one transaction: one prepared statement, run
//!   100 times.
//!
//! Begin and commit are not timed. Both kinds take turns, on the same table and connection.

use std::time::{Duration, Instant};

use postrider::{Event, EventError, Outbox, Payload, Timestamp};
use postrider_relay::Failure;
use sqlx::{Connection, Sqlite, Transaction};

use super::{
    Scale,
    figure::Figure,
    files::{Files, close, event},
    rounds::Rounds,
};

/// Limit: the time of a write over that of an insert.
const RATIO_MAX: f64 = 1.3;

/// Writes in one transaction.
const WRITES: u64 = 100;

const PAYLOAD_BYTES: usize = 1024;

pub(super) async fn measure(scale: Scale, rounds: Rounds) -> Result<Vec<Figure>, Failure> {
    let files = Files::create()?;
    let store = files.open("write").await?;
    let outbox = Outbox::builder().store(store.clone()).write_only().await?;
    // One connection for both: each has a thread and a cache of its own, and a pool would always give each kind the same one.
    let mut conn = store.pool().acquire().await?;
    let turns = rounds
        .by_turns("write", "µs", scale.pick(100, 3), ["ours", "bound"], async |name| {
            // As a program begins that knows it will write.
            let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
            let took = match name {
                "ours" => ours(&outbox, &mut tx).await?,
                _ => bound(&mut tx).await?,
            };
            tx.commit().await?;
            Ok(took.as_secs_f64() * 1e6 / WRITES as f64)
        })
        .await?;
    drop(conn);
    close(store).await;
    Ok(vec![
        Figure::new("write_to_bare_insert", turns.ratio("ours", "bound")).at_most(RATIO_MAX),
        Figure::new("write_us", turns.median("ours")),
        Figure::new("bare_insert_us", turns.median("bound")),
    ])
}

async fn ours(outbox: &Outbox, tx: &mut Transaction<'_, Sqlite>) -> Result<Duration, Failure> {
    let started = Instant::now();
    let mut receipts = Vec::with_capacity(WRITES as usize);
    for number in 0..WRITES {
        receipts.push(outbox.write(&mut *tx, event(number, PAYLOAD_BYTES)).await?);
    }
    Ok(started.elapsed())
}

async fn bound(tx: &mut Transaction<'_, Sqlite>) -> Result<Duration, Failure> {
    let events: Result<Vec<Event>, EventError> =
        (0..WRITES).map(|n| event(n, PAYLOAD_BYTES).build()).collect();
    let events = events.map_err(postrider::Error::from)?;
    let sql = "INSERT INTO postrider_event (event_id, event_type, aggregate_type, aggregate_id, ordering_key,
                   tenant_id, content_type, headers, payload, payload_bytes, occurred_at, available_at, created_at)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let started = Instant::now();
    for event in &events {
        let now = Timestamp::now().as_micros();
        let payload = match event.payload() {
            Payload::Text(text) => Some(text.clone()),
            Payload::Bytes(_) => None,
        };
        sqlx::query(sql)
            .bind(event.id().as_str())
            .bind(event.event_type())
            .bind(event.aggregate_type())
            .bind(event.aggregate_id())
            .bind(event.ordering_key())
            .bind(event.tenant_id())
            .bind(event.content_type())
            .bind(None::<String>)
            .bind(payload)
            .bind(None::<Vec<u8>>)
            .bind(event.occurred_at().as_micros())
            .bind(now)
            .bind(now)
            .execute(&mut **tx)
            .await?;
    }
    Ok(started.elapsed())
}
