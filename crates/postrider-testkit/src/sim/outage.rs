//! Stretches of time in which a receiver does nothing but one wrong thing.

use std::{sync::Arc, time::Duration};

use postrider_core::rng::Rng;
use tokio::{task::JoinHandle, time::Instant};

use super::{
    destinations::Destination,
    history::{Happening, History},
    receiver::To,
    scenario::{HealthHabit, ReceiverScenario, Scenario},
};

/// What a receiver does with all events of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whole {
    /// Says that it is down.
    Refuse,
    /// Fails them, as a server with status 500 does.
    Fail,
    /// Gives no answer, ever; they may have taken effect.
    Hang {
        effect: bool,
    },
    /// They take effect, and the answer is that nobody knows.
    Lose,
    /// Answers fewer events than there are, during an outage none.
    TooFew,
    Panic,
    /// Says of each that it will never be accepted.
    Reject,
}

impl Whole {
    pub(super) fn draw(rng: &mut Rng, to: To) -> Self {
        match (to, rng.below(8)) {
            // A handler in this process is down only if it says so.
            (To::Handler, _) | (_, 0) => Self::Refuse,
            (_, 1 | 2) => Self::Fail,
            (_, 3) => Self::Hang { effect: rng.chance(0.3) },
            (_, 4) => Self::Lose,
            (_, 5) => Self::TooFew,
            (_, 6) => Self::Reject,
            _ => Self::Panic,
        }
    }

    /// What one destination can do while the others work.
    pub(super) fn draw_for_one(rng: &mut Rng) -> Self {
        match rng.below(4) {
            0 => Self::Refuse,
            1 => Self::Fail,
            2 => Self::Lose,
            _ => Self::Hang { effect: rng.chance(0.3) },
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Refuse => "refuses",
            Self::Fail => "fails",
            Self::Hang { .. } => "hangs",
            Self::Lose => "loses answers",
            Self::TooFew => "answers nothing",
            Self::Panic => "panics",
            Self::Reject => "rejects",
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Outage {
    /// From the beginning of the run.
    pub(super) from: Duration,
    pub(super) to: Duration,
    pub(super) whole: Whole,
    /// The only destination that it happens to; none for all of them.
    pub(super) destination: Option<Destination>,
}

impl Outage {
    /// Where anything may go wrong.
    pub(super) fn draw(rng: &mut Rng, receiver: &ReceiverScenario) -> Self {
        let from = Duration::from_millis(rng.below(3000));
        // All retries together take less than three seconds.
        let lasts = if rng.chance(0.3) { 5000 + rng.below(25_000) } else { 50 + rng.below(2000) };
        let destination =
            (receiver.destinations > 1 && rng.chance(0.6)).then(|| rng.below(receiver.destinations));
        let whole = match destination {
            None => Whole::draw(rng, receiver.to),
            Some(_) if rng.chance(0.2) => Whole::Reject,
            Some(_) => Whole::draw_for_one(rng),
        };
        Self { from, to: from + Duration::from_millis(lasts), whole, destination }
    }

    /// A long one, where nothing else goes wrong.
    pub(super) fn long(rng: &mut Rng, whole: Whole) -> Self {
        let from = Duration::from_millis(rng.below(300));
        let lasts = Duration::from_millis(12_000 + rng.below(18_000));
        Self { from, to: from + lasts, whole, destination: None }
    }

    /// Whether all of it, or the part that an event goes to, is down at this moment.
    pub(super) fn hits(&self, since_began: Duration, destination: Option<Destination>) -> bool {
        (self.from..self.to).contains(&since_began) && self.destination == destination
    }
}

/// Writes down when outages and limits begin and end.
pub(super) fn note(scenario: &Scenario, history: &Arc<History>) -> Vec<JoinHandle<()>> {
    let began = Instant::now();
    let all = scenario.receivers.iter().flat_map(|receiver| {
        let is_well = receiver.health == HealthHabit::Lies;
        let word = move |whole: Whole| {
            if is_well && whole == Whole::Fail { "fails and is well" } else { whole.word() }
        };
        let outages = receiver.outages.iter();
        let outages = outages.map(move |each| (each.from, each.to, each.destination, word(each.whole)));
        let limit = receiver.limit.iter();
        let limits = limit.map(|limit| (limit.from, limit.to, limit.destination, "has a limit"));
        outages.chain(limits).map(move |each| (receiver.to, each))
    });
    all.map(|(to, (from, until, destination, word))| {
        let history = history.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(began + from).await;
            history.note(Happening::OutageBegan(to, destination, word));
            tokio::time::sleep_until(began + until).await;
            history.note(Happening::OutageEnded(to, destination));
        })
    })
    .collect()
}
