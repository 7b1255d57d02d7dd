//! Deliver: interceptors, route, handler or sink, and what its outcome means for the event.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use postrider_core::{
    Backoff, Delivery, Event, Outcome, RetryPolicy, Source,
    event::limits::clean_error,
    store::{Change, HoldReason, Settlement},
};
use tokio::time::Instant;
use tracing::{error, warn};

use crate::{
    DeadHeads,
    buffer::{Item, Next, Verdict},
    catch::catch,
    engine::Shared,
    lock,
    routes::RouteId,
    send::{no_outcome, send},
    sleep_until, suspect, trace,
};

/// One worker: takes what lines up, delivers it, hands the outcome on.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let next = {
            let mut buffer = lock(&shared.buffer);
            let now = Instant::now();
            let next = buffer.next(now, &shared.routes);
            // A single wake-up may stand for several events: pass it on before getting busy.
            if !matches!(next, Next::Wait(_)) && buffer.has_work(now, &shared.routes) {
                shared.work.notify_one();
            }
            next
        };
        match next {
            Next::Send(route, items) => deliver(&shared, route, items).await,
            Next::Suspect(route, item) => suspect::deliver(&shared, route, item).await,
            Next::Wait(until) => {
                tokio::select! {
                    biased;
                    () = shared.work.notified() => {}
                    () = sleep_until(until) => {}
                }
            }
        }
    }
}

pub(crate) async fn deliver(shared: &Shared, route: Option<RouteId>, mut items: Vec<Item>) {
    let outcomes = match items.as_mut_slice() {
        [item] => vec![deliver_one(shared, route, item).await],
        _ => deliver_batch(shared, route, &items).await,
    };
    let verdicts: Vec<Verdict> =
        items.into_iter().zip(outcomes).map(|(item, end)| judge(shared, route, item, end)).collect();
    finish(shared, verdicts);
}

/// Hands outcomes on to be settled.
fn finish(shared: &Shared, verdicts: Vec<Verdict>) {
    let now = Instant::now();
    let settle_now = {
        let mut buffer = lock(&shared.buffer);
        let first = buffer.settle_at(&shared.settings, now, &shared.routes).is_none();
        buffer.finish(verdicts, now);
        first || buffer.settle_at(&shared.settings, now, &shared.routes) == Some(now)
    };
    if settle_now {
        shared.outcomes.notify_one();
    }
}

/// An event was being delivered each time that a process ended, as often as it may be tried: it is not tried again.
pub(crate) fn give_up(shared: &Shared, item: Item) {
    let block = shared.settings.dead_heads == DeadHeads::Block && item.key.is_some();
    let error = format!("the process ended {} times while this event was being delivered", item.attempts);
    let change = Change::Dead { attempts: item.attempts, error, block };
    finish(shared, vec![verdict(item, change)]);
}

/// How one delivery ended.
enum End {
    Outcome(Outcome),
    /// An interceptor failed the attempt; the receiver was not asked.
    Intercepted(Outcome),
    Unroutable,
    Undecodable,
}

fn delivery_of(event: &Event, item: &Item) -> Delivery {
    Delivery {
        event: event.clone(),
        source: item.source,
        attempt: item.attempts.saturating_add(1),
        lane: item.lease.lane,
    }
}

async fn deliver_one(shared: &Shared, route: Option<RouteId>, item: &Item) -> End {
    let Ok(event) = &item.cargo else { return End::Undecodable };
    let delivery = delivery_of(event, item);
    let sink = route.and_then(|route| shared.routes.sink(route));
    let run = async {
        let passed = match before(shared, &delivery).await {
            Ok(()) => shared.interceptors.len(),
            Err((passed, outcome)) => {
                after(shared, &delivery, &outcome, passed).await;
                return End::Intercepted(outcome);
            }
        };
        let outcome = match sink {
            Some(sink) => send(sink, std::slice::from_ref(&delivery))
                .await
                .into_iter()
                .next()
                .unwrap_or_else(no_outcome),
            None => Outcome::rejected(unroutable(event)),
        };
        after(shared, &delivery, &outcome, passed).await;
        if sink.is_some() { End::Outcome(outcome) } else { End::Unroutable }
    };
    match event.trace_context() {
        Some(context) => trace::scope(context, run).await,
        None => run.await,
    }
}

