//! Connections that were in use a moment ago, ahead of the pool's others.
//!
//! A pool hands its connections out in turn. Each is a process of the server with plans and caches of its own, and with eight of them under
//! a claim and a settle the processor knows none of them any more when its turn comes: a drain took an eighth longer. So one is kept back
//! for each task that runs over and over, for a tenth of a second at most; then they are the pool's again.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use sqlx::{PgPool, Postgres, pool::PoolConnection};

/// What a connection was used for, and is best used for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    Claim,
    Settle,
    Peek,
    /// Marking what is under way, and whatever else is short.
    Other,
}

/// One for each task.
const MOST: usize = 4;

/// Fewest connections of a pool that some are kept back from: nobody else shall have to wait for them.
const POOL_LEAST: u32 = 2 * MOST as u32;

/// How long one is kept.
const KEPT_FOR: Duration = Duration::from_millis(100);

/// The connections of a pool that are kept back.
#[derive(Debug, Default)]
pub(super) struct Warm(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    conns: Vec<(Instant, Task, PoolConnection<Postgres>)>,
    /// Somebody will give them back.
    watched: bool,
}

impl Warm {
    /// The connection that this task has used last, or else the pool's next.
    pub(super) async fn take(&self, pool: &PgPool, task: Task) -> sqlx::Result<PoolConnection<Postgres>> {
        let kept = if pool.is_closed() { None } else { self.kept().take(task) };
        match kept {
            Some(conn) => Ok(conn),
            None => pool.acquire().await,
        }
    }

    /// Keeps a connection that has done its work, unless there is one for this task.
    pub(super) fn keep(self: &Arc<Self>, pool: &PgPool, task: Task, conn: PoolConnection<Postgres>) {
        if pool.options().get_max_connections() < POOL_LEAST || pool.is_closed() {
            return;
        }
        let mut kept = self.kept();
        if kept.conns.iter().all(|(_, other, _)| *other != task) {
            kept.conns.push((Instant::now(), task, conn));
            if !std::mem::replace(&mut kept.watched, true) {
                tokio::spawn(watch(Arc::downgrade(self)));
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn take(&mut self, task: Task) -> Option<PoolConnection<Postgres>> {
        let place = self.conns.iter().position(|(_, other, _)| *other == task)?;
        Some(self.conns.swap_remove(place).2)
    }
}

/// Gives connections back that nobody came for, until none is left.
async fn watch(warm: Weak<Warm>) {
    loop {
        tokio::time::sleep(KEPT_FOR).await;
        let Some(warm) = warm.upgrade() else { return };
        let mut kept = warm.kept();
        kept.conns.retain(|(since, ..)| since.elapsed() < KEPT_FOR);
        if kept.conns.is_empty() {
            kept.watched = false;
            return;
        }
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        // A pool takes its connections back in a task. Where nobody runs tasks any more, they are closed.
        if tokio::runtime::Handle::try_current().is_err() {
            let kept = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
            kept.conns.drain(..).for_each(|(.., conn)| drop(conn.detach()));
        }
    }
}
