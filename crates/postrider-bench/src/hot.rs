//! Measures the hot path: from the commit to the handler.
//!
//! A task writes 50 events a second without a key to a SQLite file, each in a transaction that the outbox owns, and waits for the handler. The clock
//! runs from the return of the commit, which a write hook observes, to the first instruction of the handler. There is no bound, only the
//! limit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use postrider::{Delivery, Event, EventId, Outbox, Source, TxOutcome, WriteHook, sqlite::SqliteStore};
use postrider_relay::Failure;
use tokio::{
    sync::{
        Mutex,
        mpsc::{self, UnboundedReceiver},
    },
    time::{MissedTickBehavior, interval, timeout},
};

use super::{
    Scale,
    figure::Figure,
    files::{Files, close},
    rounds::{Rounds, median, percentile},
};

/// Limit in microseconds.
const MICROS_MAX: f64 = 50.0;

/// The interval of 50 events a second.
const TICK: Duration = Duration::from_millis(20);

/// Timeout of an event, after which it has taken another path.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn measure(scale: Scale, rounds: Rounds) -> Result<Vec<Figure>, Failure> {
    let count = scale.pick(100, 10);
    let files = Files::create()?;
    let store = files.open("hot").await?;
    let clock = Arc::new(Clock::start());
    let (arrived, arrivals) = mpsc::unbounded_channel();
    let at_handler = clock.clone();
    let outbox = Outbox::builder()
        .store(store.clone())
        .on("OrderPlaced", move |delivery: Delivery| {
            let took = at_handler.since_commit();
            let _ = arrived.send((took, delivery.source));
            std::future::ready(())
        })
        .write_hook(clock)
        .start()
        .await?;

    let arrivals = Arc::new(Mutex::new(arrivals));
    let mut tails = Vec::new();
    let turns = rounds
        .by_turns("hot", "µs", 1, ["ours"], async |_| {
            // In a task of its own, as in a service.
            let write = write(outbox.clone(), store.clone(), arrivals.clone(), count);
            let ended = |error| Failure::unreachable("the writer ended early", &error);
            let took = tokio::spawn(write).await.map_err(ended)??;
            tails.push(percentile(took.iter().copied(), 99));
            Ok(median(took))
        })
        .await?;
    outbox.shutdown().await;
    close(store).await;
    Ok(vec![
        Figure::new("hot_us_p50", turns.median("ours")).below(MICROS_MAX),
        // The first round does not count.
        Figure::new("hot_us_p99", median(tails.into_iter().skip(1))),
    ])
}

/// When an event reached the handler after its commit, and by which path.
type Arrival = (Duration, Source);

/// Writes events at their interval and returns the time of each in microseconds.
async fn write(
    outbox: Outbox,
    store: SqliteStore,
    arrivals: Arc<Mutex<UnboundedReceiver<Arrival>>>,
    count: u64,
) -> Result<Vec<f64>, Failure> {
    let mut arrivals = arrivals.lock().await;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut took = Vec::new();
    for _ in 0..count {
        ticks.tick().await;
        outbox.transaction(&store, async |tx| tx.write(Event::json_text("OrderPlaced", "{}")).await).await?;
        match timeout(TIMEOUT, arrivals.recv()).await {
            Ok(Some((micros, Source::Hot))) => took.push(micros.as_secs_f64() * 1e6),
            other => return Err(Failure::bad(format!("an event did not come in memory: {other:?}"))),
        }
    }
    Ok(took)
}

/// When the last commit returned.
pub(super) struct Clock {
    origin: Instant,
    committed_ns: AtomicU64,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { origin: Instant::now(), committed_ns: AtomicU64::new(0) }
    }

    fn nanos(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn since_commit(&self) -> Duration {
        Duration::from_nanos(self.nanos().saturating_sub(self.committed_ns.load(Relaxed)))
    }
}

impl WriteHook for Clock {
    fn after(&self, _ids: &[EventId], outcome: TxOutcome) {
        if outcome == TxOutcome::Committed {
            self.committed_ns.store(self.nanos(), Relaxed);
        }
    }
}
