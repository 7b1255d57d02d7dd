//! How an engine is: when its verbs last succeeded, and since when they do not.
//!
//! A database that answers a ping may refuse every settle. So nobody is asked: what the engine does anyway tells.

use std::{collections::BTreeSet, sync::Mutex, time::Duration};

use postrider_core::{Error, sink::error_chain};
use tokio::time::Instant;

use crate::{
    Unsettled, lock,
    mutations::{self, Mutation},
};

/// What a verb has come to, last.
#[derive(Debug, Default)]
struct VerbHealth {
    succeeded: Option<Instant>,
    /// Since when it has not succeeded, and why.
    failing: Option<(Instant, String)>,
}

impl VerbHealth {
    fn succeed(&mut self) {
        *self = Self { succeeded: Some(Instant::now()), failing: None };
    }

    fn fail(&mut self, error: String) {
        let since = self.failing.take().map_or_else(Instant::now, |(since, _)| since);
        self.failing = Some((since, error));
    }

    fn error(&self) -> String {
        self.failing.as_ref().map_or(String::new(), |(_, error)| format!(": {error}"))
    }
}

#[derive(Debug)]
struct HealthState {
    started: Instant,
    renewal: VerbHealth,
    claim: VerbHealth,
    settle: VerbHealth,
    /// Since when the settle under way is.
    settling: Option<Instant>,
    /// When an outcome was written last.
    wrote: Instant,
    locked_lanes: Option<LockedLanes>,
}

/// Lanes that an instance could have, and that another session has locked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockedLanes {
    /// Since when some are.
    pub(crate) since: Instant,
    pub(crate) lanes: usize,
}

/// What the tasks of an engine note of their verbs.
#[derive(Debug)]
pub(crate) struct HealthTracker(Mutex<HealthState>);

impl HealthTracker {
    pub(crate) fn new() -> Self {
        let (renewal, claim, settle) = Default::default();
        let started = Instant::now();
        let (settling, locked_lanes) = (None, None);
        Self(Mutex::new(HealthState {
            started,
            renewal,
            claim,
            settle,
            settling,
            wrote: started,
            locked_lanes,
        }))
    }

    /// A lane was renewed or taken; or, where it has none, others hold all of them.
    pub(crate) fn renewed(&self) {
        lock(&self.0).renewal.succeed();
    }

    pub(crate) fn renewal_failed(&self, error: &Error) {
        lock(&self.0).renewal.fail(error_chain(error));
    }

    /// None of its lanes could be renewed or taken: another session has locked so many.
    pub(crate) fn locked_out(&self, lanes: usize) {
        lock(&self.0).renewal.fail(format!("another session has locked the rows of {lanes} lanes"));
    }

    /// So many lanes that it asked for are locked.
    pub(crate) fn lanes_locked(&self, lanes: usize) {
        let mut state = lock(&self.0);
        let since = state.locked_lanes.map_or_else(Instant::now, |locked| locked.since);
        state.locked_lanes = (lanes > 0).then_some(LockedLanes { since, lanes });
    }

    /// The lanes that it could have and that are locked, if there are some.
    pub(crate) fn locked_lanes(&self) -> Option<LockedLanes> {
        lock(&self.0).locked_lanes
    }

    pub(crate) fn claimed(&self) {
        lock(&self.0).claim.succeed();
    }

    pub(crate) fn claim_failed(&self, error: &Error) {
        lock(&self.0).claim.fail(error_chain(error));
    }

    /// Outcomes were taken to be settled.
    pub(crate) fn settling(&self) {
        lock(&self.0).settling = Some(Instant::now());
    }

    pub(crate) fn settle_failed(&self, error: &Error) {
        lock(&self.0).settle.fail(error_chain(error));
    }

    /// Since when no settle succeeds, if none does.
    pub(crate) fn settle_failing_since(&self) -> Option<Instant> {
        lock(&self.0).settle.failing.as_ref().map(|(since, _)| *since)
    }

    /// Outcomes were written.
    pub(crate) fn wrote(&self) {
        lock(&self.0).wrote = Instant::now();
    }

    /// When an outcome was written last, or when the engine started.
    pub(crate) fn wrote_at(&self) -> Instant {
        lock(&self.0).wrote
    }

    /// The outcomes that were taken are settled, or are nobody's any more.
    pub(crate) fn settled(&self) {
        let mut state = lock(&self.0);
        state.settling = None;
        state.settle.succeed();
    }

    /// How the engine is; `waiting` is since when outcomes wait that nobody has taken yet, `refused` are those that the database refuses, and
    /// `stopped` the types that are no longer sent for that reason.
    pub(crate) fn health(
        &self,
        lease: Duration,
        waiting: Option<Instant>,
        refused: &[Unsettled],
        stopped: &BTreeSet<String>,
    ) -> EngineHealth {
        let (state, now) = (lock(&self.0), Instant::now());
        let age = |at: Instant| now.saturating_duration_since(at);
        let renewed = age(state.renewal.succeeded.unwrap_or(state.started));
        let claim_failing = state.claim.failing.as_ref().map(|(since, _)| age(*since));
        let unsettled = state.settling.into_iter().chain(waiting).min().map(age);
        let late = |age: Duration| age > lease && !mutations::active(Mutation::ReadyRegardless);
        let mut reasons = Vec::new();
        if late(renewed) {
            reasons.push(format!("no lease was renewed for {renewed:.0?}{}", state.renewal.error()));
        }
        if let Some(failing) = claim_failing.filter(|age| late(*age)) {
            reasons.push(format!("claims have failed for {failing:.0?}{}", state.claim.error()));
        }
        if let Some(unsettled) = unsettled.filter(|age| late(*age)) {
            reasons.push(format!("outcomes wait to be settled for {unsettled:.0?}{}", state.settle.error()));
        }
        if let Some(Unsettled { event_id, error, .. }) = refused.first() {
            let events = refused.len();
            reasons.push(format!(
                "the database refuses to write what became of {events} events, {event_id} among them: {error}"
            ));
        }
        if !stopped.is_empty() {
            let types: Vec<&str> = stopped.iter().map(String::as_str).collect();
            reasons.push(format!(
                "events of these types are no longer sent, since the database refuses to write what becomes of them: {}",
                types.join(", ")
            ));
        }
        EngineHealth {
            renewed,
            claimed: state.claim.succeeded.map(age),
            settled: state.settle.succeeded.map(age),
            claim_failing,
            unsettled,
            reasons,
        }
    }
}

/// How an engine is. Everything in it is an age.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineHealth {
    /// Since a lane of its own was renewed or taken; since it saw that others hold all lanes, if it has none; since it started, before either.
    pub renewed: Duration,
    /// Since the last claim that succeeded, if there was one.
    pub claimed: Option<Duration>,
    /// Since the last settle that was committed, if there was one. An idle engine settles nothing.
    pub settled: Option<Duration>,
    /// Since when claims fail, if they do.
    pub claim_failing: Option<Duration>,
    /// How long the oldest outcome waits to be settled, if one does.
    pub unsettled: Option<Duration>,
    /// Why the engine is not ready, for people to read; none if it is. It is not when its last renewal is older than the lease, be it because another
    /// session has locked its lanes, when claims have failed for longer than that, when outcomes wait for longer, or when the database refuses to write one.
    pub reasons: Vec<String>,
}

impl EngineHealth {
    /// Whether it does its work.
    pub fn is_ready(&self) -> bool {
        self.reasons.is_empty()
    }
}
