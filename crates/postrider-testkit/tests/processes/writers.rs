//! Who writes: several at once, each with keys of its own, so that the numbers of a key are the order of its commits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use postrider::{Event, Outbox, OwnedTx, Tx, rng::Rng};
use postrider_testkit::conformance::Failure;
use tokio::task::JoinSet;

use crate::{
    database::{AnyStore, connect},
    instance::{Payload, Plan},
    time::pass,
};

pub(crate) const KEYS: usize = 1000;
const WRITERS: usize = 4;
const OF_A_TRANSACTION: usize = 10;

/// How many times slower writers are beyond their quota, and how many times faster at the end.
const BEYOND: u32 = 10;
const HASTE: u32 = 4;

/// A writer that cannot reach the database tries again, for so long.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TxOutcome {
    Committed,
    RolledBack,
    /// The answer to the commit was lost.
    Unknown,
}

#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) id: String,
    pub(crate) key: String,
    pub(crate) number: u32,
    pub(crate) outcome: TxOutcome,
}

/// How many events are to be written by now, and how fast. Without a limit: the rest, and then it is over.
#[derive(Debug)]
pub(crate) struct Quota {
    pub(crate) allowed: AtomicUsize,
    pub(crate) per_second: usize,
}

pub(crate) fn start(url: &str, total: usize, quota: &Arc<Quota>) -> JoinSet<Result<Vec<Written>, Failure>> {
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        writers.spawn(write(url.to_owned(), number, total, Arc::clone(quota)));
    }
    writers
}

async fn write(url: String, writer: usize, total: usize, quota: Arc<Quota>) -> Result<Vec<Written>, Failure> {
    let store = connect(&url).await?;
    let outbox = Outbox::builder().shared_store(store.clone().shared()).migrate(false).write_only().await?;
    let mut rng = Rng::seeded(writer as u64);
    let mut numbers = vec![0_u32; KEYS / WRITERS];
    let mut written: Vec<Written> = Vec::new();
    let mut kept = 0;
    let pace = Duration::from_secs_f64((OF_A_TRANSACTION * WRITERS) as f64 / quota.per_second as f64);
    let mut reached_at = Instant::now();
    loop {
        let allowed = quota.allowed.load(Relaxed);
        if allowed == usize::MAX && kept >= total / WRITERS {
            return Ok(written);
        }
        // Beyond what is allowed they go on slowly: a fault that waits for something to happen is not left without events.
        pass(match allowed {
            usize::MAX => pace / HASTE,
            allowed if kept >= allowed / WRITERS => pace * BEYOND,
            _ => pace,
        })
        .await;
        let keep = rng.below(20) > 0;
        let payloads: Vec<Payload> = (0..OF_A_TRANSACTION)
            .map(|_| {
                let key = rng.below(numbers.len() as u64) as usize;
                let number = numbers.get_mut(key).map_or(0, |number| std::mem::replace(number, *number + 1));
                Payload { key: format!("key-{writer}-{key}"), number, plan: plan(&mut rng, key, number) }
            })
            .collect();
        match put(&outbox, &store, &payloads, keep).await {
            Ok((ids, outcome)) => {
                reached_at = Instant::now();
                kept += if outcome == TxOutcome::Committed { ids.len() } else { 0 };
                written.extend(ids.into_iter().zip(payloads).map(|(id, payload)| Written {
                    id,
                    key: payload.key,
                    number: payload.number,
                    outcome,
                }));
            }
            // Nothing of it is there: its numbers stay unused.
            Err(error) if reached_at.elapsed() > TIMEOUT => return Err(error),
            Err(_) => {}
        }
    }
}

/// What is to become of an event. One key in twenty has an event that dies.
fn plan(rng: &mut Rng, key: usize, number: u32) -> Plan {
    if key.is_multiple_of(20) && number == 1 {
        return Plan::Dies;
    }
    match rng.below(1000) {
        0..20 => Plan::Fails(1 + rng.below(2) as u32),
        20..30 => Plan::Long,
        30..35 => Plan::Slow,
        35..40 => Plan::SlowAnswer,
        _ => Plan::Well,
    }
}

async fn put(
    outbox: &Outbox,
    store: &AnyStore,
    payloads: &[Payload],
    keep: bool,
) -> Result<(Vec<String>, TxOutcome), Failure> {
    match store {
        AnyStore::Postgres(store) => put_into(outbox.begin(store).await?, payloads, keep).await,
        AnyStore::Mysql(store) => put_into(outbox.begin(store).await?, payloads, keep).await,
    }
}

async fn put_into<O: OwnedTx>(
    mut tx: Tx<O>,
    payloads: &[Payload],
    keep: bool,
) -> Result<(Vec<String>, TxOutcome), Failure> {
    let mut events = Vec::new();
    for payload in payloads {
        events.push(Event::json("Counted", payload)?.key(payload.key.clone()));
    }
    let ids = tx.write_all(events).await?;
    let ids = ids.iter().map(ToString::to_string).collect();
    if !keep {
        // If it fails the transaction ends with its connection.
        let _ = tx.rollback().await;
        return Ok((ids, TxOutcome::RolledBack));
    }
    Ok((ids, if tx.commit().await.is_ok() { TxOutcome::Committed } else { TxOutcome::Unknown }))
}
