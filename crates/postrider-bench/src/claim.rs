//! Measures what rows that a claim does not return cost it.
//!
//! A claim of 200 events from the very beginning, by the store's own verb, on SQLite files that hold 200 fresh events and:
//!
//! * **empty:** nothing else; this is the bound;
//! * **history:** 1,000,000 delivered events that are kept;
//! * **parked:** 100,000 events behind one key whose head waits for its retry;
//! * **excepted:** 1,000,000 events of a route whose receiver is down, which earlier claims have skipped. This claim continues where those
//!   ended, and asks for each row whether it is wanted, as an engine does.
//!
//! An engine has put the other rows there. The files take turns, claim by claim; each claims the same 200 events, which a claim does not
//! change.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use postrider::{
    Backoff, Delivery, Event, EventBuilder, Outbox, OutboxBuilder, Store,
    rng::Rng,
    sqlite::SqliteStore,
    store::{Admission, Claim, LaneClaim, Lease, LeaseRequest, Position, RowSummary},
};
use postrider_relay::Failure;

use super::{
    Scale,
    figure::Figure,
    files::{Files, close, event, fill},
    rounds::{Rounds, bar},
    settled::Settled,
};

/// Limit: the time of a claim over that of one on an empty file.
const RATIO_MAX: f64 = 1.5;

/// Events in a claim.
const CLAIM: usize = 200;

const PAYLOAD_BYTES: usize = 100;

/// Longer than any run.
const LONG: Duration = Duration::from_secs(24 * 3600);

/// How often to check whether everything is parked.
const BEAT: Duration = Duration::from_millis(50);

/// Timeout for parking.
const TIMEOUT: Duration = Duration::from_secs(600);

pub(super) async fn measure(scale: Scale, rounds: Rounds) -> Result<Vec<Figure>, Failure> {
    let files = Files::create()?;
    let empty = Claimant::of(&files, "empty").await?;
    deliver(files.open("history").await?, scale.pick(1_000_000, 1000)).await?;
    let history = Claimant::of(&files, "history").await?;
    park(files.open("parked").await?, scale.pick(100_000, 1000)).await?;
    let parked = Claimant::of(&files, "parked").await?;
    fill("claim", &files.open("excepted").await?, scale.pick(1_000_000, 1000), down).await?;
    let excepted = Claimant::past_what_is_down(&files, "excepted").await?;

    let names = ["empty", "history", "parked", "excepted"];
    let turns = rounds
        .by_turns("claim", "ms", scale.pick(200, 3), names, async |name| match name {
            "empty" => empty.claim().await,
            "history" => history.claim().await,
            "parked" => parked.claim().await,
            _ => excepted.claim().await,
        })
        .await?;
    let bound = turns.median("empty");
    Ok(vec![
        Figure::new("claim_ms_empty", bound),
        Figure::new("claim_ms_history", turns.median("history")).at_most(RATIO_MAX * bound),
        Figure::new("claim_ms_parked", turns.median("parked")).at_most(RATIO_MAX * bound),
        Figure::new("claim_ms_excepted", turns.median("excepted")).at_most(RATIO_MAX * bound),
    ])
}

/// Delivers this many events, which are kept.
async fn deliver(store: SqliteStore, count: u64) -> Result<(), Failure> {
    fill("claim", &store, count, |n| event(n, PAYLOAD_BYTES)).await?;
    let settled = Settled::all_of(count);
    let outbox = in_bulk(&store)
        .on("OrderPlaced", async |_: Delivery| ())
        .retention(LONG)
        .metrics(settled.clone())
        .start()
        .await?;
    let bar = bar("claim", "deliver", count);
    settled.wait(&bar).await?;
    bar.finish_and_clear();
    outbox.shutdown().await;
    let stats = store.stats().await?;
    if stats.done != count {
        return Err(Failure::bad(format!("{count} events were to be kept, and there is: {stats:?}")));
    }
    close(store).await;
    Ok(())
}

