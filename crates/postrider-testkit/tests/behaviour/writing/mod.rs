//! Writing: into the caller's transaction, or into one that the outbox owns.
//!
//! * `transactions`: what commits, what does not, and what is left of it
//! * `hooks`: what runs before an insert, and hears what became of it
//! * `checks`: what is refused
//! * `contents`: what is delivered is what was written

/// Begins a transaction of the caller's on whichever store this is, and writes through it.
macro_rules! in_transaction {
    ($site:expr, |$tx:ident| $work:expr) => {
        match &$site.database {
            crate::parts::Database::Memory(store) => {
                let mut transaction = store.begin();
                let $tx = &mut transaction;
                let result = $work;
                transaction.commit().await.unwrap();
                result
            }
            crate::parts::Database::Sqlite(pool, _) => {
                let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
                let $tx = &mut transaction;
                let result = $work;
                transaction.commit().await.unwrap();
                result
            }
        }
    };
}

/// Runs work in a transaction that the outbox owns.
macro_rules! owned {
    ($site:expr, $outbox:expr, $work:expr) => {
        match &$site.database {
            crate::parts::Database::Memory(store) => $outbox.transaction(store, $work).await,
            crate::parts::Database::Sqlite(pool, _) => $outbox.transaction(pool, $work).await,
        }
    };
}
mod checks;
mod contents;
mod hooks;
mod transactions;

use crate::parts::Site;
use postrider::memory::MemoryStore;

/// The database of a site, for a task.
enum Handle {
    Memory(MemoryStore),
    Sqlite(sqlx::SqlitePool),
}

fn clone_of(site: &Site) -> Handle {
    if site.is_sqlite() {
        Handle::Sqlite(site.pool().clone())
    } else {
        Handle::Memory(site.memory_store().clone())
    }
}
