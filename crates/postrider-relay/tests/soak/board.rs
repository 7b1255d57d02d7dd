//! How the receivers in this program behave now, by destination.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::world::{DESTINATIONS, Destination};

/// How a destination behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Well,
    /// 503 to everything.
    Unavailable,
    /// 500 to everything.
    Failing,
    /// No answer, and nothing is taken.
    HangsBefore,
    /// Everything is taken, and nobody is told.
    HangsAfter,
    /// 429 with `Retry-After` beyond a few requests a second.
    Limited,
    /// 400 to everything.
    Rejects,
}

impl Mode {
    /// A health check that tells the truth fails.
    fn is_outage(self) -> bool {
        matches!(self, Self::Unavailable | Self::Failing | Self::HangsBefore | Self::HangsAfter)
    }
}

/// Requests a second that a limited destination takes, and at once after a rest.
const LIMIT: f64 = 15.0;

#[derive(Debug, Clone, Copy)]
struct Place {
    mode: Mode,
    tokens: f64,
    filled: Instant,
}

impl Place {
    fn take_token(&mut self) -> bool {
        let now = Instant::now();
        let filled = self.tokens + now.duration_since(self.filled).as_secs_f64() * LIMIT;
        (self.tokens, self.filled) = (filled.min(LIMIT), now);
        let takes = self.tokens >= 1.0;
        if takes {
            self.tokens -= 1.0;
        }
        takes
    }
}

#[derive(Debug)]
pub(crate) struct Board(Mutex<[Place; DESTINATIONS]>);

impl Board {
    pub(crate) fn new() -> Self {
        let place = Place { mode: Mode::Well, tokens: 0.0, filled: Instant::now() };
        Self(Mutex::new([place; DESTINATIONS]))
    }

    fn lock(&self) -> MutexGuard<'_, [Place; DESTINATIONS]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, destination: Destination, mode: Mode) {
        if let Some(place) = self.lock().get_mut(destination.index()) {
            place.mode = mode;
        }
    }

    /// How a request is to be treated now. One that a limit lets through is treated well.
    pub(crate) fn ask(&self, destination: Destination) -> Mode {
        let mut places = self.lock();
        let Some(place) = places.get_mut(destination.index()) else { return Mode::Well };
        if place.mode == Mode::Limited && place.take_token() { Mode::Well } else { place.mode }
    }

    pub(crate) fn mode(&self, destination: Destination) -> Mode {
        self.lock().get(destination.index()).map_or(Mode::Well, |place| place.mode)
    }

    /// Whether all of these are well enough for a health check.
    pub(crate) fn are_healthy(&self, mut destinations: impl Iterator<Item = Destination>) -> bool {
        destinations.all(|destination| !self.mode(destination).is_outage())
    }
}
