//! The delivering half of an outbox: its tasks, and how they begin and end.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider_core::{
    ConfigError, Error, Event, EventId, Interceptor, Metrics, Result, RetryPolicy, Store, StoreErrorKind,
    rng::Rng,
    sink::error_chain,
    store::{Lease, Seq, Settlement},
    tx::{LaneHints, Placed},
};
use tokio::{sync::Notify, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info, warn};

use crate::{
    DeadHeads, Settings, Unsettled,
    breaker_metrics::BreakerMetrics,
    buffer::{Buffer, HandOver, HotTarget},
    catch::catch,
    claim, commit_listener, deliver,
    engine_health::{EngineHealth, HealthTracker},
    failing_events::FailingEvents,
    failure_warnings::FailureWarnings,
    guarded_metrics::GuardedMetrics,
    lease::{self, without},
    lock, orphans, pauses, purge, recover,
    rejection_notices::ReleasedBrakes,
    routes::{RouteTable, Routes},
    settle,
    store_timeout::bounded_farewell,
};

/// How long a task rests after a panic, so that one that always panics does not spin.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// At a shutdown what is queued is delivered for so long, before it is left to other instances.
const HAND_OVER_AFTER: Duration = Duration::from_secs(1);

/// What an engine is made of.
pub struct Parts {
    /// The database.
    pub store: Arc<dyn Store>,
    /// Where events go.
    pub routes: Routes,
    /// What runs around every delivery, in order.
    pub interceptors: Vec<Arc<dyn Interceptor>>,
    /// How long a failed event waits.
    pub retry: Arc<dyn RetryPolicy>,
    /// Who is told what happens.
    pub metrics: Arc<dyn Metrics>,
    /// The numbers.
    pub settings: Settings,
}

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
    /// Something lined up to be sent.
    pub(crate) work: Notify,
    /// Outcomes wait to be settled.
    pub(crate) outcomes: Notify,
    /// There may be something to claim, because something has changed here: room in the queue, a lane, a key.
    pub(crate) wake: Notify,
    /// Somebody says that something was committed, here or elsewhere; whether it is for us is open.
    pub(crate) committed: Notify,
    /// A lane was lost or could be had.
    pub(crate) lanes: Notify,
    /// A waiting event is due sooner than the poller knows.
    pub(crate) due: Notify,
    /// Something was settled: a drain may have come to its end.
    pub(crate) progress: Notify,
    /// One claim at a time.
    pub(crate) claim_turn: tokio::sync::Mutex<claim::ClaimPace>,
    /// One look at what is paused at a time, and how often something was.
    pub(crate) pause_turn: tokio::sync::Mutex<()>,
    pub(crate) pauses_begun: Arc<AtomicU64>,
    /// Since when hot events were dropped without a warning, and how many.
    pub(crate) hot_drops: std::sync::Mutex<Option<(Instant, u64)>>,
    /// The lanes that writers of this process put events without a key into.
    pub(crate) hints: LaneHints,
    /// When its verbs last succeeded.
    pub(crate) health_tracker: HealthTracker,
    /// Attempts that were counted beforehand and are under way, and what takes them back.
    pub(crate) counted: std::sync::Mutex<BTreeMap<Seq, (Lease, Settlement)>>,
    /// Events that fail without anybody knowing why.
    pub(crate) failing_events: std::sync::Mutex<FailingEvents>,
    pub(crate) failure_warnings: std::sync::Mutex<FailureWarnings>,
    pub(crate) brakes: std::sync::Mutex<ReleasedBrakes>,
    /// How many instances were alive when that was last asked, this one included.
    pub(crate) members: AtomicUsize,
    pub(crate) stop_claiming: CancellationToken,
}

/// Claims, delivers and settles until it is shut down. Dropping it stops it at once, without a drain.
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    tasks: tokio::sync::Mutex<Tasks>,
    /// Ends the tasks when the engine is dropped.
    stop: CancellationToken,
}

#[derive(Default)]
struct Tasks {
    workers: JoinSet<()>,
    others: JoinSet<()>,
    report: Option<ShutdownReport>,
}

/// What a shutdown left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Events that were in memory and not sent; they are pending in the table, no attempt counted.
    pub given_back: usize,
    /// Events that were being sent when the time ran out; they may have arrived, and will be sent again.
    pub interrupted: usize,
    /// Whether the lanes were given back. Otherwise their leases run out by themselves.
    pub released: bool,
}

