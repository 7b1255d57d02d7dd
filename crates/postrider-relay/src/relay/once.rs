//! `postrider run --once`: delivers what is due now from each source in turn, then exits.
//!
//! It exits when only events are left that cannot be sent or written now, when its time is up, or when it is asked to. If a receiver asked for a
//! pause of a few seconds, it waits, as long as something is delivered in between. The conclusion is bad if something due is left for a receiver,
//! waits for a retry, died meanwhile, or could not be written; older dead letters do not matter. If another session has locked all lanes, nothing
//! can run and the command fails.

use std::{pin::pin, sync::Arc, time::Duration};

use postrider::{
    Drained, Outbox,
    metrics::{Recording, Snapshot},
    store::Stats,
};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    build::{Instruments, Plan, end_limit, plans},
    source,
};
use crate::{Conclusion, config::Config, failure::Failure, operations, signal::Ending, traces::Exporter};

/// How long events may wait for the end of a pause without a delivery: a pause of 5 s, and the time to resume.
const PAUSE_MAX: Duration = Duration::from_secs(6);

/// How often to check whether a pause is over.
const CHECK_EVERY: Duration = Duration::from_millis(100);

pub(super) async fn run(config: Config, timeout: Option<Duration>) -> Result<Conclusion, Failure> {
    let ending = Ending::listen()?;
    ending.limit().set(end_limit([&config]));
    let meters = operations::Meters::new()?;
    let exporter = Exporter::start(config.operations.traces.as_ref(), &meters)?;
    let instruments = Instruments { meters, tracer: exporter.tracer().clone() };
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut conclusion = Conclusion::Good;
    for plan in plans(config, &instruments)? {
        let ended = {
            let over = pin!(over(&ending, deadline));
            deliver(plan, over).await?
        };
        if ended != Ended::Delivered {
            conclusion = Conclusion::Bad;
        }
        if ended == Ended::Early {
            break;
        }
    }
    drop(instruments);
    exporter.end().await;
    Ok(conclusion)
}

/// How a run ended for one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// Everything due was delivered.
    Delivered,
    /// Something due was not delivered.
    NotAll,
    /// The run was asked to end, or its time was up.
    Early,
}

/// Returns when the run must end, whatever is left.
async fn over(ending: &Ending, deadline: Option<Instant>) -> &'static str {
    let time_is_up = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = ending.asked() => "asked to end",
        () = time_is_up => "the time is up",
    }
}

/// Delivers what is due in one source until `over`.
async fn deliver(
    mut plan: Plan,
    mut over: std::pin::Pin<&mut impl Future<Output = &'static str>>,
) -> Result<Ended, Failure> {
    let counts = Arc::new(Recording::default());
    plan.metrics = counts.clone();
    let (outbox, database) = tokio::select! {
        biased;
        why = &mut over => {
            warn!(source = %plan.name, why, "the run ended before the source was reached");
            return Ok(Ended::Early);
        }
        started = source::start(&plan) => started?,
    };
    info!(source = %plan.name, %database, "delivering what is due");
    let drained = tokio::select! {
        biased;
        why = &mut over => Err(why),
        drained = drain(&outbox, &counts) => Ok(drained?),
    };
    let left = outbox.stats().await?;
    outbox.shutdown().await;
    let counts = counts.snapshot();
    info!(
        source = %plan.name,
        delivered = counts.delivered,
        died = counts.dead,
        pending = left.pending,
        waiting = left.waiting,
        parked = left.parked,
        dead = left.dead,
        "drained"
    );
    Ok(match drained {
        Err(why) => {
            warn!(source = %plan.name, why, "the run ended before everything due was delivered");
            Ended::Early
        }
        Ok(Drained::AllButUnavailable) => {
            warn!(source = %plan.name, "events are left for receivers that are down or disabled");
            Ended::NotAll
        }
        Ok(Drained::AllButUnsettled { locked, refused, failing }) => {
            warn!(
                source = %plan.name,
                locked,
                refused,
                failing,
                "the outcomes of some events could not be written: another session has locked their rows, or the database refuses them or does not answer"
            );
            Ended::NotAll
        }
        Ok(Drained::AllButLockedLanes { locked, owned: 0 }) => {
            let what =
                format!("the source `{}`: another session has locked the rows of {locked} lanes", plan.name);
            let hint = "end the session that holds locks on the lane table, then run this again";
            return Err(Failure::unusable(what).hint(hint));
        }
        Ok(Drained::AllButLockedLanes { locked, .. }) => {
            warn!(source = %plan.name, locked, "events are left in lanes whose rows another session has locked");
            Ended::NotAll
        }
        Ok(_) => match why_left(&counts, &left) {
            Some(why) => {
                warn!(source = %plan.name, waiting = left.waiting, parked = left.parked, died = counts.dead, why, "events are left");
                Ended::NotAll
            }
            None => Ended::Delivered,
        },
    })
}

/// Delivers what is due, and what becomes due during short pauses.
async fn drain(outbox: &Outbox, counts: &Recording) -> postrider::Result<Drained> {
    let (mut delivered, mut since) = (0, None);
    loop {
        let drained = outbox.drain_available().await?;
        let (now, left) = (counts.snapshot(), outbox.stats().await?);
        let since = match since {
            Some(since) if now.delivered == delivered => since,
            _ => *since.insert(Instant::now()),
        };
        delivered = now.delivered;
        let comes_again = now.deferred > 0 && left.waiting > 0;
        let hindered = !matches!(drained, Drained::Everything | Drained::AllButUnavailable);
        if hindered || !comes_again || since.elapsed() >= PAUSE_MAX {
            return Ok(drained);
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
}

/// Why something due is left. A failed attempt that later succeeded leaves nothing.
fn why_left(counts: &Snapshot, left: &Stats) -> Option<&'static str> {
    match (counts.dead > 0, counts.failed > 0 && left.waiting > 0, counts.deferred > 0 && left.waiting > 0) {
        (true, ..) => Some("events died: list them with `postrider dead list`"),
        (_, true, _) => Some("events failed and wait for a retry: `postrider why` shows the error"),
        (_, _, true) => Some("a receiver asked for a pause, or is partly down: its events wait"),
        _ => None,
    }
}
