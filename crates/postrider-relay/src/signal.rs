//! Being asked to end: Ctrl-C, or the signal that service managers send.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// SIGINT and SIGTERM.
pub(crate) struct Ending {
    interrupt: Signal,
    terminate: Signal,
}

impl Ending {
    /// From here on the signals no longer kill this process.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let on =
            |kind| signal(kind).map_err(|error| Failure::unreachable("cannot listen for signals", &error));
        Ok(Self { interrupt: on(SignalKind::interrupt())?, terminate: on(SignalKind::terminate())? })
    }

    /// Returns when the process is asked to end. If it is dropped before, no signal is lost.
    pub(crate) async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
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

    /// What the process is asked for next. If it is dropped before, no signal is lost.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            biased;
            () = self.ending.asked() => Asked::ToEnd,
            _ = self.hang_up.recv() => Asked::ToReload,
        }
    }
}
