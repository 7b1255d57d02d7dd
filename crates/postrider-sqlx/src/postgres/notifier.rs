//! Wake-ups between processes: `NOTIFY` from a connection of our own, after the commit, many as one; and `LISTEN`.
//!
//! Never inside of the business transaction: PostgreSQL lets those that notify commit one after the other.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::SeqCst},
};

use postrider_core::{rng::Rng, tx::Prefix};
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use tokio::sync::Mutex;

/// Nothing is to be sent; something is being sent; something is to be sent after that.
const IDLE: u8 = 0;
const SENDING: u8 = 1;
const AGAIN: u8 = 2;

/// Rings for others, and hears them.
pub(super) struct Notifier {
    channel: String,
    /// Who rings: one's own ringing is no news.
    ringer: String,
    state: AtomicU8,
    /// The connection to listen on; none behind a pooler, whose connections nobody keeps.
    ears: Option<PgPool>,
    listener: Mutex<Option<PgListener>>,
}

impl Notifier {
    pub(super) fn new(prefix: &Prefix, options: Option<PgConnectOptions>) -> Self {
        let ringer = format!("{:016x}", Rng::from_entropy().next_u64());
        let channel = format!("{prefix}wake").to_ascii_lowercase();
        let ears = options.map(|options| {
            let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
            pool.connect_lazy_with(options)
        });
        Self { channel, ringer, state: AtomicU8::new(IDLE), ears, listener: Mutex::new(None) }
    }

    /// Rings soon, by having `send` run a statement. While one ring is under way, any number of others become one: so `send` must end, whatever
    /// becomes of its connection.
    pub(super) fn ring<F>(self: &Arc<Self>, send: impl Fn(String) -> F + Send + 'static)
    where
        F: Future<Output = sqlx::Result<()>> + Send + 'static,
    {
        if self.state.swap(AGAIN, SeqCst) != IDLE {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            self.state.store(IDLE, SeqCst);
            return;
        };
        let notifier = Arc::clone(self);
        runtime.spawn(async move {
            loop {
                notifier.state.store(SENDING, SeqCst);
                if let Err(error) = send(format!("NOTIFY {}, '{}'", notifier.channel, notifier.ringer)).await
                {
                    tracing::debug!(%error, "could not wake others: they will poll");
                }
                if notifier.state.compare_exchange(SENDING, IDLE, SeqCst, SeqCst).is_ok() {
                    return;
                }
            }
        });
    }

    /// Waits until somebody else rings. A connection that was made anew counts: nobody knows what was missed.
    pub(super) async fn heard(&self) -> sqlx::Result<()> {
        let Some(ears) = &self.ears else {
            return std::future::pending().await;
        };
        let mut place = self.listener.lock().await;
        let Some(listener) = place.as_mut() else {
            *place = Some(self.listen(ears).await?);
            return Ok(());
        };
        loop {
            match listener.try_recv().await {
                Ok(Some(ring)) if ring.payload() == self.ringer => {}
                Ok(_) => {
                    // What has come meanwhile is the same news.
                    while listener.next_buffered().is_some() {}
                    return Ok(());
                }
                Err(error) => {
                    *place = None;
                    return Err(error);
                }
            }
        }
    }

    async fn listen(&self, ears: &PgPool) -> sqlx::Result<PgListener> {
        let mut listener = PgListener::connect_with(ears).await?;
        listener.listen(&self.channel).await?;
        Ok(listener)
    }

    /// Closes the connection that listens. Anyone who waits for a ring is told that there will be none.
    pub(super) async fn close(&self) {
        let Some(ears) = &self.ears else { return };
        // From now on the pool counts as closed: a wait for a ring ends, and gives the listener free.
        let closed = ears.close();
        drop(self.listener.lock().await.take());
        closed.await;
    }
}