impl Engine {
    /// Checks the parts, takes the lanes that are free, and starts to deliver.
    pub async fn start(parts: Parts) -> Result<Self> {
        parts.settings.check()?;
        let routes = Arc::new(parts.routes.build()?);
        check_dead_heads(&parts.settings, &*parts.store, &routes)?;
        let mut rng = Rng::seeded(parts.settings.seed);
        let lease_rng = rng.fork();
        let mut buffer = Buffer::new(&routes, &parts.settings);
        if parts.store.features().keeps.pauses {
            buffer.wait_for_pauses();
        }
        let shared = Arc::new(Shared {
            pause_turn: tokio::sync::Mutex::default(),
            pauses_begun: buffer.pauses_begun(),
            buffer: std::sync::Mutex::new(buffer),
            breaker_metrics: BreakerMetrics::new(routes.receivers()),
            store: parts.store,
            routes,
            interceptors: parts.interceptors,
            retry: parts.retry,
            metrics: Arc::new(GuardedMetrics::new(parts.metrics)),
            settings: parts.settings,
            rng: std::sync::Mutex::new(rng),
            work: Notify::new(),
            outcomes: Notify::new(),
            wake: Notify::new(),
            committed: Notify::new(),
            lanes: Notify::new(),
            due: Notify::new(),
            progress: Notify::new(),
            claim_turn: tokio::sync::Mutex::new(claim::ClaimPace::new(Instant::now())),
            hot_drops: std::sync::Mutex::new(None),
            hints: LaneHints::default(),
            health_tracker: HealthTracker::new(),
            counted: std::sync::Mutex::default(),
            failing_events: std::sync::Mutex::default(),
            failure_warnings: std::sync::Mutex::default(),
            brakes: std::sync::Mutex::default(),
            members: AtomicUsize::new(1),
            stop_claiming: CancellationToken::new(),
        });
        match pauses::read(&shared).await {
            Err(error) if is_passing(&error) => warn!(
                error = error_chain(&error),
                "cannot read what is paused: nothing is sent until that is known"
            ),
            read => _ = read?,
        }
        let mut keeper = lease::LeaseKeeper::new(shared.clone(), lease_rng);
        // The first round is waited for, so that an outbox which has its lanes can deliver the moment it exists.
        let pause = keeper.round().await;
        let stop = CancellationToken::new();
        let mut tasks = Tasks::default();
        // Handlers share the workers; every outside system has its own, so that one which hangs takes none from the others.
        let of_receiver = |id| match shared.routes.traits(id) {
            traits if traits.in_process => 0,
            traits => traits.concurrent.unwrap_or(shared.settings.workers),
        };
        let outside: usize = (0..shared.routes.receivers()).map(of_receiver).sum();
        for _ in 0..shared.settings.workers + outside {
            let worker = until(stop.clone(), watched(shared.clone(), "deliver", deliver::run));
            // What it says is said where the engine was started: a program with several outboxes can tell whose it is.
            tasks.workers.spawn(worker.in_current_span());
        }
        tasks
            .others
            .spawn(until(stop.clone(), watched(shared.clone(), "settle", settle::run)).in_current_span());
        tasks.others.spawn(until(stop.clone(), keeper.run(pause)).in_current_span());
        tasks
            .others
            .spawn(until(stop.clone(), watched(shared.clone(), "purge", purge::run)).in_current_span());
        tasks
            .others
            .spawn(until(stop.clone(), watched(shared.clone(), "recover", recover::run)).in_current_span());
        tasks
            .others
            .spawn(until(stop.clone(), watched(shared.clone(), "orphans", orphans::run)).in_current_span());
        tasks
            .others
            .spawn(until(stop.clone(), watched(shared.clone(), "pauses", pauses::run)).in_current_span());
        if shared.settings.poller {
            tasks
                .others
                .spawn(until(stop.clone(), watched(shared.clone(), "claim", claim::run)).in_current_span());
            tasks.others.spawn(
                until(stop.clone(), watched(shared.clone(), "announce", commit_listener::run))
                    .in_current_span(),
            );
        }
        info!(instance = %shared.settings.instance, lanes = lock(&shared.buffer).lanes_owned(), "engine started");
        Ok(Self { shared, tasks: tokio::sync::Mutex::new(tasks), stop })
    }

