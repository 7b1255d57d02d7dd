//! One connection that many sends share: made when the first needs it, and again when it is lost.
//!
//! State: the connection, if there is one; how many attempts have failed since there was one; and when the next may be made.
//! A connection that ends, or that a send was given up on, is not used again. While an attempt is under way everybody waits for it and
//! takes what comes of it, so that a server which does not answer costs a send one time-out, however many there are.

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

use tokio::time::Instant;

use crate::Deadline;

/// How long to wait after the first attempt that failed.
pub const PAUSE_MIN: Duration = Duration::from_millis(50);
/// How long to wait at most. It lies inside of a send, so it is short; who sends keeps away for longer.
pub const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How a connection is made.
pub trait Connect: Send + Sync + 'static {
    /// A connection.
    type Connection: Send + Sync + 'static;

    /// Makes one, or says why there is none, without secrets.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, String>> + Send;

    /// Whether it has not ended, as far as is known.
    fn is_open(connection: &Self::Connection) -> bool;
}

/// A connection that others may be using as well.
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
    /// How many attempts have ended.
    made: AtomicU64,
    attempts: tokio::sync::Mutex<Attempts>,
}

#[derive(Debug, Default)]
struct Attempts {
    /// How many failed since one did not.
    failed: u32,
    /// When the last one ended.
    ended: Option<Instant>,
    /// Why it failed.
    error: String,
}

impl<C: Connect> fmt::Debug for Link<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("connected", &self.current().is_some()).finish_non_exhaustive()
    }
}

impl<C: Connect> Link<C> {
    /// Nothing is connected yet.
    pub fn new(connector: C, connect_timeout: Duration) -> Self {
        let (current, made) = (Mutex::default(), AtomicU64::new(0));
        Self { connector, connect_timeout, current, made, attempts: tokio::sync::Mutex::default() }
    }

    /// What makes the connections.
    pub fn connector(&self) -> &C {
        &self.connector
    }

    /// The connection that there is, or a new one; or why there is none.
    pub async fn get(&self) -> Result<Linked<C::Connection>, String> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let seen = self.made.load(SeqCst);
        let mut attempts = self.attempts.lock().await;
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        // Somebody has tried since we asked: what they found holds for us.
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

    /// The same, for a send that ends at some time whether there is a connection or not.
    pub async fn get_before(&self, deadline: &Deadline) -> Result<Linked<C::Connection>, String> {
        let got = deadline.before(self.get()).await;
        got.unwrap_or_else(|| Err("there is no connection in time for this send".to_owned()))
    }

    /// This connection is not to be used again. Who uses it goes on.
    pub fn forget(&self, connection: &Linked<C::Connection>) {
        self.slot().take_if(|current| Arc::ptr_eq(&current.0, &connection.0));
    }

    /// Forgets the connection unless it is told that all went well: for a send that may be dropped at any point, since what was
    /// not answered is not answered to the next one either.
    pub fn watch<'a>(&'a self, connection: &'a Linked<C::Connection>) -> Watch<'a, C> {
        Watch { link: self, connection: Some(connection) }
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
    /// Everything was answered.
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
