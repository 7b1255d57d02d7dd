//! One connection that many sends share: made when the first send needs it, and again when it is lost.
//!
//! State: the connection, if there is one; the number of failed attempts since the last one; and when the next attempt may begin. A connection
//! that ended, or that a send gave up on, is not used again. Callers wait for an attempt under way and share its result, so that a server that does
//! not answer costs each send one timeout, however many sends there are.

use std::{
    fmt,
    future::Future,
    ops::Deref,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use postrider_core::Outcome;
use tokio::time::Instant;

use crate::Deadline;

/// The pause after the first failed attempt.
pub const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause. It is short because it happens inside of a send; the engine's breaker waits longer.
pub const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How to make a connection.
pub trait Connect: Send + Sync + 'static {
    /// A connection.
    type Connection: Send + Sync + 'static;

    /// Connects, or says why it cannot, without secrets.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, String>> + Send;

    /// Whether the connection is open, as far as is known.
    fn is_open(connection: &Self::Connection) -> bool;
}

/// A connection that others may be using too.
pub struct Linked<C>(Arc<C>);

impl<C> Clone for Linked<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C> Deref for Linked<C> {
    type Target = C;
    fn deref(&self) -> &C {
        &self.0
    }
}

/// The connection to one server.
pub struct Link<C: Connect> {
    connector: C,
    connect_timeout: Duration,
    current: Mutex<Option<Linked<C::Connection>>>,
    /// Number of attempts that have ended.
    made: AtomicU64,
    attempts: tokio::sync::Mutex<Attempts>,
}

#[derive(Debug, Default)]
struct Attempts {
    /// Number of failures since the last success.
    failed: u32,
    /// When the last attempt ended.
    ended: Option<Instant>,
    /// The last error.
    error: String,
}

impl<C: Connect> fmt::Debug for Link<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("connected", &self.current().is_some()).finish_non_exhaustive()
    }
}

impl<C: Connect> Link<C> {
    /// Makes a link without connecting.
    pub fn new(connector: C, connect_timeout: Duration) -> Self {
        let (current, made) = (Mutex::default(), AtomicU64::new(0));
        Self { connector, connect_timeout, current, made, attempts: tokio::sync::Mutex::default() }
    }

    /// What makes the connections.
    pub fn connector(&self) -> &C {
        &self.connector
    }

    /// The open connection, or a new one; an error if none can be made.
    pub async fn get(&self) -> Result<Linked<C::Connection>, String> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let seen = self.made.load(SeqCst);
        let mut attempts = self.attempts.lock().await;
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        // An attempt has ended since this call began: its result holds for this caller.
        if attempts.failed > 0 && self.made.load(SeqCst) != seen {
            return Err(attempts.error.clone());
        }
        if let Some(ended) = attempts.ended.filter(|_| attempts.failed > 0) {
            tokio::time::sleep_until(ended + pause(attempts.failed)).await;
        }
        let connecting = tokio::time::timeout(self.connect_timeout, self.connector.connect()).await;
        let limit = self.connect_timeout;
        let connected = connecting.unwrap_or_else(|_| Err(format!("no connection within {limit:?}")));
        attempts.ended = Some(Instant::now());
        self.made.fetch_add(1, SeqCst);
        match connected {
            Ok(connection) => {
                attempts.failed = 0;
                let connection = Linked(Arc::new(connection));
                *self.slot() = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                attempts.failed = attempts.failed.saturating_add(1);
                attempts.error.clone_from(&error);
                Err(error)
            }
        }
    }

    /// The connection, or an error at the deadline of a send.
    pub async fn get_before(&self, deadline: &Deadline) -> Result<Linked<C::Connection>, String> {
        let got = deadline.before(self.get()).await;
        got.unwrap_or_else(|| Err("there is no connection in time for this send".to_owned()))
    }

    /// Does not use this connection for later sends. Its current users keep it.
    pub fn forget(&self, connection: &Linked<C::Connection>) {
        self.slot().take_if(|current| Arc::ptr_eq(&current.0, &connection.0));
    }

    /// Forgets the connection on drop, unless [`Watch::answered`] is called. A send may be dropped at any point, and a connection that did not answer
    /// it will not answer the next one.
    pub fn watch<'a>(&'a self, connection: &'a Linked<C::Connection>) -> Watch<'a, C> {
        Watch { link: self, connection: Some(connection) }
    }

    /// The outcome of events that were sent when the connection was lost, before `awaited` came. If the server can be reached again, nobody
    /// knows which of them it accepted; otherwise it is down.
    pub async fn lost(&self, awaited: &str, error: &str, deadline: &Deadline) -> Outcome {
        match deadline.before(self.get()).await {
            Some(Ok(_)) | None => {
                Outcome::unknown(format!("the connection was lost before {awaited}: {error}"))
            }
            Some(Err(down)) => {
                Outcome::unavailable(format!("{down}; the previous connection was lost: {error}"))
            }
        }
    }

    fn current(&self) -> Option<Linked<C::Connection>> {
        let mut slot = self.slot();
        slot.take_if(|connection| !C::is_open(connection));
        slot.clone()
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Linked<C::Connection>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A send under way; see [`Link::watch`].
pub struct Watch<'a, C: Connect> {
    link: &'a Link<C>,
    connection: Option<&'a Linked<C::Connection>>,
}

impl<C: Connect> Watch<'_, C> {
    /// Keeps the connection: everything was answered.
    pub fn answered(mut self) {
        self.connection = None;
    }
}

impl<C: Connect> Drop for Watch<'_, C> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection {
            self.link.forget(connection);
        }
    }
}

fn pause(failed: u32) -> Duration {
    let doubled = 1u32.checked_shl(failed.saturating_sub(1)).unwrap_or(u32::MAX);
    PAUSE_MIN.saturating_mul(doubled).min(PAUSE_MAX)
}
