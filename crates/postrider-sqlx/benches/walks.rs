//! What a claim costs beside what it does not return.
//!
//! * **Refused:** a million rows that an admission does not want, each met once.
//! * **Flat:** a claim of 200 with those million behind its position, with a million delivered rows kept, and with a hundred
//!   thousand parked, against one on a file that holds nothing else. They take turns, because the machine's mood changes.
//!
//! `cargo bench -p postrider-sqlx --bench walks -- [rounds]`.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use postrider_core::{
    Event, Store,
    store::{Admission, Claim, Claimed, RowSummary},
};
use postrider_sqlx::SqliteStore;
use support::{Folder, Instance, execute, in_file, write};

const BATCH: usize = 200;

/// Wants nothing of one type.
#[derive(Debug)]
struct ButFor(&'static str);

impl Admission for ButFor {
    fn admits(&self, row: &RowSummary<'_>) -> bool {
        row.event_type != self.0
    }
}

const REFUSED: &str = "
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
    INSERT INTO postrider_event (event_type, aggregate_type, aggregate_id, payload)
    SELECT 'Refused', 'Order', i, '{\"number\":1234567890}' FROM n;";

const DONE: &str = "
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
    INSERT INTO postrider_done
    SELECT -i, 0, 0, 0, 0, 0, i, 'd' || i, 'X', 'Y', NULL, NULL, NULL, 'Z', NULL, NULL, '', NULL FROM n;";

const PARKED: &str = "
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
    INSERT INTO postrider_event (event_type, ordering_key, payload) SELECT 'X', 'held' || (i % 1000), '{}' FROM n;
    UPDATE postrider_event SET parked = 1 WHERE ordering_key LIKE 'held%';
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
    INSERT INTO postrider_hold SELECT 0, 'held' || i, 0, NULL, 'dead' FROM n;";

fn say(line: &str) {
    println!("{line}");
}

async fn claim(instance: &mut Instance) -> Claimed {
    let plan = Claim { admission: Some(Arc::new(ButFor("Refused"))), ..instance.plan(BATCH) };
    let claimed = instance.store.claim(&plan).await.unwrap();
    instance.from = claimed.positions[0].1;
    claimed
}

/// An instance that has met everything that is there, on a file with this in it and a batch behind it.
async fn opened(folder: &Folder, name: &str, rows: &'static str) -> Instance {
    let store: SqliteStore = in_file(&folder.file(name)).await;
    execute(&store, rows).await;
    execute(&store, "PRAGMA wal_checkpoint(TRUNCATE)").await;
    let mut instance = Instance::new(&store).await;
    let started = Instant::now();
    let mut claims = 0;
    while claim(&mut instance).await.more {
        claims += 1;
    }
    say(&format!("{name}: met within {claims} claims and {:?}", started.elapsed()));
    let payload = format!("{:?}", "x".repeat(1022));
    write(&store, (0..BATCH).map(|n| Event::json_text("Wanted", payload.clone()).aggregate("Order", n)))
        .await;
    instance
}

async fn timed(instance: &Instance, admission: bool) -> Duration {
    let admission: Option<Arc<dyn Admission>> = admission.then(|| Arc::new(ButFor("Refused")) as _);
    let plan = Claim { admission, bytes: 64 << 20, ..instance.plan(BATCH) };
    let started = Instant::now();
    let claimed = instance.store.claim(&plan).await.unwrap();
    let took = started.elapsed();
    assert_eq!(claimed.events.len(), BATCH);
    took
}

#[tokio::main]
async fn main() {
    let rounds: usize = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(50);
    let folder = Folder::new();
    let empty = opened(&folder, "empty", "").await;
    let others = [
        ("refused", opened(&folder, "refused", REFUSED).await),
        ("done", opened(&folder, "done", DONE).await),
        ("parked", opened(&folder, "parked", PARKED).await),
    ];
    for admission in [false, true] {
        for (name, other) in &others {
            let mut ratios = Vec::new();
            for _ in 0..rounds {
                let alone = timed(&empty, admission).await.as_secs_f64();
                ratios.push(timed(other, admission).await.as_secs_f64() / alone);
            }
            ratios.sort_by(f64::total_cmp);
            let median = ratios[ratios.len() / 2];
            say(&format!("{name}, admission {admission}: {median:.2} of a claim on an empty file"));
        }
    }
}
