//! What can be measured, behind a trait: nothing is recorded unless somebody wants it.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Receives measurements from the writer, the engine and its poller. Every method does nothing by default, so an
/// implementation takes what it wants. They are called on the engine's own tasks, so they must be quick. A panic in one of
/// them is logged and ends nothing; what it was told is not measured.
pub trait Metrics: Send + Sync + 'static {
    /// An event was handed over in memory after its commit.
    fn hot_enqueued(&self) {}
    /// The hot queue was full: the event stays in the table for the next claim.
    fn hot_dropped(&self) {}
    /// Events were read from the table into the cold queue.
    fn cold_enqueued(&self, count: u64) {
        let _ = count;
    }
    /// An event was delivered.
    fn delivered(&self) {}
    /// An attempt failed and will be repeated.
    fn failed(&self) {}
    /// An event went dead.
    fn dead(&self) {}
    /// An event of this type is to go dead; none if what is in its row is no event. The [names](crate::Sink::name) are those of its
    /// receiver's sinks, as far as they have any; none if no route takes it. Told when that is decided: what a lost lease refuses to write is
    /// told too, and [`dead`](Metrics::dead) counts only what was written.
    fn died(&self, sinks: &[String], event_type: Option<&str>) {
        let _ = (sinks, event_type);
    }
    /// An attempt to deliver an event to these sinks did not succeed. `outcome` is a word of a fixed set, such as `retry`, `rejected`,
    /// `deferred`, `later`, `unknown`, `unavailable` or `batch_failed`; `counted` says whether it counts towards the event's attempts. Every attempt is told, those
    /// too that [`failed`](Metrics::failed) and [`deferred`](Metrics::deferred) count without saying where they failed.
    fn attempt_failed(&self, sinks: &[String], outcome: &'static str, counted: bool) {
        let _ = (sinks, outcome, counted);
    }
    /// These sinks, and no others, reject everything that some instance sends them. Told about once a second, where the store keeps pauses.
    fn rejecting(&self, sinks: &[String]) {
        let _ = sinks;
    }
    /// Events in memory, by the queue that they came through.
    fn queue_depths(&self, hot: u64, cold: u64) {
        let _ = (hot, cold);
    }
    /// Age of the oldest event that the last claim returned; zero if it returned none.
    fn oldest_lag(&self, lag: Duration) {
        let _ = lag;
    }

    /// Events were inserted into a caller's transaction.
    fn written(&self, count: u64) {
        let _ = count;
    }
    /// An event waits without an attempt being counted: deferred, or its sink was unavailable.
    fn deferred(&self) {}
    /// A claim returned.
    fn claimed(&self, events: u64, took: Duration) {
        let _ = (events, took);
    }
    /// A settle was committed.
    fn settled(&self, events: u64, took: Duration) {
        let _ = (events, took);
    }
    /// Outcomes were refused because the lane's lease was lost.
    fn fenced(&self, events: u64) {
        let _ = events;
    }
    /// Outcomes that the database refuses to write, one by one; zero once all of them are written.
    fn unsettled(&self, events: u64) {
        let _ = events;
    }
    /// The database lost transactions that it had committed: all that was in memory is forgotten, and lanes are taken anew.
    fn went_back(&self) {}
    /// Lanes that this instance owns.
    fn lanes_owned(&self, lanes: u64) {
        let _ = lanes;
    }
    /// Events that were given back unsent at shutdown.
    fn given_back(&self, events: u64) {
        let _ = events;
    }
    /// Rows of delivered events were deleted because their retention ended.
    fn purged(&self, rows: u64) {
        let _ = rows;
    }
    /// Events were made due again because the instance that had claimed them is gone. Only tables in which a claim is marked have such.
    fn recovered(&self, events: u64) {
        let _ = events;
    }
    /// The breaker of a receiver opened or closed. The receiver is told by the [names](crate::Sink::name) of its sinks, as far as they
    /// have any: several where its routes send to several, and one of them may be a sink of other receivers too. All breakers are closed at
    /// first, and of each one what is told is in turn that it opened and that it closed.
    fn breaker(&self, sinks: &[String], open: bool) {
        let _ = (sinks, open);
    }
}

/// Records nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMetrics;

impl Metrics for NoMetrics {}

/// Keeps every measurement in memory: for tests, and for programs that print their own.
///
/// ```
/// use postrider_core::metrics::{Metrics, Recording};
/// let metrics = Recording::default();
/// metrics.delivered();
/// assert_eq!(metrics.snapshot().delivered, 1);
/// ```
#[derive(Debug, Default)]
pub struct Recording {
    hot_enqueued: AtomicU64,
    hot_dropped: AtomicU64,
    cold_enqueued: AtomicU64,
    delivered: AtomicU64,
    failed: AtomicU64,
    dead: AtomicU64,
    died: AtomicU64,
    attempts_failed: AtomicU64,
    attempts_uncounted: AtomicU64,
    hot_depth: AtomicU64,
    cold_depth: AtomicU64,
    oldest_lag_ms: AtomicU64,
    written: AtomicU64,
    deferred: AtomicU64,
    claims: AtomicU64,
    claim_us: AtomicU64,
    settles: AtomicU64,
    settle_us: AtomicU64,
    settled: AtomicU64,
    fenced: AtomicU64,
    unsettled: AtomicU64,
    went_back: AtomicU64,
    lanes_owned: AtomicU64,
    given_back: AtomicU64,
    purged: AtomicU64,
    breaker_opened: AtomicU64,
}

