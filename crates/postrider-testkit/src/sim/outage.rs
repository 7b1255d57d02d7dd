//! Stretches of time in which a receiver does nothing but one wrong thing.

use std::{sync::Arc, time::Duration};

use postrider_core::rng::Rng;
use tokio::{task::JoinHandle, time::Instant};

use super::{
    history::{Happening, History},
    receiver::To,
    scenario::Scenario,
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
}

impl Whole {
    fn word(self) -> &'static str {
        match self {
            Self::Refuse => "refuses",
            Self::Fail => "fails",
            Self::Hang { .. } => "hangs",
            Self::Lose => "loses answers",
            Self::TooFew => "answers nothing",
            Self::Panic => "panics",
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Outage {
    /// From the beginning of the run.
    pub(super) from: Duration,
    pub(super) to: Duration,
    pub(super) whole: Whole,
}

impl Outage {
    pub(super) fn draw(rng: &mut Rng, to: To, calm: bool) -> Self {
        let from = Duration::from_millis(rng.below(if calm { 300 } else { 3000 }));
        // All retries together take less than three seconds.
        let lasts = match (calm, rng.chance(0.3)) {
            (true, _) => 12_000 + rng.below(18_000),
            (false, true) => 5000 + rng.below(25_000),
            (false, false) => 50 + rng.below(2000),
        };
        let whole = match (to, rng.below(7)) {
            // A handler in this process is down only if it says so.
            (To::Handler, _) | (_, 0) => Whole::Refuse,
            (_, 1 | 2) => Whole::Fail,
            (_, 3) => Whole::Hang { effect: rng.chance(0.3) },
            (_, 4) => Whole::Lose,
            (_, 5) => Whole::TooFew,
            _ => Whole::Panic,
        };
        Self { from, to: from + Duration::from_millis(lasts), whole }
    }
}

/// Writes down when outages begin and end.
pub(super) fn note(scenario: &Scenario, history: &Arc<History>) -> Vec<JoinHandle<()>> {
    let began = Instant::now();
    let all = scenario
        .receivers
        .iter()
        .flat_map(|receiver| receiver.outages.iter().map(move |outage| (receiver.to, outage.clone())));
    all.map(|(to, outage)| {
        let history = history.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(began + outage.from).await;
            history.note(Happening::OutageBegan(to, outage.whole.word()));
            tokio::time::sleep_until(began + outage.to).await;
            history.note(Happening::OutageEnded(to));
        })
    })
    .collect()
}
