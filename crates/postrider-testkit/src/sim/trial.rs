//! Runs in which one thing goes wrong and nothing else: what it does to all the others can be told.

use postrider_core::rng::Rng;

use super::receiver::To;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trial {
    /// A receiver is down.
    Outage,
    /// A sink is paused.
    Pause,
    /// One key has many events, and its receiver is slow with them.
    LongKey,
    /// One destination of a sink is down.
    OneDestination,
    /// One destination of a sink hangs for longer than anybody wants to wait.
    HangingDestination,
    /// A sink takes so much and no more.
    TooFast,
    /// A few events fail every batch that they are in.
    Spoilers,
    /// A sink, or one destination of it, rejects everything.
    Rejects,
    /// A sink fails everything, and says that it is well.
    Broken,
    /// A handler does not end, now and then.
    Hangs,
}

impl Trial {
    const NEW: [Self; 8] = [
        Self::LongKey,
        Self::OneDestination,
        Self::HangingDestination,
        Self::TooFast,
        Self::Spoilers,
        Self::Rejects,
        Self::Broken,
        Self::Hangs,
    ];

    /// Most runs are none.
    pub(super) fn draw(rng: &mut Rng) -> Option<Self> {
        match rng.below(100) {
            0..10 => Some(Self::Outage),
            10..20 => Some(Self::Pause),
            20..41 => Self::NEW.get(rng.below(Self::NEW.len() as u64) as usize).copied(),
            _ => None,
        }
    }

    /// The receiver that it happens to.
    pub(super) fn victim(self, rng: &mut Rng) -> To {
        let sink = if rng.chance(0.5) { To::Batch } else { To::Shared };
        match self {
            Self::Outage | Self::Pause | Self::LongKey if rng.chance(0.33) => To::Handler,
            Self::Spoilers => To::Batch,
            Self::Hangs => To::Handler,
            _ => sink,
        }
    }
}