    /// Runs one claim now, whatever the poller does, and says how many events it brought.
    pub async fn poll_once(&self) -> Result<usize> {
        if self.shared.stop_claiming.is_cancelled() {
            return Ok(0);
        }
        let mut pace = self.shared.claim_turn.lock().await;
        Ok(claim::once(&self.shared, &mut pace).await?.taken)
    }

    /// Looks now at what is paused, which happens once a second anyway. When it has returned, nothing that is paused is begun.
    pub async fn look_at_pauses(&self) -> Result<()> {
        pauses::look(&self.shared).await
    }

    /// How it is, as its own verbs tell: nobody is asked.
    pub fn health(&self) -> EngineHealth {
        let (waiting, refused, stopped) = {
            let buffer = lock(&self.shared.buffer);
            (buffer.outcomes_since(), buffer.unsettled(), buffer.stopped_types())
        };
        self.shared.health_tracker.health(self.shared.settings.lease, waiting, &refused, &stopped)
    }

    /// Outcomes that the database refuses to write, in whatever form: a trigger or a constraint stands in the way. They are tried again once
    /// in a while; until then nothing more of their keys is delivered.
    pub fn unsettled(&self) -> Vec<Unsettled> {
        lock(&self.shared.buffer).unsettled()
    }

    /// There may be something to deliver: a hint that follows a commit. Others hear of it if they may have to deliver it.
    pub fn wake(&self) {
        self.shared.committed.notify_one();
        let owned = lock(&self.shared.buffer).lanes_owned();
        if owned < self.shared.store.features().lanes as usize {
            self.shared.store.announce();
        }
    }

    /// Reserves places in the hot queue for events that are about to commit.
    pub(crate) fn reserve(self: &Arc<Self>, events: &[Event], placed: &[Placed]) -> Reservation {
        let mut reservation = Reservation { engine: self.clone(), seqs: Vec::new(), dropped: 0, wake: false };
        let now = Instant::now();
        let by_id: BTreeMap<&EventId, &Event> = events.iter().map(|event| (event.id(), event)).collect();
        let bound = |event: &Event| HotTarget::of(event, &self.shared.routes);
        let wanted: Vec<(&Placed, &Event, HotTarget)> = placed
            .iter()
            .filter_map(|place| by_id.get(&place.id).map(|event| (place, *event, bound(event))))
            .collect();
        let mut buffer = lock(&self.shared.buffer);
        for (count, (place, event, bound)) in wanted.iter().enumerate() {
            match buffer.reserve(event, place, bound, &self.shared.settings, now) {
                HandOver::Reserved => reservation.seqs.push((place.seq, place.id.clone())),
                HandOver::Full => {
                    // Until the next look at the lanes: others may have time for what comes now.
                    self.shared.hints.offer(Vec::new());
                    reservation.dropped = (wanted.len() - count) as u64;
                    break;
                }
                HandOver::LeftToClaim => reservation.wake = true,
            }
        }
        drop(buffer);
        reservation
    }

    /// At most one warning a second, with the number of drops since the last.
    fn warn_of_drop(&self, now: Instant) {
        let mut drops = lock(&self.shared.hot_drops);
        match &mut *drops {
            Some((since, count)) if now - *since < Duration::from_secs(1) => *count += 1,
            drops => {
                let unreported = drops.map_or(0, |(_, count)| count);
                warn!(
                    capacity = self.shared.settings.hot_queue,
                    also_dropped_since_last_warning = unreported,
                    "hot queue full: the event stays in the table and the next claim delivers it"
                );
                *drops = Some((now, 0));
            }
        }
    }

    /// Whether a key matters to it: if not, events with one may take the hot path.
    pub(crate) fn keeps_order(&self) -> bool {
        self.shared.settings.key_order == crate::KeyOrder::Kept
    }

    /// Stops claiming, delivers what is in memory for half of the drain timeout, waits for what is under way for the other half, gives the rest back
    /// and frees the lanes. A second call returns what the first one said.
    ///
    /// It runs to its end also if nobody waits for it: an engine that neither delivers nor gives up its lanes would be
    /// the worst of both.
    pub async fn shutdown(self: &Arc<Self>) -> ShutdownReport {
        self.shared.stop_claiming.cancel();
        let this = self.clone();
        tokio::spawn(async move { this.end().await }).await.unwrap_or_default()
    }

