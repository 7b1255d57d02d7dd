//! Measures draining beside rows that are in the way, against draining a table without them.
//!
//! * **snapshot:** an old snapshot is open, and as many rows were deleted under it;
//! * **history:** 3,000,000 delivered events are kept, against an empty history, both with the default retention;
//! * **parked:** as many events are parked behind one dead event that holds its key, written before the others;
//! * **interleaved:** the same, row by row between the others.

use std::time::Duration;

use postrider::{Settings, postgres::PgStore};
use postrider_relay::Failure;

use super::{
    super::{Scale, figure::Figure, rounds::Rounds},
    database::{Database, insert, run, settle_down},
    drain::{count, ours},
};

/// Limits: the rate over that of an undisturbed table.
const SNAPSHOT_MIN: f64 = 0.5;
const HISTORY_MIN: f64 = 0.8;
const PARKED_MIN: f64 = 0.8;
const INTERLEAVED_MIN: f64 = 0.6;

pub(super) async fn measure(
    database: &Database,
    store: &PgStore,
    scale: Scale,
    rounds: Rounds,
) -> Result<Vec<Figure>, Failure> {
    let count = count(scale);
    let kept = Settings::default().retention;
    write_history(store, scale.pick(3_000_000, 10_000)).await?;
    let names = ["usual", "snapshot", "parked", "interleaved", "kept", "history"];
    let turns = rounds
        .by_turns("beside", "events/s", 1, names, async |name| match name {
            "snapshot" => with_snapshot(database, store, count).await,
            "history" => {
                database.refill(count).await?;
                swap_history(store).await?;
                let rate = ours(database, count, kept).await;
                swap_history(store).await?;
                rate
            }
            "parked" => {
                run(store, "TRUNCATE postrider_event, postrider_hold, postrider_done").await?;
                run(store, unguarded(&parked(count))).await?;
                run(store, insert(count, "")).await?;
                block(store).await?;
                ours(database, count, Duration::ZERO).await
            }
            "interleaved" => {
                run(store, "TRUNCATE postrider_event, postrider_hold, postrider_done").await?;
                run(store, unguarded(&interleaved(count))).await?;
                block(store).await?;
                ours(database, count, Duration::ZERO).await
            }
            name => {
                database.refill(count).await?;
                ours(database, count, if name == "kept" { kept } else { Duration::ZERO }).await
            }
        })
        .await?;
    Ok(vec![
        Figure::new("held_snapshot", turns.ratio("snapshot", "usual")).at_least(SNAPSHOT_MIN),
        Figure::new("with_history", turns.ratio("history", "kept")).at_least(HISTORY_MIN),
        Figure::new("with_parked", turns.ratio("parked", "usual")).at_least(PARKED_MIN),
        Figure::new("with_parked_interleaved", turns.ratio("interleaved", "usual")).at_least(INTERLEAVED_MIN),
    ])
}

async fn with_snapshot(database: &Database, store: &PgStore, count: u64) -> Result<f64, Failure> {
    database.refill(count).await?;
    let mut old = store.pool().begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
    sqlx::query("SELECT seq FROM postrider_event LIMIT 1").fetch_optional(&mut *old).await?;
    run(store, "DELETE FROM postrider_event").await?;
    run(store, insert(count, "")).await?;
    settle_down(store).await?;
    let rate = ours(database, count, Duration::ZERO).await?;
    old.rollback().await?;
    Ok(rate)
}

/// Delivers this many events into a history table that can replace the usual one.
async fn write_history(store: &PgStore, count: u64) -> Result<(), Failure> {
    let fill = format!(
        "INSERT INTO history (seq, available_at, created_at, occurred_at, done_at, attempts, lane, event_id, event_type,
                              aggregate_type, content_type, payload)
         SELECT i, now(), now(), now(), now(), 0, 0, lpad(to_hex(i), 36, '0'), 'OrderPlaced', 'Order', 'application/json', '{{}}'
         FROM generate_series(1, {count}) AS i"
    );
    run(store, "CREATE TABLE history (LIKE postrider_done INCLUDING ALL)").await?;
    run(store, fill).await?;
    run(store, "VACUUM ANALYZE history").await?;
    run(store, "CHECKPOINT").await
}

async fn swap_history(store: &PgStore) -> Result<(), Failure> {
    let swap = "ALTER TABLE postrider_done RENAME TO other; ALTER TABLE history RENAME TO postrider_done;
                ALTER TABLE other RENAME TO history";
    run(store, swap).await
}

/// Lets an insert write rows as claims leave them, which the table's trigger refuses.
fn unguarded(insert: &str) -> String {
    format!(
        "ALTER TABLE postrider_event DISABLE TRIGGER postrider_event_insert;
         CREATE FUNCTION lane_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             NEW.lane := (hashtext(NEW.ordering_key) & 2147483647) % (SELECT count(*) FROM postrider_lane);
             RETURN NEW;
         END $$;
         CREATE TRIGGER lane_only BEFORE INSERT ON postrider_event FOR EACH ROW EXECUTE FUNCTION lane_only();
         {insert};
         DROP TRIGGER lane_only ON postrider_event;
         DROP FUNCTION lane_only();
         ALTER TABLE postrider_event ENABLE TRIGGER postrider_event_insert"
    )
}

/// The statement that inserts this many parked events of the blocked key.
fn parked(count: u64) -> String {
    format!(
        "INSERT INTO postrider_event (event_type, ordering_key, payload, parked)
         SELECT 'OrderPlaced', 'the blocked one', '{{}}', true FROM generate_series(1, {count})"
    )
}

/// The statement that inserts parked and fresh events alternately.
fn interleaved(count: u64) -> String {
    let both = "CROSS JOIN LATERAL (VALUES (false), (true)) AS p (parked)";
    insert(count, both)
        .replace("ordering_key, payload)", "ordering_key, payload, parked)")
        .replace("'key ' || i % ", "CASE WHEN p.parked THEN 'the blocked one' ELSE 'key ' END || CASE WHEN p.parked THEN 0 ELSE i END % ")
        .replace(" FROM generate_series", ", p.parked FROM generate_series")
}

/// Makes the first event a dead one that the others are parked behind.
async fn block(store: &PgStore) -> Result<(), Failure> {
    let sql = "WITH head AS (
                   UPDATE postrider_event SET status = 3, parked = false
                   WHERE seq = (SELECT min(seq) FROM postrider_event WHERE parked) RETURNING lane, ordering_key, seq)
               INSERT INTO postrider_hold (lane, effective_key, seq, reason) SELECT lane, ordering_key, seq, 'dead' FROM head";
    run(store, sql).await?;
    settle_down(store).await
}