/// The values of a [`Recording`] at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Events handed over in memory.
    pub hot_enqueued: u64,
    /// Events that found the hot queue full.
    pub hot_dropped: u64,
    /// Events read from the table.
    pub cold_enqueued: u64,
    /// Deliveries.
    pub delivered: u64,
    /// Failed attempts that will be repeated.
    pub failed: u64,
    /// Events that went dead.
    pub dead: u64,
    /// Events that were to go dead, written or not.
    pub died: u64,
    /// Attempts that did not succeed.
    pub attempts_failed: u64,
    /// Those of them that do not count towards an event's attempts.
    pub attempts_uncounted: u64,
    /// Hot events in memory.
    pub hot_depth: u64,
    /// Cold events in memory.
    pub cold_depth: u64,
    /// Age of the oldest event of the last claim, in milliseconds.
    pub oldest_lag_ms: u64,
    /// Events inserted.
    pub written: u64,
    /// Events that wait without an attempt counted.
    pub deferred: u64,
    /// Claims that returned.
    pub claims: u64,
    /// Time spent in claims, in microseconds.
    pub claim_us: u64,
    /// Settles that were committed.
    pub settles: u64,
    /// Time spent in settles, in microseconds.
    pub settle_us: u64,
    /// Outcomes that were committed.
    pub settled: u64,
    /// Outcomes refused by the fence.
    pub fenced: u64,
    /// Outcomes that the database refuses to write.
    pub unsettled: u64,
    /// How often the database went back in time.
    pub went_back: u64,
    /// Lanes owned.
    pub lanes_owned: u64,
    /// Events given back unsent.
    pub given_back: u64,
    /// Rows deleted at the end of their retention.
    pub purged: u64,
    /// How often a breaker opened.
    pub breaker_opened: u64,
}

impl Recording {
    /// The values now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            hot_enqueued: self.hot_enqueued.load(Relaxed),
            hot_dropped: self.hot_dropped.load(Relaxed),
            cold_enqueued: self.cold_enqueued.load(Relaxed),
            delivered: self.delivered.load(Relaxed),
            failed: self.failed.load(Relaxed),
            dead: self.dead.load(Relaxed),
            died: self.died.load(Relaxed),
            attempts_failed: self.attempts_failed.load(Relaxed),
            attempts_uncounted: self.attempts_uncounted.load(Relaxed),
            hot_depth: self.hot_depth.load(Relaxed),
            cold_depth: self.cold_depth.load(Relaxed),
            oldest_lag_ms: self.oldest_lag_ms.load(Relaxed),
            written: self.written.load(Relaxed),
            deferred: self.deferred.load(Relaxed),
            claims: self.claims.load(Relaxed),
            claim_us: self.claim_us.load(Relaxed),
            settles: self.settles.load(Relaxed),
            settle_us: self.settle_us.load(Relaxed),
            settled: self.settled.load(Relaxed),
            fenced: self.fenced.load(Relaxed),
            unsettled: self.unsettled.load(Relaxed),
            went_back: self.went_back.load(Relaxed),
            lanes_owned: self.lanes_owned.load(Relaxed),
            given_back: self.given_back.load(Relaxed),
            purged: self.purged.load(Relaxed),
            breaker_opened: self.breaker_opened.load(Relaxed),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Metrics for Recording {
    fn hot_enqueued(&self) {
        self.hot_enqueued.fetch_add(1, Relaxed);
    }
    fn hot_dropped(&self) {
        self.hot_dropped.fetch_add(1, Relaxed);
    }
    fn cold_enqueued(&self, count: u64) {
        self.cold_enqueued.fetch_add(count, Relaxed);
    }
    fn delivered(&self) {
        self.delivered.fetch_add(1, Relaxed);
    }
    fn failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }
    fn dead(&self) {
        self.dead.fetch_add(1, Relaxed);
    }
    fn died(&self, _sinks: &[String], _event_type: Option<&str>) {
        self.died.fetch_add(1, Relaxed);
    }
    fn attempt_failed(&self, _sinks: &[String], _outcome: &'static str, counted: bool) {
        self.attempts_failed.fetch_add(1, Relaxed);
        self.attempts_uncounted.fetch_add(u64::from(!counted), Relaxed);
    }
    fn queue_depths(&self, hot: u64, cold: u64) {
        self.hot_depth.store(hot, Relaxed);
        self.cold_depth.store(cold, Relaxed);
    }
    fn oldest_lag(&self, lag: Duration) {
        self.oldest_lag_ms.store(u64::try_from(lag.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }
    fn written(&self, count: u64) {
        self.written.fetch_add(count, Relaxed);
    }
    fn deferred(&self) {
        self.deferred.fetch_add(1, Relaxed);
    }
    fn claimed(&self, _events: u64, took: Duration) {
        self.claims.fetch_add(1, Relaxed);
        self.claim_us.fetch_add(micros(took), Relaxed);
    }
    fn settled(&self, events: u64, took: Duration) {
        self.settles.fetch_add(1, Relaxed);
        self.settled.fetch_add(events, Relaxed);
        self.settle_us.fetch_add(micros(took), Relaxed);
    }
    fn fenced(&self, events: u64) {
        self.fenced.fetch_add(events, Relaxed);
    }
    fn unsettled(&self, events: u64) {
        self.unsettled.store(events, Relaxed);
    }
    fn went_back(&self) {
        self.went_back.fetch_add(1, Relaxed);
    }
    fn lanes_owned(&self, lanes: u64) {
        self.lanes_owned.store(lanes, Relaxed);
    }
    fn given_back(&self, events: u64) {
        self.given_back.fetch_add(events, Relaxed);
    }
    fn purged(&self, rows: u64) {
        self.purged.fetch_add(rows, Relaxed);
    }
    fn breaker(&self, _sinks: &[String], open: bool) {
        self.breaker_opened.fetch_add(u64::from(open), Relaxed);
    }
}
