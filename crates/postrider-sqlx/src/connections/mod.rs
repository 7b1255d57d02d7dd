//! The connections that verbs run on: a pool whose sessions have the limits of the lease, and that is replaced when one of them falls silent.
//!
//! A connection can be dead without anybody noticing: the host has lost its power, or something between has forgotten about it. A pool that is given
//! one back asks it how it is, and waits. So a connection whose verb was given up is closed, and the server, which has limits of its own, ends what
//! was left open. After a silence all others count as dead too: asking each of them would take as long as the first one did.

pub(crate) mod limits;
mod locked_lanes;
pub(crate) mod release;
pub(crate) mod renewal;
pub(crate) mod retry;
mod sticky;

use std::{
    future::Future,
    io, ops,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use sqlx::{Connection, Database, Pool, pool::PoolConnection};
use tokio::time::Instant;

#[cfg(any(feature = "postgres", feature = "profiles"))]
use self::limits::OPENING;
use self::{limits::Limits, sticky::Sticky};
pub(crate) use self::{locked_lanes::LockedLanes, sticky::Task};

/// How long a connection that was idle may take to say that it still is one.
const PING_LIMIT: Duration = Duration::from_secs(1);

/// A connection that was idle for as long as this is asked whether it still is one before it is used.
const IDLE_IS_DOUBTFUL: Duration = Duration::from_secs(1);

/// Makes a pool that has opened nothing yet.
type Open<DB> = Box<dyn Fn(Limits) -> Pool<DB> + Send + Sync>;

/// Connections for some of the verbs of a store.
pub(crate) struct Connections<DB: Database> {
    current: Mutex<Current<DB>>,
    open: Open<DB>,
}

struct Current<DB: Database> {
    pool: Pool<DB>,
    sticky: Arc<Sticky<DB>>,
    limits: Limits,
    /// How often the pool was replaced, and when it was opened.
    replaced: u64,
    opened_at: Instant,
}

impl<DB: Database> Connections<DB> {
    /// Connections that are opened when they are needed.
    pub(crate) fn new(open: impl Fn(Limits) -> Pool<DB> + Send + Sync + 'static) -> Self {
        let pool = open(Limits::default());
        Self::on(pool, open)
    }

    /// Connections of which some are open, with the limits that hold before a lease is known.
    pub(crate) fn on(pool: Pool<DB>, open: impl Fn(Limits) -> Pool<DB> + Send + Sync + 'static) -> Self {
        let sticky = Arc::new(Sticky::of(&pool));
        let current =
            Current { pool, sticky, limits: Limits::default(), replaced: 0, opened_at: Instant::now() };
        Self { current: Mutex::new(current), open: Box::new(open) }
    }

    fn current(&self) -> MutexGuard<'_, Current<DB>> {
        // Nothing here can be left half done.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pool as it is now.
    pub(crate) fn pool(&self) -> Pool<DB> {
        self.current().pool.clone()
    }

    /// What the verbs may take.
    pub(crate) fn limits(&self) -> Limits {
        self.current().limits
    }

    /// From now on a lease is as long as this. Sessions with other limits are replaced.
    pub(crate) fn set_limits(&self, limits: Limits) {
        let mut current = self.current();
        if current.limits != limits && !current.pool.is_closed() {
            current.limits = limits;
            self.replace(&mut current);
        }
    }

    /// What connections know is out of date: from now on there are others.
    #[cfg(feature = "postgres")]
    pub(crate) fn renew(&self) {
        let replaced = self.current().replaced;
        self.distrust(replaced);
    }

    /// A connection has not answered: the others of the same pool are not asked. `replaced` is what the pool was known by when it was taken.
    fn distrust(&self, replaced: u64) {
        let mut current = self.current();
        if current.replaced == replaced && !current.pool.is_closed() {
            self.replace(&mut current);
        }
    }

    /// No connection was to be had. It may be that all are busy; or a pool waits for dead ones that were given back, of whom it asks how they are.
    /// So one that is not new is replaced.
    fn doubt(&self, replaced: u64) {
        let is_new = {
            let current = self.current();
            current.opened_at.elapsed() < current.limits.verb() * 2
        };
        if !is_new {
            self.distrust(replaced);
        }
    }

    fn replace(&self, current: &mut Current<DB>) {
        let old = std::mem::replace(&mut current.pool, (self.open)(current.limits));
        current.sticky = Arc::new(Sticky::of(&current.pool));
        (current.replaced, current.opened_at) = (current.replaced + 1, Instant::now());
        // What is in use ends by itself; nobody waits for it.
        tokio::spawn(async move { old.close().await });
    }

    /// A connection that is closed when it is dropped, unless it is [given back](Conn::give_back).
    pub(crate) async fn acquire(&self, task: Task) -> sqlx::Result<Conn<DB>> {
        let (pool, sticky) = {
            let current = self.current();
            (current.pool.clone(), Arc::clone(&current.sticky))
        };
        if let Some(conn) = sticky.take(task) {
            return Ok(conn);
        }
        Ok(Conn {
            conn: pool.acquire().await?,
            sticky: Arc::downgrade(&sticky),
            task,
            dropped: Dropped::Closes,
        })
    }

    /// Runs `trying` until `until` at the latest. What is under way then is dropped, and its connection is not used again, nor are the others.
    pub(crate) async fn in_time<T>(
        &self,
        until: Instant,
        trying: impl Future<Output = sqlx::Result<T>>,
    ) -> sqlx::Result<T> {
        let (replaced, began) = (self.current().replaced, Instant::now());
        match tokio::time::timeout_at(until, trying).await {
            Ok(done) => {
                if matches!(done, Err(sqlx::Error::PoolTimedOut)) {
                    self.doubt(replaced);
                }
                done
            }
            Err(_) => {
                self.distrust(replaced);
                let what = format!("no answer within {:.1?}", began.elapsed());
                Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, what)))
            }
        }
    }

    /// Runs one try of a verb on a connection, until `until` at the latest. The connection is given back when the verb has ended, also by an error of
    /// the database's; it is closed if the verb was dropped on its way.
    pub(crate) async fn attempt<T, F>(
        &self,
        until: Instant,
        task: Task,
        verb: impl FnOnce(Conn<DB>) -> F,
    ) -> sqlx::Result<T>
    where
        F: Future<Output = sqlx::Result<T>>,
    {
        let trying = async {
            let mut conn = self.acquire(task).await?;
            let running = Arc::<AtomicBool>::default();
            conn.dropped = Dropped::ClosesUnlessRunning(Arc::clone(&running));
            let verb = pin!(verb(conn));
            Running { verb, running }.await
        };
        self.in_time(until, trying).await
    }

    /// Closes what is open.
    pub(crate) async fn close(&self) {
        let pool = {
            let mut current = self.current();
            current.sticky = Arc::new(Sticky::of(&current.pool));
            current.pool.clone()
        };
        pool.close().await;
    }
}

