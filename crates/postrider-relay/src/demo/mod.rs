//! `postrider demo`: a small shop on SQLite, its outbox, and what came of both.
//!
//! # Layout
//!
//! * `args`: its arguments
//! * `story`, `deck`: what happens in the shop, and in which order
//! * `clerk`: runs the shop's transactions; `receiver`: handles the events that the outbox delivers
//! * `ledger` and `sql/`: the shop's own record of its events, in the same file
//! * `pulse`, `rate`, `view`: the live view
//! * `conclusion`: the result

mod args;
mod clerk;
mod conclusion;
mod deck;
mod ledger;
mod place;
mod pulse;
mod rate;
mod receiver;
mod story;
mod view;

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use postrider::{Backoff, Delivery, Outbox, metrics::Recording, rng::Rng};
use tokio::task::JoinSet;

pub(crate) use self::args::Args;
use self::{
    clerk::{Clerk, Tally},
    conclusion::Report,
    deck::Stories,
    ledger::Ledger,
    place::Place,
    pulse::Finger,
    view::View,
};
use crate::{Conclusion, failure::Failure, signal::Ending, terminal::Terminal};

/// Dead letters are logged as errors; in the demo they are intended and shown anyway.
pub(crate) const LOG_DEFAULT: &str = "error,postrider_engine::outcome_report=off";

/// Number of writers.
const CLERKS: usize = 3;

/// The lease of a start that was killed ends after this time; then the next start continues.
const LEASE: Duration = Duration::from_secs(2);

/// How often the live view is updated.
const BEAT: Duration = Duration::from_millis(200);

/// The pause between two stories once all events are written.
const LEISURE: Duration = Duration::from_millis(80);

pub(crate) async fn run(args: Args) -> Result<Conclusion, Failure> {
    let terminal = Terminal::new(args.json);
    let ending = Ending::listen()?;
    let place = Place::choose(args.db.as_deref())?;
    let store = place.connect().await?;
    let pool = place.shop_pool(&store).await?;
    let ledger = Ledger::open(pool).await.map_err(|failure| place.explain(failure))?;
    let seed = args.seed.unwrap_or_else(|| Rng::from_entropy().next_u64() >> 32);
    let start = ledger.start(seed).await.map_err(|error| place.explain(error.into()))?;
    terminal.print(place.introduction(seed));

    let metrics = Arc::new(Recording::default());
    let receiver = ledger.clone();
    let outbox = Outbox::builder()
        .store(store)
        .otherwise(move |delivery: Delivery| receiver::receive(receiver.clone(), delivery))
        .retry(Backoff::new(Duration::from_millis(50)))
        .lease(LEASE)
        .poll(Duration::from_millis(20), Duration::from_millis(500))
        .drain_timeout(Duration::from_secs(2))
        .metrics(metrics.clone())
        .start()
        .await?;

    let tally = Arc::new(Tally::default());
    let clerk = Clerk {
        outbox: outbox.clone(),
        ledger: ledger.clone(),
        stories: Arc::new(Mutex::new(Stories::new(seed, start, args.events))),
        tally: tally.clone(),
        closed: Arc::new(AtomicBool::new(false)),
    };
    let finger = Finger { started: Instant::now(), outbox: outbox.clone(), ledger, metrics, tally };
    let mut view = View::new(terminal, args.events, args.exit);
    watch(&args, &clerk, &finger, &mut view, &ending).await?;

    let took = finger.started.elapsed();
    outbox.shutdown().await;
    view.end(&finger.pulse().await?);
    let delivered = finger.metrics.snapshot().delivered;
    let report = Report::read(&outbox, &finger.ledger, took, delivered).await?;
    report.print(terminal);
    Ok(report.conclusion())
}

/// Runs the shop until everything is done or the process is asked to end.
async fn watch(
    args: &Args,
    clerk: &Clerk,
    finger: &Finger,
    view: &mut View,
    ending: &Ending,
) -> Result<(), Failure> {
    let mut clerks = JoinSet::new();
    for _ in 0..CLERKS {
        clerks.spawn(clerk.clone().work(Duration::ZERO));
    }
    let mut beat = tokio::time::interval(BEAT);
    loop {
        tokio::select! {
            biased;
            () = ending.asked() => break,
            Some(worked) = clerks.join_next() => {
                worked.map_err(|error| Failure::bad(format!("a writer broke off: {error}")))??;
                if clerks.is_empty() && !args.exit {
                    clerk.stories.lock().unwrap_or_else(PoisonError::into_inner).go_on(u64::MAX);
                    clerks.spawn(clerk.clone().work(LEISURE));
                }
            }
            _ = beat.tick() => {
                // Ask first whether everything is written, so that no later write is missed.
                let written = clerks.is_empty();
                let pulse = finger.pulse().await?;
                view.show(&pulse);
                if written && pulse.pending() == 0 {
                    break;
                }
            }
        }
    }
    clerk.closed.store(true, Relaxed);
    while let Some(worked) = clerks.join_next().await {
        worked.map_err(|error| Failure::bad(format!("a writer broke off: {error}")))??;
    }
    Ok(())
}
