//! A database that does one thing wrong in a trial: it refuses some verbs for a while, or never answers a few calls.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use postrider_core::rng::Rng;
use tokio::time::Instant;

/// The verbs that one part of an engine needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Verbs {
    Renewals,
    Claims,
    Settles,
}

impl Verbs {
    fn contain(self, verb: &str) -> bool {
        match self {
            Self::Renewals => matches!(verb, "renew" | "join" | "lease"),
            Self::Claims => verb == "claim",
            Self::Settles => verb == "settle",
        }
    }
}

/// A stretch of time in which some verbs are refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refusing {
    pub(super) verbs: Verbs,
    /// From the beginning of the run.
    pub(super) from: Duration,
    pub(super) to: Duration,
}

impl Refusing {
    /// Several leases long.
    pub(super) fn draw(rng: &mut Rng, lease: Duration) -> Self {
        let verbs = match rng.below(3) {
            0 => Verbs::Renewals,
            1 => Verbs::Claims,
            _ => Verbs::Settles,
        };
        let from = Duration::from_millis(300 + rng.below(700));
        Self { verbs, from, to: from + lease * 3 + Duration::from_millis(2000 + rng.below(2000)) }
    }

    /// Waits until it is over, and engines have had the time to notice.
    pub(super) async fn over(self, lease: Duration) {
        tokio::time::sleep(self.to + lease + Duration::from_secs(5)).await;
    }
}

/// A call that is never answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hung {
    verb: &'static str,
    /// It is this call of its verb.
    call: u64,
    /// Whether it takes effect.
    pub(super) takes_effect: bool,
}

impl Hung {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        const VERBS: [&str; 7] = ["claim", "settle", "renew", "join", "lease", "mark_sent", "pauses"];
        let verb = VERBS.get(rng.below(VERBS.len() as u64) as usize).copied().unwrap_or("claim");
        Self { verb, call: 1 + rng.below(8), takes_effect: rng.chance(0.5) }
    }
}

/// The trouble of a run.
#[derive(Debug)]
pub(super) struct Trouble {
    began: Instant,
    refusing: Option<Refusing>,
    hung: Vec<Hung>,
    calls: Mutex<BTreeMap<&'static str, u64>>,
}

impl Trouble {
    pub(super) fn new(refusing: Option<Refusing>, hung: Vec<Hung>) -> Self {
        Self { began: Instant::now(), refusing, hung, calls: Mutex::default() }
    }

    /// Whether a verb is refused now.
    pub(super) fn refuses(&self, verb: &str) -> bool {
        let now = self.began.elapsed();
        self.refusing.is_some_and(|each| each.verbs.contain(verb) && (each.from..each.to).contains(&now))
    }

    /// Counts a call, and says whether it is one that is never answered.
    pub(super) fn hangs(&self, verb: &'static str) -> Option<Hung> {
        if self.hung.is_empty() {
            return None;
        }
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let count = calls.entry(verb).or_default();
        *count += 1;
        self.hung.iter().find(|hung| hung.verb == verb && hung.call == *count).copied()
    }
}
