//! Postrider's engine: what happens to an event between the business transaction and its receiver.
//!
//! # Layout
//!
//! The flow reads in four files, in order:
//!
//! 1. [`write`](mod@write): into the caller's transaction, or one that Postrider owns ([`tx`])
//! 2. `claim`: from the table into memory, by wake-up or by poll
//! 3. `deliver`: to the handler that [`routes`] name, through the [interceptors](postrider_core::interceptor)
//! 4. `settle`: the outcomes back into the table, in batches, under the fence
//!
//! Around it: `lease` keeps the right to deliver, `buffer` is everything that is in memory, `receiver` and its `breaker` keep away
//! from one that is down, `outage` tells the metrics, `pauses` are what an operator has told to wait, `purge` ends the retention of what was delivered, `orphans` lets keys go on whose head was deleted, `drain` waits until all is, `vitals` tell how the engine is, `went_back` forgets the future that a database has lost. [`Outbox`] is all of it in one piece;
//! [`Engine`] and [`Writer`] are its halves for those who wire by hand. [`memory`] is a store without a database.

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
mod slots;
mod store_timeout;
mod suspect;
mod throttle;
pub mod trace;
pub mod tx;
mod wakeup_backoff;
pub mod write;

/// The names by which [`memory`] still knows the mutations.
mod broken {
    pub(crate) use crate::mutations::{Mutation as Variant, active as is};
}

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

pub use buffer::Unsettled;
pub use builder::OutboxBuilder;
pub use drain::Drained;
pub use engine::{Engine, Parts, ShutdownReport};
pub use engine_health::EngineHealth;
pub use outbox::Outbox;
pub use routes::{Route, RouteSettings, Routes};
pub use settings::{DeadHeads, KeyOrder, Settings};
pub use tx::Tx;
pub use write::{Receipt, Receipts, Writer};

/// How often a mutex is tried for before the thread goes to sleep, and how long it waits in between: some ten microseconds together.
const LOCK_TRIES: usize = 50;
const LOCK_PAUSE: usize = 16;

/// Locks a mutex whose data stays whole whoever panics: every critical section here is free of user code.
///
/// Nobody waits for anything in such a section, and the longest of them, a claim or a settle of some hundred events, takes some tens of
/// microseconds. To sleep and be woken takes as long, so it is tried for a while first: 3.2 million events/s are 3.65 on two cores (`postrider
/// bench --only engine`). Where whoever has the lock does not run, the thread sleeps after that, as it would have.
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

/// Sleeps until the given moment, or for ever.
async fn sleep_until(moment: Option<tokio::time::Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
