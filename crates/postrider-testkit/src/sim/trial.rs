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
    /// A sink fails most keys, and its health check passes.
    FailingKeys,
    /// A process crashes with many events under way to a slow sink.
    Suspects,
    /// A process stops while one send takes very long.
    Stop,
    /// A process joins while one send takes very long.
    Join,
    /// A sink says that it is down, to a few events alone.
    RefusedAlone,
    /// A few calls of the database are never answered.
    HungVerbs,
    /// Polls are rare, so that peeks have to find what nobody tells of.
    Peeks,
    /// The database refuses some verbs for several leases.
    StoreRefuses,
}

impl Trial {
    const RARE: [Self; 16] = [
        Self::LongKey,
        Self::OneDestination,
        Self::HangingDestination,
        Self::TooFast,
        Self::Spoilers,
        Self::Rejects,
        Self::Broken,
        Self::Hangs,
        Self::FailingKeys,
        Self::Suspects,
        Self::Stop,
        Self::Join,
        Self::RefusedAlone,
        Self::HungVerbs,
        Self::Peeks,
        Self::StoreRefuses,
    ];

    /// Half of the runs are none.
    pub(super) fn draw(rng: &mut Rng) -> Option<Self> {
        match rng.below(100) {
            0..9 => Some(Self::Outage),
            9..17 => Some(Self::Pause),
            17..50 => Self::RARE.get(rng.below(Self::RARE.len() as u64) as usize).copied(),
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