    async fn end(&self) -> ShutdownReport {
        let shared = &self.shared;
        shared.stop_claiming.cancel();
        lock(&shared.buffer).accepting = false;
        shared.hints.offer(Vec::new());
        let mut tasks = self.tasks.lock().await;
        if let Some(report) = tasks.report {
            return report;
        }
        let deadline = Instant::now() + shared.settings.drain_timeout;
        // From now on the others have a larger share, and take what is free.
        if let Err(error) = bounded_farewell(shared.store.leave(&shared.settings.instance)).await {
            debug!(
                error = error_chain(&error),
                "could not say that this instance is gone: it will be noticed"
            );
        }
        let handed_over = AtomicUsize::new(0);
        let begins_until = Instant::now() + shared.settings.drain_timeout / 2;
        let _ = tokio::time::timeout_at(deadline, self.drained(begins_until, &handed_over)).await;

        tasks.workers.shutdown().await;
        let interrupted = lock(&shared.buffer).sending();
        // Outcomes that came in at the last moment are settled; a database that is down is not waited for.
        let grace = Instant::now() + shared.settings.lease.min(Duration::from_secs(1));
        let settled = tokio::time::timeout_at(grace, self.settled()).await.is_ok();
        self.take_back_attempts().await;
        let given_back = lock(&shared.buffer).give_back() + handed_over.into_inner();
        shared.metrics.given_back(given_back as u64);

        // Lanes of which nothing is under way are free at once; the others run out.
        let released = self.release().await && settled && interrupted == 0;
        self.stop.cancel();
        while tasks.others.join_next().await.is_some() {}
        let report = ShutdownReport { given_back, interrupted, released };
        tasks.report = Some(report);
        info!(given_back, interrupted, released, "engine stopped");
        report
    }

    /// Stops at once and leaves everything as it is, as a crash would: leases run out, what was being sent may come
    /// again. For tests.
    pub fn abort(&self) {
        self.shared.stop_claiming.cancel();
        lock(&self.shared.buffer).accepting = false;
        self.stop.cancel();
    }

    /// Waits until nothing is left to send or to settle, and frees each lane as soon as it has nothing to do: a slow send keeps its own and no other.
    /// Where others are alive, what is not being sent after a moment is left to them, and counted. Otherwise nothing is sent any more from a
    /// moment on that leaves as much time for it to end as had passed: what is cut off comes again, as a suspect.
    async fn drained(&self, begins_until: Instant, handed_over: &AtomicUsize) {
        let others = self.shared.members.load(Relaxed) > 1;
        let hand_over_at = Instant::now() + HAND_OVER_AFTER;
        loop {
            let progress = self.shared.progress.notified();
            let now = Instant::now();
            let (hands_over, begins) = (others && now >= hand_over_at, now < begins_until);
            let (drained, lanes) = {
                let mut buffer = lock(&self.shared.buffer);
                let lanes =
                    if hands_over || !begins { buffer.idle_lanes().0 } else { buffer.finished_lanes() };
                // While the lanes are released, a worker must not begin to send their events: nobody could write the outcomes.
                let mut left = buffer.leave_queued(&lanes, now);
                if !begins {
                    left += buffer.leave_all_queued(now);
                }
                handed_over.fetch_add(left, Relaxed);
                (buffer.is_drained(now), lanes)
            };
            if drained {
                return;
            }
            let most = lanes.len();
            if self.give_back(lanes).await < most {
                continue;
            }
            // What could not be given back is given back with the others at the end.
            tokio::select! {
                biased;
                () = progress => {}
                () = tokio::time::sleep_until(hand_over_at), if others && !hands_over => {}
                () = tokio::time::sleep_until(begins_until), if begins => {}
            }
        }
    }

    /// Gives lanes back. Returns how many the database still says are ours.
    async fn give_back(&self, lanes: Vec<(Lease, Seq)>) -> usize {
        if lanes.is_empty() {
            return 0;
        }
        match bounded_farewell(self.shared.store.release(&lanes)).await {
            Ok(locked) => {
                if !locked.is_empty() {
                    warn!(
                        lanes = locked.len(),
                        "could not give lanes back: another session has locked their rows, and their leases will run out"
                    );
                }
                let mut buffer = lock(&self.shared.buffer);
                without(lanes, &locked).iter().for_each(|(lease, _)| buffer.lose(*lease));
                locked.len()
            }
            Err(error) => {
                warn!(
                    error = error_chain(&error),
                    "could not give the lanes back: their leases will run out"
                );
                lanes.len()
            }
        }
    }

