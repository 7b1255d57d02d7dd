//! What the verbs cost beside bare SQL.
//!
//! * **Ours:** claims of 200 and a settle of each, with a mark for every second claim, as an engine calls them.
//! * **Bare:** the next 200 rows with all their columns, which are then deleted by their numbers.
//!
//! Each turn has a copy of the same file of events with 1 KiB of payload and one key each; they take turns, because the machine's
//! mood changes. `cargo bench -p postrider-sqlx --bench verbs -- [rounds]`.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use postrider_core::{
    Event, Store,
    event::EventBuilder,
    store::{Change, Claim, LaneClaim, Position, Settlement},
};
use postrider_sqlx::SqliteStore;
use support::{Folder, take, write};

const EVENTS: u64 = 30_000;
const BATCH: usize = 200;
const PAYLOAD_BYTES: usize = 1024;

/// Time spent in each verb.
#[derive(Default)]
struct Spent {
    read: Duration,
    mark: Duration,
    write: Duration,
}

impl Spent {
    fn all(&self) -> Duration {
        self.read + self.mark + self.write
    }
}

fn event(number: u64) -> EventBuilder {
    Event::json_text("OrderPlaced", format!("{:?}", "x".repeat(PAYLOAD_BYTES - 2))).aggregate("Order", number)
}

async fn ours(store: &SqliteStore) -> Spent {
    let lease = take(store, Duration::from_secs(600)).await.unwrap();
    let (mut spent, mut from, mut claims) = (Spent::default(), Position::START, 0);
    loop {
        let claim =
            Claim { bytes: 64 * 1024 * 1024, ..Claim::new(vec![LaneClaim::after(lease, from)], BATCH) };
        let started = Instant::now();
        let claimed = store.claim(&claim).await.unwrap();
        spent.read += started.elapsed();
        let Some(last) = claimed.events.last() else { return spent };
        from = claimed.positions[0].1;
        if claims % 2 == 0 {
            let started = Instant::now();
            store.mark_sent(&[(lease, last.seq + BATCH as u64)]).await.unwrap();
            spent.mark += started.elapsed();
        }
        claims += 1;
        let settlements: Vec<_> = claimed
            .events
            .iter()
            .map(|event| Settlement {
                lane: event.lane,
                seq: event.seq,
                event_id: event.id().clone(),
                key: event.event.as_ref().unwrap().key().map(Into::into),
                held: event.held,
                change: Change::Done,
            })
            .collect();
        let started = Instant::now();
        store.settle(&[lease], &settlements, Duration::ZERO).await.unwrap();
        spent.write += started.elapsed();
    }
}

/// A row with all that a claim reads of it, each value on its own.
type Row = (
    i64,
    i64,
    i64,
    i64,
    i64,
    i64,
    String,
    String,
    String,
    Option<String>,
    Option<String>,
    Option<String>,
    String,
    Option<String>,
    Option<String>,
    Option<Vec<u8>>,
);

async fn bare(store: &SqliteStore) -> Spent {
    let (mut spent, mut last) = (Spent::default(), 0);
    loop {
        let sql = "SELECT seq, lane, attempts, available_at, created_at, occurred_at, event_id, event_type,
                          aggregate_type, aggregate_id, ordering_key, tenant_id, content_type, headers, payload,
                          payload_bytes
                   FROM postrider_event WHERE seq > ?1 ORDER BY seq LIMIT ?2";
        let started = Instant::now();
        let rows: Vec<Row> =
            sqlx::query_as(sql).bind(last).bind(BATCH as i64).fetch_all(store.pool()).await.unwrap();
        spent.read += started.elapsed();
        let Some(row) = rows.last() else { return spent };
        last = row.0;
        let started = Instant::now();
        let seqs = serde_json::to_string(&rows.iter().map(|row| row.0).collect::<Vec<_>>()).unwrap();
        let sql = "DELETE FROM postrider_event WHERE seq IN (SELECT value FROM json_each(?1))";
        sqlx::query(sql).bind(seqs).execute(store.pool()).await.unwrap();
        spent.write += started.elapsed();
    }
}

#[tokio::main]
async fn main() {
    let rounds = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(5);
    let folder = Folder::new();
    let filled = SqliteStore::connect(&folder.file("filled")).await.unwrap();
    filled.migrate().await.unwrap();
    for start in (0..EVENTS).step_by(2000) {
        write(&filled, (start..start + 2000).map(event)).await;
    }
    filled.close().await;

    let mut ratios = Vec::new();
    for round in 0..rounds {
        let mut turns = Vec::new();
        for name in ["ours", "bare"] {
            let file = folder.file(&format!("{name}{round}"));
            std::fs::copy(folder.file("filled"), &file).unwrap();
            let store = SqliteStore::connect(&file).await.unwrap();
            let spent = if name == "ours" { ours(&store).await } else { bare(&store).await };
            store.close().await;
            let of = |time: Duration| time.as_micros() as f64 / (EVENTS / BATCH as u64) as f64;
            let (read, mark, write) = (of(spent.read), of(spent.mark), of(spent.write));
            let line = format!("{name}: read {read:.0} mark {mark:.0} write {write:.0} us a batch");
            println!("{line}");
            std::fs::remove_file(&file).unwrap();
            turns.push(spent.all());
        }
        ratios.push(turns[1].as_secs_f64() / turns[0].as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    println!("ours to bare: {:.2} ({ratios:.2?})", ratios[ratios.len() / 2]);
}