/// Does a step of opening a database, which no lease limits. A server that accepts connections and then says nothing ends it with an error.
#[cfg(any(feature = "postgres", feature = "profiles"))]
pub(crate) async fn opening<T>(step: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    tokio::time::timeout(OPENING, step).await.unwrap_or_else(|_| {
        let what = format!("no answer within {OPENING:?}");
        Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, what)))
    })
}

/// Whether a connection that comes from a pool is one. An error would be a warning of the pool's: another is opened without a word.
pub(crate) async fn is_alive<C: Connection>(conn: &mut C, idle_for: Duration) -> bool {
    if idle_for < IDLE_IS_DOUBTFUL {
        return true;
    }
    matches!(tokio::time::timeout(PING_LIMIT, conn.ping()).await, Ok(Ok(())))
}

/// A verb that says of itself whether it is being run: what is dropped meanwhile was dropped by the verb, and not with it.
struct Running<'v, F> {
    verb: Pin<&'v mut F>,
    running: Arc<AtomicBool>,
}

impl<F: Future> Future for Running<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.running.store(true, Relaxed);
        let polled = self.verb.as_mut().poll(context);
        self.running.store(false, Relaxed);
        polled
    }
}

/// What becomes of a connection that is dropped.
enum Dropped {
    Closes,
    /// It goes back if its verb has let go of it, and is closed if the verb itself was dropped.
    ClosesUnlessRunning(Arc<AtomicBool>),
    GoesBack,
}

/// A connection in use.
pub(crate) struct Conn<DB: Database> {
    conn: PoolConnection<DB>,
    sticky: Weak<Sticky<DB>>,
    task: Task,
    dropped: Dropped,
}

impl<DB: Database> Conn<DB> {
    /// It can be used again, and by the same task at best.
    pub(crate) fn give_back(mut self) {
        self.dropped = Dropped::GoesBack;
        if let Some(sticky) = self.sticky.upgrade() {
            sticky.keep(self);
        }
    }

    /// From now on it is closed when it is dropped.
    pub(crate) fn close_on_drop(&mut self) {
        self.dropped = Dropped::Closes;
    }
}

impl<DB: Database> ops::Deref for Conn<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.conn
    }
}

impl<DB: Database> ops::DerefMut for Conn<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.conn
    }
}

impl<DB: Database> Drop for Conn<DB> {
    fn drop(&mut self) {
        let closes = match &self.dropped {
            Dropped::Closes => true,
            Dropped::ClosesUnlessRunning(running) => !running.load(Relaxed),
            Dropped::GoesBack => false,
        };
        if closes {
            // The pool does not wait for one that does not even take a farewell.
            self.conn.close_on_drop();
        }
    }
}
