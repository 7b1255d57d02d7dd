//! Owns the engine's health: when its calls to the store last succeeded, and since when they fail.
//!
//! A database that answers a ping may refuse every settle. So the health comes from the calls that the engine
//! makes anyway.

use std::{collections::BTreeSet, sync::Mutex, time::Duration};

use postrider_core::{Error, sink::error_chain};
use tokio::time::Instant;

use crate::{
    Unsettled, lock,
    mutations::{self, Mutation},
};

/// The last result of one kind of call.
#[derive(Debug, Default)]
struct VerbHealth {
    succeeded: Option<Instant>,
    /// Since when it fails, and why.
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
    /// Since when the running settle runs.
    settling: Option<Instant>,
    /// When an outcome was last written.
    wrote: Instant,
    locked_lanes: Option<LockedLanes>,
}

/// Lanes that this instance could have and another session has locked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockedLanes {
    /// Since when some are locked.
    pub(crate) since: Instant,
    pub(crate) lanes: usize,
}

/// Records the results of the engine's calls.
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

    /// Records that a lane was renewed or taken; or, without lanes, that others hold all of them.
    pub(crate) fn renewed(&self) {
        lock(&self.0).renewal.succeed();
    }

    pub(crate) fn renewal_failed(&self, error: &Error) {
        lock(&self.0).renewal.fail(error_chain(error));
    }

    /// Records that no lane could be renewed or taken, because another session has locked this many.
    pub(crate) fn locked_out(&self, lanes: usize) {
        lock(&self.0).renewal.fail(format!("another session has locked the rows of {lanes} lanes"));
    }

    /// Records how many of the requested lanes are locked.
    pub(crate) fn lanes_locked(&self, lanes: usize) {
        let mut state = lock(&self.0);
        let since = state.locked_lanes.map_or_else(Instant::now, |locked| locked.since);
        state.locked_lanes = (lanes > 0).then_some(LockedLanes { since, lanes });
    }

    /// Returns the locked lanes, if there are any.
    pub(crate) fn locked_lanes(&self) -> Option<LockedLanes> {
        lock(&self.0).locked_lanes
    }

    pub(crate) fn claimed(&self) {
        lock(&self.0).claim.succeed();
    }

    pub(crate) fn claim_failed(&self, error: &Error) {
        lock(&self.0).claim.fail(error_chain(error));
    }

    /// Records that outcomes were taken to be settled.
    pub(crate) fn settling(&self) {
        lock(&self.0).settling = Some(Instant::now());
    }

    pub(crate) fn settle_failed(&self, error: &Error) {
        lock(&self.0).settle.fail(error_chain(error));
    }

    /// Returns since when settles fail, if they do.
    pub(crate) fn settle_failing_since(&self) -> Option<Instant> {
        lock(&self.0).settle.failing.as_ref().map(|(since, _)| *since)
    }

    /// Records that outcomes were written.
    pub(crate) fn wrote(&self) {
        lock(&self.0).wrote = Instant::now();
    }

    /// Returns when an outcome was last written, or when the engine started.
    pub(crate) fn wrote_at(&self) -> Instant {
        lock(&self.0).wrote
    }

    /// Records that the taken outcomes are settled or dropped.
    pub(crate) fn settled(&self) {
        let mut state = lock(&self.0);
        state.settling = None;
        state.settle.succeed();
    }

    /// Returns the health. `waiting` is since when outcomes wait to be taken, `refused` are those that the
    /// database refuses, and `stopped` the event types that are not sent for that reason.
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
                "the database refuses to write the outcomes of {events} events, among them {event_id}: {error}"
            ));
        }
        if !stopped.is_empty() {
            let types: Vec<&str> = stopped.iter().map(String::as_str).collect();
            reasons.push(format!(
                "events of these types are no longer sent, because the database refuses to write their outcomes: {}",
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

/// The health of an engine. All durations are ages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineHealth {
    /// Since a lane was renewed or taken. Without lanes: since it saw that others hold all of them. Before
    /// that: since it started.
    pub renewed: Duration,
    /// Since the last claim that succeeded, if any.
    pub claimed: Option<Duration>,
    /// Since the last settle that was committed, if any. An idle engine settles nothing.
    pub settled: Option<Duration>,
    /// Since when claims fail, if they do.
    pub claim_failing: Option<Duration>,
    /// How long the oldest outcome has been waiting to be settled, if any.
    pub unsettled: Option<Duration>,
    /// Why the engine is not ready; empty if it is. It is not ready when its last renewal is older than the
    /// lease, when claims have failed or outcomes have waited for longer than that, or when the database
    /// refuses to write an outcome.
    pub reasons: Vec<String>,
}

impl EngineHealth {
    /// Whether the engine is ready.
    pub fn is_ready(&self) -> bool {
        self.reasons.is_empty()
    }
}
