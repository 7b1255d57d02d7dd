//! Measures what an insert costs the writer's transaction, against the smallest possible outbox.
//!
//! * **Ours:** plain `INSERT`s of a type and a payload of 1 KiB into the event table, with all its defaults, limits and indexes.
//! * **Minimal:** the same payloads into a table of an ID (`uuid`, its key) and a payload (`jsonb`).
//!
//! Each is committed alone by a loop inside the server, because the round trip from a client would dominate both. Commits do not wait for the
//! disk, which costs both the same.

use std::time::Instant;

use postrider::postgres::PgStore;
use postrider_relay::Failure;
use sqlx::AssertSqlSafe;

use super::{
    super::{Scale, figure::Figure, rounds::Rounds},
    database::{PAYLOAD_BYTES, run},
};

/// Limit: the time of an insert over that into a minimal table.
const RATIO_MAX: f64 = 2.5;

pub(super) async fn measure(store: &PgStore, scale: Scale, rounds: Rounds) -> Result<Vec<Figure>, Failure> {
    let count = scale.pick(50_000, 500);
    run(
        store,
        "CREATE TABLE minimal (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), payload jsonb NOT NULL)",
    )
    .await?;
    let turns = rounds
        .by_turns("insert", "µs", 1, ["ours", "minimal"], async |name| {
            let (table, insert) = match name {
                "ours" => (
                    "postrider_event",
                    "postrider_event (event_type, payload) VALUES ('OrderPlaced', payload)",
                ),
                _ => ("minimal", "minimal (payload) VALUES (payload::jsonb)"),
            };
            run(store, format!("TRUNCATE {table}")).await?;
            run(store, "CHECKPOINT").await?;
            let mut conn = store.pool().acquire().await?;
            sqlx::raw_sql("SET synchronous_commit = off").execute(&mut *conn).await?;
            let inserts = format!(
                r#"DO $$ DECLARE payload text := '"' || repeat('x', {}) || '"';
                   BEGIN FOR i IN 1..{count} LOOP INSERT INTO {insert}; COMMIT; END LOOP; END $$"#,
                PAYLOAD_BYTES - 2
            );
            let started = Instant::now();
            sqlx::raw_sql(AssertSqlSafe(inserts)).execute(&mut *conn).await?;
            let took = started.elapsed();
            sqlx::raw_sql("RESET synchronous_commit").execute(&mut *conn).await?;
            Ok(took.as_secs_f64() * 1e6 / count as f64)
        })
        .await?;
    run(store, "DROP TABLE minimal; TRUNCATE postrider_event").await?;
    Ok(vec![
        Figure::new("insert_to_minimal", turns.ratio("ours", "minimal")).at_most(RATIO_MAX),
        Figure::new("insert_us", turns.median("ours")),
        Figure::new("minimal_insert_us", turns.median("minimal")),
    ])
}
