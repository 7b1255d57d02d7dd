//! Postrider's engine: what happens to an event between the business transaction and its receiver.
//!
//! # Layout
//!
//! The flow reads in four files, in order:
//!
//! 1. [`write`](mod@write): into the caller's transaction, or one that Postrider owns ([`tx`])
//! 2. `claim`: from the table into memory, on a wake-up or by polling; `peek` and `commit_listener` wake it
//! 3. `deliver`: to the handler or sink that [`routes`] name, through the
//!    [interceptors](postrider_core::interceptor); `outcome_policy` decides what an outcome means
//! 4. `settle`: outcomes back into the table, in batches, under the fence
//!
//! Between them, `buffer` owns everything in memory. `receiver`, `destination` and `breaker` keep events away
//! from what is down. `lease` keeps the right to deliver, `pauses` obeys operators, `purge` ends the retention
//! of delivered events, `orphans` frees keys whose head was deleted, `drain` waits until everything is
//! delivered, `engine_health` reports, and `rewind` forgets what a restored database has lost. [`Outbox`] is
//! all of it in one piece; [`Engine`] and [`Writer`] are its halves for wiring by hand. [`memory`] is a store
//! without a database. `mutations` are defects for the test kit.

mod assignment;
mod brake;
mod breaker;
mod breaker_metrics;
mod buffer;
mod builder;
mod catch;
mod claim;
mod commit_listener;
mod concurrency_shares;
mod deliver;
mod delivery_end;
mod delivery_history;
mod destination;
mod drain;
mod engine;
mod engine_health;
mod explicit_settings;
mod failing_events;
mod failure_warnings;
mod fair_queue;
mod faulty_keys;
mod guarded_metrics;
mod hash;
mod health_checks;
mod lease;
pub mod memory;
#[doc(hidden)]
pub mod mutations;
mod orphans;
mod outbox;
mod outcome_policy;
mod outcome_report;
mod pauses;
mod peek;
mod purge;
mod receiver;
mod recover;
mod rejection_notices;
mod rewind;
pub mod routes;
mod send;
mod settings;
mod settle;
mod shared;
mod slots;
mod store_timeout;
mod suspect;
mod throttle;
pub mod trace;
pub mod tx;
mod wakeup_backoff;
mod worker;
pub mod write;

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

pub use buffer::Unsettled;
pub use builder::OutboxBuilder;
pub use drain::Drained;
pub use engine::{Engine, Parts, ShutdownReport};
pub use engine_health::EngineHealth;
pub use outbox::Outbox;
pub use routes::{Route, RouteSettings, Routes};
pub use settings::{KeyOrder, OnDead, Settings};
pub use tx::Tx;
pub use write::{Receipt, Receipts, Writer};

/// How often a lock is tried before the thread sleeps, and how many spins lie between two tries: some ten
/// microseconds in all.
const LOCK_TRIES: usize = 50;
const LOCK_PAUSE: usize = 16;

/// Locks a mutex. A panic elsewhere does not poison it: critical sections run no user code.
///
/// No section waits for anything. The longest ones, a claim or a settle of some hundred events, take some tens
/// of microseconds, which is as long as sleeping and waking up. So the lock is spun on first: 3.65 million
/// events/s instead of 3.2 on two cores (`postrider-bench --only engine`). If the owner of the lock is not
/// running, the thread then sleeps as usual.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for _ in 0..LOCK_TRIES {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => (0..LOCK_PAUSE).for_each(|_| std::hint::spin_loop()),
        }
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until this moment, or for ever.
async fn sleep_until(moment: Option<tokio::time::Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
