//! Connections that were in use a moment ago, ahead of the pool's others.
//!
//! A pool hands its connections out in turn. Each is a process of the server with plans and caches of its own, and with eight of them under
//! a claim and a settle the processor knows none of them any more when its turn comes: a drain took an eighth longer. So one is kept back
//! for each task that runs over and over, for a tenth of a second at most; then they are the pool's again.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use sqlx::{Database, Pool};

use super::{Conn, Dropped};

/// What a connection was used for, and is best used for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    Claim,
    Settle,
    /// Peeking, every few milliseconds.
    Peek,
    /// Marking what is under way, and whatever else is short and comes often.
    Other,
    /// What comes seldom: nothing is kept for it.
    Seldom,
}

/// How long one is kept.
const KEPT_FOR: Duration = Duration::from_millis(100);

/// The connections of a pool that are kept back, one for each task.
pub(super) struct Sticky<DB: Database> {
    kept: Mutex<Kept<DB>>,
    /// No more than half of the pool's: nobody else shall have to wait for them.
    most: usize,
}

struct Kept<DB: Database> {
    conns: Vec<(Instant, Conn<DB>)>,
    /// Somebody will give them back.
    watched: bool,
}

impl<DB: Database> Sticky<DB> {
    /// None of this pool's, as yet.
    pub(super) fn of(pool: &Pool<DB>) -> Self {
        let most = usize::try_from(pool.options().get_max_connections() / 2).unwrap_or(usize::MAX);
        Self { kept: Mutex::new(Kept { conns: Vec::new(), watched: false }), most }
    }

    /// The connection that this task has used last.
    pub(super) fn take(&self, task: Task) -> Option<Conn<DB>> {
        let mut kept = self.kept();
        let place = kept.conns.iter().position(|(_, conn)| conn.task == task)?;
        let (_, mut conn) = kept.conns.swap_remove(place);
        conn.dropped = Dropped::Closes;
        Some(conn)
    }

    /// Keeps a connection that has done its work, unless there is one for this task.
    pub(super) fn keep(self: Arc<Self>, conn: Conn<DB>) {
        let mut kept = self.kept();
        let has_one = kept.conns.iter().any(|(_, other)| other.task == conn.task);
        if conn.task == Task::Seldom || has_one || kept.conns.len() >= self.most {
            return;
        }
        kept.conns.push((Instant::now(), conn));
        if !std::mem::replace(&mut kept.watched, true) {
            tokio::spawn(watch(Arc::downgrade(&self)));
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept<DB>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives connections back that nobody came for, until none is left.
async fn watch<DB: Database>(sticky: Weak<Sticky<DB>>) {
    loop {
        tokio::time::sleep(KEPT_FOR).await;
        let Some(sticky) = sticky.upgrade() else { return };
        let mut kept = sticky.kept();
        kept.conns.retain(|(since, _)| since.elapsed() < KEPT_FOR);
        if kept.conns.is_empty() {
            kept.watched = false;
            return;
        }
    }
}

impl<DB: Database> Drop for Sticky<DB> {
    fn drop(&mut self) {
        // A pool takes its connections back in a task. Where nobody runs tasks any more they stay as they are until the process ends.
        if tokio::runtime::Handle::try_current().is_err() {
            let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
            kept.conns.drain(..).for_each(std::mem::forget);
        }
    }
}
