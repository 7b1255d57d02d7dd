//! Owns the tasks of an engine, and starts and ends them.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider_core::{
    ConfigError, Error, Event, EventId, Interceptor, Metrics, Result, RetryPolicy, Store,
    rng::Rng,
    sink::error_chain,
    store::{Lease, Seq},
    tx::{LaneHints, Placed},
};
use tokio::{sync::Notify, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info, warn};

use crate::{
    OnDead, Settings, Unsettled,
    breaker_metrics::BreakerMetrics,
    buffer::{Buffer, HandOver, HotTarget},
    catch::catch,
    claim, commit_listener,
    engine_health::{EngineHealth, HealthTracker},
    guarded_metrics::GuardedMetrics,
    lease::{self, without},
    lock, orphans, pauses, purge, recover,
    routes::{RouteTable, Routes},
    settle,
    shared::Shared,
    store_timeout::bounded_farewell,
    worker,
};

/// How long a task rests after a panic, so that one that always panics does not spin.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// At a shutdown, queued events are delivered for this long before they are left to other instances.
const HAND_OVER_AFTER: Duration = Duration::from_secs(1);

/// The parts of an engine.
pub struct Parts {
    /// The database.
    pub store: Arc<dyn Store>,
    /// Where events go.
    pub routes: Routes,
    /// Run around every delivery, in order.
    pub interceptors: Vec<Arc<dyn Interceptor>>,
    /// How long a failed event waits.
    pub retry: Arc<dyn RetryPolicy>,
    /// Receives all measurements.
    pub metrics: Arc<dyn Metrics>,
    /// All settings.
    pub settings: Settings,
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

/// The result of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Unsent events that were in memory. They are pending in the table, without an attempt counted.
    pub given_back: usize,
    /// Events that were being sent when the time ran out. They may have arrived, and will be sent again.
    pub interrupted: usize,
    /// Whether the lanes were given back. Otherwise their leases run out.
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
            Err(error) if is_transient(&error) => warn!(
                error = error_chain(&error),
                "reading pauses failed: nothing is sent until they are known"
            ),
            read => _ = read?,
        }
        let mut keeper = lease::LeaseKeeper::new(shared.clone(), lease_rng);
        // Waits for the first round, so that an outbox that has its lanes can deliver as soon as it exists.
        let pause = keeper.round().await;
        let stop = CancellationToken::new();
        let mut tasks = Tasks::default();
        // Handlers share the workers. Every outside system has its own, so that one that hangs takes none from
        // the others.
        let of_receiver = |id| match shared.routes.traits(id) {
            traits if traits.in_process => 0,
            traits => traits.concurrent.unwrap_or(shared.settings.workers),
        };
        let outside: usize = (0..shared.routes.receivers()).map(of_receiver).sum();
        for _ in 0..shared.settings.workers + outside {
            let worker = until(stop.clone(), watched(shared.clone(), "deliver", worker::run));
            // Workers log in the span in which the engine was started, so a program can tell its outboxes
            // apart.
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
                until(stop.clone(), watched(shared.clone(), "commit listener", commit_listener::run))
                    .in_current_span(),
            );
        }
        info!(instance = %shared.settings.instance, lanes = lock(&shared.buffer).lanes_owned(), "engine started");
        Ok(Self { shared, tasks: tokio::sync::Mutex::new(tasks), stop })
    }

    /// Runs one claim now. Returns how many events it brought.
    pub async fn poll_once(&self) -> Result<usize> {
        if self.shared.stop_claiming.is_cancelled() {
            return Ok(0);
        }
        let mut pace = self.shared.claim_turn.lock().await;
        Ok(claim::once(&self.shared, &mut pace).await?.taken)
    }

    /// Reads the pauses now; the engine also reads them once a second. After it returns, no paused event begins
    /// to be sent.
    pub async fn look_at_pauses(&self) -> Result<()> {
        pauses::refresh(&self.shared).await
    }

    /// Returns the engine's health, as its own calls to the store show it.
    pub fn health(&self) -> EngineHealth {
        let (waiting, refused, stopped) = {
            let buffer = lock(&self.shared.buffer);
            (buffer.outcomes_since(), buffer.unsettled(), buffer.stopped_types())
        };
        self.shared.health_tracker.health(self.shared.settings.lease, waiting, &refused, &stopped)
    }

    /// Returns the outcomes that the database refuses to write in any form, for example because of a trigger or
    /// a constraint. They are retried from time to time, and nothing more of their keys is delivered until
    /// then.
    pub fn unsettled(&self) -> Vec<Unsettled> {
        lock(&self.shared.buffer).unsettled()
    }

    /// Hints that something was committed. Other instances are notified if they may have to deliver it.
    pub fn wake(&self) {
        self.shared.committed.notify_one();
        let owned = lock(&self.shared.buffer).lanes_owned();
        if owned < self.shared.store.features().lanes as usize {
            self.shared.store.notify_others();
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
                    // Others may have time for new events, until the next look at the lanes.
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

    /// Logs at most one warning a second, with the number of drops since the last one.
    fn warn_of_drop(&self, now: Instant) {
        let mut drops = lock(&self.shared.hot_drops);
        match &mut *drops {
            Some((since, count)) if now - *since < Duration::from_secs(1) => *count += 1,
            drops => {
                let unreported = drops.map_or(0, |(_, count)| count);
                warn!(
                    capacity = self.shared.settings.hot_queue,
                    also_dropped_since_last_warning = unreported,
                    "hot queue full: the event stays in the table, and the next claim delivers it"
                );
                *drops = Some((now, 0));
            }
        }
    }

    /// Whether it keeps the order of keys. If not, events with a key may take the hot path.
    pub(crate) fn keeps_order(&self) -> bool {
        self.shared.settings.key_order == crate::KeyOrder::Kept
    }

    /// Stops claiming, sends what is in memory for half of the drain timeout, waits for running sends for the
    /// other half, gives the rest back and frees the lanes. A second call returns the first report.
    ///
    /// It completes even if nobody waits for it: an engine that neither delivers nor gives up its lanes would
    /// be the worst case.
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
        // From now on the other instances have larger shares, and take free lanes.
        if let Err(error) = bounded_farewell(shared.store.leave(&shared.settings.instance)).await {
            debug!(
                error = error_chain(&error),
                "leaving the membership failed: the other instances will notice"
            );
        }
        let handed_over = AtomicUsize::new(0);
        let begins_until = Instant::now() + shared.settings.drain_timeout / 2;
        let _ = tokio::time::timeout_at(deadline, self.drained(begins_until, &handed_over)).await;

        tasks.workers.shutdown().await;
        let interrupted = lock(&shared.buffer).sending();
        // The last outcomes are settled, but a database that is down is not waited for.
        let grace = Instant::now() + shared.settings.lease.min(Duration::from_secs(1));
        let settled = tokio::time::timeout_at(grace, self.settled()).await.is_ok();
        self.take_back_attempts().await;
        let given_back = lock(&shared.buffer).give_back() + handed_over.into_inner();
        shared.metrics.given_back(given_back as u64);

        // Lanes with nothing under way are free at once. The leases of the others run out.
        let released = self.release().await && settled && interrupted == 0;
        self.stop.cancel();
        while tasks.others.join_next().await.is_some() {}
        let report = ShutdownReport { given_back, interrupted, released };
        tasks.report = Some(report);
        info!(given_back, interrupted, released, "engine stopped");
        report
    }

    /// Stops at once and leaves everything as a crash would: leases run out, and running sends may be repeated.
    /// For tests.
    pub fn abort(&self) {
        self.shared.stop_claiming.cancel();
        lock(&self.shared.buffer).accepting = false;
        self.stop.cancel();
    }

    /// Waits until nothing is left to send or settle, and frees each lane as soon as it is idle: a slow send
    /// keeps only its own lane. If others are alive, unsent events are left to them after a moment, and
    /// counted. Otherwise sends begin only in the first half of the timeout, so that each has as much time to
    /// end: one that is cut off comes again as a suspect.
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
                // While lanes are released, no worker may begin to send their events: nobody could write the
                // outcomes.
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
            // Lanes that could not be given back are released with the others at the end.
            tokio::select! {
                biased;
                () = progress => {}
                () = tokio::time::sleep_until(hand_over_at), if others && !hands_over => {}
                () = tokio::time::sleep_until(begins_until), if begins => {}
            }
        }
    }

    /// Gives lanes back. Returns how many the database still considers ours.
    async fn give_back(&self, lanes: Vec<(Lease, Seq)>) -> usize {
        if lanes.is_empty() {
            return 0;
        }
        match bounded_farewell(self.shared.store.release(&lanes)).await {
            Ok(locked) => {
                if !locked.is_empty() {
                    warn!(
                        lanes = locked.len(),
                        "giving lanes back failed: another session has locked their rows, so their leases run out"
                    );
                }
                let mut buffer = lock(&self.shared.buffer);
                without(lanes, &locked).iter().for_each(|(lease, _)| buffer.lose(*lease));
                locked.len()
            }
            Err(error) => {
                warn!(error = error_chain(&error), "giving lanes back failed: their leases run out");
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

    /// Takes back attempts that were counted beforehand: a process that is asked to end was not crashed by what
    /// it sent.
    async fn take_back_attempts(&self) {
        let counted = std::mem::take(&mut *lock(&self.shared.counted));
        for (lease, back) in counted.into_values() {
            let (leases, settlements) = ([lease], [back]);
            let settling = self.shared.store.settle(&leases, &settlements, self.shared.settings.retention);
            if let Err(error) = bounded_farewell(settling).await {
                return warn!(error = error_chain(&error), "taking back an attempt failed: it stays counted");
            }
        }
    }

    async fn release(&self) -> bool {
        // The next owner finds what could not be written.
        let (lanes, all) = lock(&self.shared.buffer).idle_lanes();
        self.give_back(lanes).await == 0 && all
    }
}

/// Reserved places for events that are about to commit. Dropping it leaves the events to the next claim, which
/// asks the table whether they exist.
pub(crate) struct Reservation {
    engine: Arc<Engine>,
    seqs: Vec<(Seq, EventId)>,
    /// Events that found no place.
    dropped: u64,
    /// Events that a claim has to fetch.
    wake: bool,
}

impl Reservation {
    /// Hands committed events over in memory. The next claim brings those that found no place.
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

/// Runs a loop until the engine ends. After a panic (in a store, for example) everything in memory is
/// forgotten, because it may be half done, and the loop starts anew: what was under way comes again.
async fn watched<F: Future<Output = ()>>(
    shared: Arc<Shared>,
    name: &'static str,
    run: impl Fn(Arc<Shared>) -> F,
) {
    while let Err(panic) = catch(pin!(run(shared.clone()))).await {
        error!(%panic, task = name, "engine task panicked: everything in memory is claimed again");
        lock(&shared.buffer).reset();
        shared.breaker_metrics.report_all(&shared);
        tokio::time::sleep(AFTER_PANIC).await;
    }
}

/// Runs a task until the engine is stopped, and drops it where it stands.
async fn until(stop: CancellationToken, task: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = task => {}
    }
}

/// Refuses keys that wait behind dead events where the store cannot record that.
fn check_dead_heads(settings: &Settings, store: &dyn Store, routes: &RouteTable) -> Result<(), ConfigError> {
    let blocks = settings.on_dead == OnDead::Block || routes.any_blocks();
    if !blocks || store.features().keeps.on_dead {
        return Ok(());
    }
    Err(ConfigError::OutOfRange {
        setting: "on_dead",
        value: "block".to_owned(),
        allowed: "skip, because this store cannot keep a key waiting behind a dead event".to_owned(),
    })
}

/// Whether another try may succeed.
fn is_transient(error: &Error) -> bool {
    matches!(error, Error::Store(error) if error.is_transient())
}

/// Returns the error of a builder without a store.
pub(crate) fn missing_store() -> ConfigError {
    ConfigError::Missing { what: "store", hint: "give the builder one with store(...)" }
}
