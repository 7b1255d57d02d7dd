//! Being asked to end: Ctrl-C, or the signal that service managers send.
//!
//! Signals are heard by a thread of their own. The threads of the runtime may all be stuck, for example in a handler that never waits; the
//! process must end all the same.

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

/// How long an end by force waits until the reason is logged.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The exit status of an end by force.
const EXIT_BY_FORCE: i32 = 1;

/// SIGINT and SIGTERM. The first of them asks this process to end, the second one ends it at once.
#[derive(Debug)]
pub struct Ending {
    asked: CancellationToken,
    limit: Limit,
}

/// How long an end may take from the first signal on; for ever unless it is said. Cloning it copies a pointer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limit(Arc<Mutex<Option<Duration>>>);

impl Limit {
    pub(crate) fn set(&self, limit: Duration) {
        // Nothing here can be left half done.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(limit);
    }

    /// Returns when so long has passed from now.
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
    /// From here on the first signal no longer kills this process.
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

    /// How long the end may take.
    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Returns when the process is asked to end. If it is dropped before, no signal is lost.
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
    /// With a runtime that has nothing else to do.
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

/// Passes the first signal on, and ends the process at the second one or when its time is up.
async fn watch(mut heard: Heard, asked: &CancellationToken, limit: &Limit) -> Infallible {
    heard.next().await;
    asked.cancel();
    let why = tokio::select! {
        () = heard.next() => "a second signal came".to_owned(),
        limit = limit.passed() => format!("it did not end within {limit:?}"),
    };
    error!(why, "ended by force: what was under way may come again");
    operations::log::flush(LAST_WORDS);
    exit(EXIT_BY_FORCE)
}

/// What a relay is asked for by signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    ToEnd,
    ToReload,
}

/// SIGINT and SIGTERM to end, SIGHUP to read the configuration again.
pub(crate) struct Signals {
    ending: Ending,
    hang_up: Signal,
}

impl Signals {
    /// From here on the signals no longer kill this process.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let hang_up = signal(SignalKind::hangup())
            .map_err(|error| Failure::unreachable("cannot listen for signals", &error))?;
        Ok(Self { ending: Ending::listen()?, hang_up })
    }

    /// How long the end may take.
    pub(crate) fn limit(&self) -> &Limit {
        self.ending.limit()
    }

    /// What the process is asked for next. If it is dropped before, no signal is lost.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            biased;
            () = self.ending.asked() => Asked::ToEnd,
            _ = self.hang_up.recv() => Asked::ToReload,
        }
    }
}