/// A batch for a sink. Interceptors run for each event; those that one of them fails are left out.
async fn deliver_batch(shared: &Shared, route: Option<RouteId>, items: &[Item]) -> Vec<End> {
    let Some(sink) = route.and_then(|route| shared.routes.sink(route)) else {
        let mut ends = Vec::with_capacity(items.len());
        for item in items {
            ends.push(deliver_one(shared, None, item).await);
        }
        return ends;
    };
    let mut ends: Vec<Option<End>> = Vec::with_capacity(items.len());
    let mut batch = Vec::with_capacity(items.len());
    for item in items {
        let Ok(event) = &item.cargo else {
            ends.push(Some(End::Undecodable));
            continue;
        };
        let delivery = delivery_of(event, item);
        match before(shared, &delivery).await {
            Ok(()) => {
                batch.push(delivery);
                ends.push(None);
            }
            Err((passed, outcome)) => {
                after(shared, &delivery, &outcome, passed).await;
                ends.push(Some(End::Intercepted(outcome)));
            }
        }
    }
    let outcomes = if batch.is_empty() { Vec::new() } else { send(sink, &batch).await };
    let mut outcomes = outcomes.into_iter();
    let mut deliveries = batch.iter();
    let mut all = Vec::with_capacity(items.len());
    for end in ends {
        all.push(match end {
            Some(end) => end,
            None => {
                let outcome = outcomes.next().unwrap_or_else(no_outcome);
                if let Some(delivery) = deliveries.next() {
                    after(shared, delivery, &outcome, shared.interceptors.len()).await;
                }
                End::Outcome(outcome)
            }
        });
    }
    all
}

fn unroutable(event: &Event) -> String {
    format!(
        "unroutable: no handler for the event type {:?} of the aggregate type {:?}",
        event.event_type(),
        event.aggregate_type()
    )
}

/// Runs the interceptors in order; an error is a failed attempt, with the number of those that had passed.
async fn before(shared: &Shared, delivery: &Delivery) -> Result<(), (usize, Outcome)> {
    for (passed, interceptor) in shared.interceptors.iter().enumerate() {
        let error = match catch(async { interceptor.before(delivery).await }).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => postrider_core::sink::error_chain(&*error),
            Err(panic) => panic,
        };
        return Err((passed, Outcome::retry(format!("an interceptor refused the event: {error}"))));
    }
    Ok(())
}

/// Runs the first `passed` interceptors in reverse order; what goes wrong in them is logged.
async fn after(shared: &Shared, delivery: &Delivery, outcome: &Outcome, passed: usize) {
    for interceptor in shared.interceptors.iter().take(passed).rev() {
        let error = match catch(async { interceptor.after(delivery, outcome).await }).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => postrider_core::sink::error_chain(&*error),
            Err(panic) => panic,
        };
        warn!(event = %delivery.id(), %error, "an interceptor failed after delivery: the outcome stands");
    }
}

/// Turns the end of a delivery into what the table is to say.
fn judge(shared: &Shared, route: Option<RouteId>, item: Item, end: End) -> Verdict {
    let attempts = item.attempts.saturating_add(1);
    let block = shared.settings.dead_heads == DeadHeads::Block && item.key.is_some();
    let change = match end {
        End::Outcome(outcome) => {
            let pause = note_breaker(shared, route, &outcome);
            match outcome {
                Outcome::Delivered => Change::Done,
                Outcome::Rejected { error } => Change::Dead { attempts, error, block },
                Outcome::Deferred { after } => {
                    Change::Wait { after, attempts: item.attempts, error: None, reason: HoldReason::Deferred }
                }
                Outcome::Unavailable { error } => Change::Wait {
                    after: pause,
                    attempts: item.attempts,
                    error: Some(error),
                    reason: HoldReason::Deferred,
                },
                outcome => fail(shared, attempts, outcome, block),
            }
        }
        End::Intercepted(outcome) => {
            not_sent(shared, route);
            fail(shared, attempts, outcome, block)
        }
        // Nobody will ever handle it, so its key does not wait for it.
        End::Unroutable => {
            let error = item.cargo.as_ref().map_or_else(|row| row.reason.clone(), unroutable);
            Change::Dead { attempts: item.attempts, error, block: false }
        }
        End::Undecodable => {
            let error = item.cargo.as_ref().err().map_or_else(String::new, |row| row.reason.clone());
            Change::Dead { attempts: item.attempts, error: format!("undecodable: {error}"), block }
        }
    };
    verdict(item, change)
}

