//! What the tasks of an engine share.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize},
    },
};

use postrider_core::{
    Interceptor, Metrics, RetryPolicy, Store,
    rng::Rng,
    store::{Lease, Seq, Settlement},
    tx::LaneHints,
};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    Settings, breaker_metrics::BreakerMetrics, buffer::Buffer, claim, engine_health::HealthTracker,
    failing_events::FailingEvents, failure_warnings::FailureWarnings, rejection_notices::ReleasedBrakes,
    routes::RouteTable,
};

/// What the tasks of an engine share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) routes: Arc<RouteTable>,
    pub(crate) interceptors: Vec<Arc<dyn Interceptor>>,
    pub(crate) retry: Arc<dyn RetryPolicy>,
    pub(crate) metrics: Arc<dyn Metrics>,
    pub(crate) settings: Settings,
    pub(crate) buffer: std::sync::Mutex<Buffer>,
    pub(crate) breaker_metrics: BreakerMetrics,
    pub(crate) rng: std::sync::Mutex<Rng>,
    /// Notified when an event is ready to be sent.
    pub(crate) work: Notify,
    /// Notified when outcomes wait to be settled.
    pub(crate) outcomes: Notify,
    /// Notified when something has changed here that may allow a claim: room, a lane, a key.
    pub(crate) wake: Notify,
    /// Notified of commits, here or elsewhere: who waits for it has to deliver them.
    pub(crate) committed: Notify,
    /// Notified when a lane was lost or may be free.
    pub(crate) lanes: Notify,
    /// Notified when a waiting event is due sooner than the poller knows.
    pub(crate) due: Notify,
    /// Notified when something was settled, which may end a drain.
    pub(crate) progress: Notify,
    /// Held by the running claim.
    pub(crate) claim_turn: tokio::sync::Mutex<claim::ClaimPace>,
    /// Held while the pauses are read; and how often something was paused.
    pub(crate) pause_turn: tokio::sync::Mutex<()>,
    pub(crate) pauses_begun: Arc<AtomicU64>,
    /// Since when dropped hot events were not logged, and how many.
    pub(crate) hot_drops: std::sync::Mutex<Option<(Instant, u64)>>,
    /// The lanes into which writers of this process put events without a key.
    pub(crate) hints: LaneHints,
    /// When the engine's calls to the store last succeeded.
    pub(crate) health_tracker: HealthTracker,
    /// Attempts that were counted beforehand and are under way, with the settlements that take them back.
    pub(crate) counted: std::sync::Mutex<BTreeMap<Seq, (Lease, Settlement)>>,
    /// Events that fail for unknown reasons.
    pub(crate) failing_events: std::sync::Mutex<FailingEvents>,
    pub(crate) failure_warnings: std::sync::Mutex<FailureWarnings>,
    pub(crate) brakes: std::sync::Mutex<ReleasedBrakes>,
    /// How many instances were alive at the last count, this one included.
    pub(crate) members: AtomicUsize,
    pub(crate) stop_claiming: CancellationToken,
}