    async fn settled(&self) {
        self.shared.outcomes.notify_one();
        loop {
            let progress = self.shared.progress.notified();
            if !lock(&self.shared.buffer).has_outcomes() {
                return;
            }
            progress.await;
        }
    }

    /// A process that is asked to end has not been ended by what it was sending: what was counted beforehand is taken back.
    async fn take_back_attempts(&self) {
        let counted = std::mem::take(&mut *lock(&self.shared.counted));
        for (lease, back) in counted.into_values() {
            let (leases, settlements) = ([lease], [back]);
            let settling = self.shared.store.settle(&leases, &settlements, self.shared.settings.retention);
            if let Err(error) = bounded_farewell(settling).await {
                return warn!(error = error_chain(&error), "an attempt that did not end stays counted");
            }
        }
    }

    async fn release(&self) -> bool {
        // What could not be written is the next owner's to find.
        let (lanes, all) = lock(&self.shared.buffer).idle_lanes();
        self.give_back(lanes).await == 0 && all
    }
}

/// Places in the hot queue. Dropping it leaves the events to the next claim, which asks the table whether they exist.
pub(crate) struct Reservation {
    engine: Arc<Engine>,
    seqs: Vec<(Seq, EventId)>,
    /// Events that found no room.
    dropped: u64,
    /// Events that a claim has to fetch.
    wake: bool,
}

impl Reservation {
    /// The events have committed: hands them over in memory. Those that found no room are in the table, and the next
    /// claim brings them.
    pub(crate) fn hand_over(mut self) {
        let shared = &self.engine.shared;
        let mut queued = 0;
        {
            let mut buffer = lock(&shared.buffer);
            for (seq, id) in std::mem::take(&mut self.seqs) {
                if buffer.hand_over(seq, &id) { queued += 1 } else { self.wake = true }
            }
        }
        (0..queued).for_each(|_| shared.metrics.hot_enqueued());
        if queued > 0 {
            shared.work.notify_one();
        }
        for _ in 0..self.dropped {
            shared.metrics.hot_dropped();
            self.engine.warn_of_drop(Instant::now());
        }
        self.wake |= self.dropped > 0;
        if self.wake {
            self.engine.wake();
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.seqs.is_empty() {
            return;
        }
        let mut buffer = lock(&self.engine.shared.buffer);
        self.seqs.iter().for_each(|(seq, id)| buffer.cancel_reservation(*seq, id));
        drop(buffer);
        self.engine.shared.wake.notify_one();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Runs a loop that ends only with the engine. Should it panic (a store may; metrics are kept from it), everything in memory is
/// forgotten, since nobody knows what was left half done, and the loop begins anew: what was under way comes again.
async fn watched<F: Future<Output = ()>>(
    shared: Arc<Shared>,
    name: &'static str,
    run: impl Fn(Arc<Shared>) -> F,
) {
    while let Err(panic) = catch(pin!(run(shared.clone()))).await {
        error!(%panic, task = name, "a task of the engine panicked: what was in memory is left to be claimed again");
        lock(&shared.buffer).reset();
        shared.breaker_metrics.report_all(&shared);
        tokio::time::sleep(AFTER_PANIC).await;
    }
}

/// Runs a task until the engine is stopped, at which it is dropped where it stands.
async fn until(stop: CancellationToken, task: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = task => {}
    }
}

/// A key cannot wait behind a dead event where the store has no room to say so.
fn check_dead_heads(settings: &Settings, store: &dyn Store, routes: &RouteTable) -> Result<(), ConfigError> {
    let blocks = settings.dead_heads == DeadHeads::Block || routes.any_blocks();
    if !blocks || store.features().keeps.dead_heads {
        return Ok(());
    }
    Err(ConfigError::OutOfRange {
        setting: "dead_heads",
        value: "block".to_owned(),
        allowed: "skip, because this store cannot keep a key waiting behind a dead event".to_owned(),
    })
}

/// Whether another try may end otherwise.
fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Store(error) if matches!(error.kind(), StoreErrorKind::Busy | StoreErrorKind::Unreachable))
}

/// For builders: an engine without a store has nothing to do.
pub(crate) fn missing_store() -> ConfigError {
    ConfigError::Missing { what: "store", hint: "give the builder one with store(...)" }
}