fn verdict(item: Item, change: Change) -> Verdict {
    let change = clean(change);
    report(&item, &change);
    Verdict {
        lease: item.lease,
        settlement: Settlement {
            lane: item.lease.lane,
            seq: item.seq,
            key: item.key,
            held: item.held,
            change,
        },
    }
}

/// A failed attempt: wait and try again, or dead if it was the last.
fn fail(shared: &Shared, attempts: u32, outcome: Outcome, block: bool) -> Change {
    let (error, after) = match outcome {
        Outcome::Retry { error, after } => (error, after),
        outcome => (outcome.error().unwrap_or_default().to_owned(), None),
    };
    if attempts >= shared.settings.max_attempts {
        return Change::Dead { attempts, error, block };
    }
    let after = after.unwrap_or_else(|| delay(shared, attempts, &error));
    Change::Wait { after, attempts, error: Some(error), reason: HoldReason::Retry }
}

/// The policy's delay. A policy that panics is answered for by the default one, so that the event is not lost.
fn delay(shared: &Shared, attempts: u32, error: &str) -> Duration {
    let mut rng = lock(&shared.rng).fork();
    catch_unwind(AssertUnwindSafe(|| shared.retry.delay(attempts, error, &mut rng))).unwrap_or_else(|_| {
        error!("the retry policy panicked: the default one decides");
        Backoff::default().delay(attempts, error, &mut lock(&shared.rng))
    })
}

/// Tells the route's breaker what came back, and says for how long it is open.
fn note_breaker(shared: &Shared, route: Option<RouteId>, outcome: &Outcome) -> Duration {
    let Some(route) = route else { return Duration::ZERO };
    let mut buffer = lock(&shared.buffer);
    let Some(breaker) = buffer.breakers.get_mut(route + 1) else { return Duration::ZERO };
    // A probe that nobody answered is no sign of life.
    let refusal = match outcome {
        Outcome::Unavailable { error } => Some(error),
        Outcome::Unknown { error } if !breaker.is_closed() => Some(error),
        _ => None,
    };
    if let Some(error) = refusal {
        let opens = breaker.opens_at(Instant::now()).is_none();
        let pause = breaker.refused(Instant::now(), &mut lock(&shared.rng));
        drop(buffer);
        // Somebody has to wake up when the pause is over, and this worker may be busy then.
        shared.work.notify_one();
        if opens {
            warn!(%error, ?pause, "a receiver is unavailable: what goes to it waits");
            shared.metrics.breaker(true);
        }
        return pause;
    }
    let reopened = breaker.answered();
    drop(buffer);
    if reopened {
        shared.metrics.breaker(false);
        shared.work.notify_one();
    }
    Duration::ZERO
}

/// Tells the route's breaker that the receiver was not asked.
pub(crate) fn not_sent(shared: &Shared, route: Option<RouteId>) {
    let mut buffer = lock(&shared.buffer);
    if let Some(breaker) = route.and_then(|route| buffer.breakers.get_mut(route + 1)) {
        breaker.not_sent(Instant::now());
    }
}

/// Error text is cut and cleaned here, before it is kept in memory and stored.
fn clean(mut change: Change) -> Change {
    match &mut change {
        Change::Wait { error: Some(error), .. } | Change::Dead { error, .. } => *error = clean_error(error),
        _ => {}
    }
    change
}

/// A dead event is told of once, here, where its id and its reason are known.
fn report(item: &Item, change: &Change) {
    if let Change::Dead { attempts, error, block } = change {
        let id = item.cargo.as_ref().map_or_else(|row| &row.id, Event::id);
        let hot = item.source == Source::Hot;
        error!(event = %id, attempts, reason = %error, blocks_its_key = block, hot, "event is dead");
    }
}