/// Parks this many events behind a head that failed.
async fn park(store: SqliteStore, count: u64) -> Result<(), Failure> {
    let of_one_key = |_| event(0, PAYLOAD_BYTES).key("the one");
    // The head fails alone, so that all others meet a held key.
    fill("claim", &store, 1, of_one_key).await?;
    let settled = Settled::all_of(1);
    let outbox = in_bulk(&store)
        .on("OrderPlaced", async |_: Delivery| Err::<(), _>("nobody is at home"))
        .retry(Backoff::fixed(LONG))
        .metrics(settled.clone())
        .start()
        .await?;
    let bar = bar("claim", "park", count);
    settled.wait(&bar).await?;
    fill("claim", &store, count, of_one_key).await?;
    outbox.wake();
    let started = Instant::now();
    loop {
        let parked = store.stats().await?.parked;
        bar.set_position(parked);
        if parked == count {
            break;
        } else if started.elapsed() > TIMEOUT {
            return Err(Failure::bad(format!("{parked} of {count} events were parked in {TIMEOUT:?}")));
        }
        tokio::time::sleep(BEAT).await;
    }
    bar.finish_and_clear();
    outbox.shutdown().await;
    close(store).await;
    Ok(())
}

/// An outbox with a large queue, to prepare the file.
fn in_bulk(store: &SqliteStore) -> OutboxBuilder {
    let settings = postrider::Settings { settle_batch: 5000, ..Default::default() };
    Outbox::builder().store(store.clone()).settings(settings).claim_batch(2000).cold_queue(10_000)
}

/// Claims from a file that holds 200 fresh events beside what was there.
struct Claimant {
    store: SqliteStore,
    claim: Claim,
}

impl Claimant {
    async fn of(files: &Files, name: &str) -> Result<Self, Failure> {
        let writer = files.open(name).await?;
        fill("claim", &writer, CLAIM as u64, |n| event(n, PAYLOAD_BYTES)).await?;
        // All files are read from disk by one new connection, whatever was done to them before.
        close(writer).await;
        let store = files.open(name).await?;
        let lanes = lease(&store).await?.into_iter();
        let lanes = lanes.map(|lease| LaneClaim::after(lease, Position::START)).collect();
        let claim = Claim::new(lanes, CLAIM);
        Ok(Self { store, claim })
    }

    /// Continues behind the skipped events, with 200 fresh ones there.
    async fn past_what_is_down(files: &Files, name: &str) -> Result<Self, Failure> {
        let end = skip(files.open(name).await?).await?;
        let mut this = Self::of(files, name).await?;
        this.claim.admission = Some(Arc::new(NotDown));
        this.claim.lanes.iter_mut().for_each(|lane| lane.from = end);
        Ok(this)
    }

    /// Milliseconds of one claim.
    async fn claim(&self) -> Result<f64, Failure> {
        let started = Instant::now();
        let claimed = self.store.claim(&self.claim).await?;
        let took = started.elapsed();
        if claimed.events.len() != CLAIM {
            return Err(Failure::bad(format!("a claim of {CLAIM} gave {} events", claimed.events.len())));
        }
        Ok(took.as_secs_f64() * 1e3)
    }
}

/// Claims until all events of the receiver that is down are skipped, and returns where they end.
async fn skip(store: SqliteStore) -> Result<Position, Failure> {
    let leases = lease(&store).await?;
    let lanes = leases.iter().map(|lease| LaneClaim::after(*lease, Position::START)).collect();
    let mut claim = Claim::new(lanes, CLAIM);
    claim.admission = Some(Arc::new(NotDown));
    let mut end = Position::START;
    loop {
        let claimed = store.claim(&claim).await?;
        let reached = claimed.positions.first().map_or(end, |(_, position)| *position);
        if reached == end {
            break;
        }
        end = reached;
        claim.lanes.iter_mut().for_each(|lane| lane.from = end);
    }
    let free: Vec<_> = leases.into_iter().map(|lease| (lease, 0)).collect();
    store.release(&free).await?;
    close(store).await;
    Ok(end)
}

/// An event whose receiver is down.
fn down(number: u64) -> EventBuilder {
    Event::json_text("Down", format!("\"{}\"", "x".repeat(PAYLOAD_BYTES))).aggregate("Order", number)
}

/// Wants all events but those.
#[derive(Debug)]
struct NotDown;

impl Admission for NotDown {
    fn admits(&self, row: &RowSummary<'_>) -> bool {
        row.event_type != "Down"
    }
}

async fn lease(store: &SqliteStore) -> Result<Vec<Lease>, Failure> {
    let request =
        LeaseRequest { owner: "bench".to_owned(), ttl: LONG, nonces: Rng::seeded(1), most: usize::MAX };
    Ok(store.lease(&request).await?.leases())
}
