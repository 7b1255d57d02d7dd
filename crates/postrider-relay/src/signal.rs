//! Listens for the signals that end or reload this process.
//!
//! A thread of its own listens for them, because all threads of the runtime may be stuck, for example in a handler that blocks. The process must
//! end all the same.

use std::{
    convert::Infallible,
    process::exit,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::{failure::Failure, operations};

/// How long a forced exit waits until its reason is logged.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The exit status of a forced exit.
const EXIT_BY_FORCE: i32 = 1;

/// SIGINT and SIGTERM. The first asks this process to end, the second ends it at once.
#[derive(Debug)]
pub struct Ending {
    asked: CancellationToken,
    limit: Limit,
}

/// How long the process may take to end after the first signal; unlimited unless set. Cloning copies a pointer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limit(Arc<Mutex<Option<Duration>>>);

impl Limit {
    pub(crate) fn set(&self, limit: Duration) {
        // Every write is a single operation, so a poisoned lock holds valid data.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(limit);
    }

    /// Returns when the limit has passed from now.
    async fn passed(&self) -> Duration {
        let limit = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match limit {
            Some(limit) => {
                tokio::time::sleep(limit).await;
                limit
            }
            None => std::future::pending().await,
        }
    }
}

impl Ending {
    /// Starts to listen. From now on the first signal does not kill this process.
    pub fn listen() -> Result<Self, Failure> {
        let ending = Self { asked: CancellationToken::new(), limit: Limit::default() };
        let (asked, limit) = (ending.asked.clone(), ending.limit.clone());
        let (sender, listening) = mpsc::sync_channel(1);
        let listen = move || match Heard::listen() {
            Ok((runtime, heard)) => {
                _ = sender.send(Ok(()));
                match runtime.block_on(watch(heard, &asked, &limit)) {}
            }
            Err(error) => _ = sender.send(Err(error)),
        };
        let cannot = |error| Failure::unreachable("cannot listen for signals", &error);
        thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(cannot)?;
        listening.recv().map_or(Ok(()), |listens| listens.map_err(cannot))?;
        Ok(ending)
    }

    /// How long the process may take to end.
    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Returns when the process is asked to end. Dropping the future loses no signal.
    pub async fn asked(&self) {
        self.asked.cancelled().await;
    }
}

/// The signals that end a process.
struct Heard {
    interrupt: Signal,
    terminate: Signal,
}

impl Heard {
    /// Listens on a runtime that does nothing else.
    fn listen() -> std::io::Result<(tokio::runtime::Runtime, Self)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let heard = {
            let _context = runtime.enter();
            Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? }
        };
        Ok((runtime, heard))
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Passes on the first signal, and exits at the second or when the time is up.
async fn watch(mut heard: Heard, asked: &CancellationToken, limit: &Limit) -> Infallible {
    heard.next().await;
    asked.cancel();
    let why = tokio::select! {
        () = heard.next() => "a second signal came".to_owned(),
        limit = limit.passed() => format!("it did not end within {limit:?}"),
    };
    error!(why, "forced exit: events under way may be delivered again");
    operations::log::flush(LAST_WORDS);
    exit(EXIT_BY_FORCE)
}

/// What a signal asks of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    ToEnd,
    ToReload,
}

/// SIGINT and SIGTERM to end, SIGHUP to reload the configuration.
pub(crate) struct Signals {
    ending: Ending,
    hang_up: Signal,
}

impl Signals {
    /// Starts to listen. From now on the signals do not kill this process.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let hang_up = signal(SignalKind::hangup())
            .map_err(|error| Failure::unreachable("cannot listen for signals", &error))?;
        Ok(Self { ending: Ending::listen()?, hang_up })
    }

    /// How long the process may take to end.
    pub(crate) fn limit(&self) -> &Limit {
        self.ending.limit()
    }

    /// The next request. Dropping the future loses no signal.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            biased;
            () = self.ending.asked() => Asked::ToEnd,
            _ = self.hang_up.recv() => Asked::ToReload,
        }
    }
}
