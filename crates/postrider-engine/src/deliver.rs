//! Deliver: interceptors, then the handler or sink that the route names.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use postrider_core::{BoxFuture, Delivery, Event, Outcome};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::{
    assignment::{ActiveAssignment, SendPermit},
    buffer::{Item, NextWork},
    catch::catch,
    engine::Shared,
    failure_warnings::batch_failed,
    lock,
    mutations::{self, Mutation},
    outcome_policy::conclude,
    routes::ReceiverId,
    send::{SendOne, send, send_one},
    sleep_until, suspect, trace,
};

/// One worker: takes what lines up, delivers it, hands the outcome on.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut watched = false;
    loop {
        let next = {
            let mut buffer = lock(&shared.buffer);
            let now = Instant::now();
            if std::mem::take(&mut watched) {
                buffer.wait_ended();
            }
            let next = buffer.next(now);
            if buffer.take_deferred() {
                shared.outcomes.notify_one();
            }
            // A single wake-up may stand for several events: pass it on before getting busy.
            // Where something waits for a moment to come, another worker has to wait for that.
            match next {
                NextWork::Wait(until) => {
                    watched = until.is_some();
                    buffer.wait_begins(until);
                }
                NextWork::Send(_) | NextWork::Suspect(_)
                    if buffer.has_work(now) || buffer.needs_waiter(now) =>
                {
                    shared.work.notify_one();
                }
                NextWork::Send(_) | NextWork::Suspect(_) => {}
            }
            next
        };
        match next {
            NextWork::Send(assignment) => {
                // Whoever a task wakes may have to wait for its thread, and a handler that never waits would not let it go.
                if deliver(ActiveAssignment::new(&shared, assignment)).await {
                    tokio::task::yield_now().await;
                }
            }
            NextWork::Suspect(assignment) => {
                suspect::deliver(ActiveAssignment::new(&shared, assignment)).await
            }
            NextWork::Wait(until) => {
                tokio::select! {
                    biased;
                    () = shared.work.notified() => {}
                    () = sleep_until(until) => {}
                }
            }
        }
    }
}

/// How one delivery ended.
pub(crate) enum DeliveryEnd {
    Outcome(Outcome),
    /// An interceptor failed the attempt; the receiver was not asked.
    Intercepted(Outcome),
    Unroutable,
    Undecodable,
    /// It may no longer be sent, and was not.
    NotSent,
}

/// Sends what is in the hand. Says whether it is time to settle.
pub(crate) async fn deliver(mut assignment: ActiveAssignment<'_>) -> bool {
    let shared = assignment.shared;
    let batching = assignment.receiver().filter(|id| shared.routes.traits(*id).batch_max > 1);
    match batching {
        Some(receiver) => deliver_batch(&mut assignment, receiver).await,
        None => deliver_each(&mut assignment).await,
    }
    assignment.end()
}

/// One after the other, for as long as each ends at once. What would have to wait for the first that does not goes to other workers.
async fn deliver_each(assignment: &mut ActiveAssignment<'_>) {
    let (shared, receiver) = (assignment.shared, assignment.receiver());
    while let Some(item) = assignment.next() {
        let end = {
            let mut sending = deliver_one(shared, receiver, &item, assignment.permit());
            match poll_once(&mut sending).await {
                Poll::Ready(end) => end,
                Poll::Pending => {
                    assignment.give_way();
                    in_time(handler_timeout(shared, receiver, &item), sending).await
                }
            }
        };
        match end {
            DeliveryEnd::Outcome(Outcome::Delivered) => assignment.delivered(item),
            DeliveryEnd::NotSent => assignment.take_back(vec![item]),
            end => conclude(assignment, item, end).await,
        }
    }
}

/// How long the receiver may take for an event, if it is a handler in this process: an outside system has a limit of its own.
fn handler_timeout(shared: &Shared, receiver: Option<ReceiverId>, item: &Item) -> Option<Duration> {
    receiver.filter(|id| shared.routes.traits(*id).in_process)?;
    let of_route = shared.routes.settings(item.route()).and_then(|route| route.handler_timeout);
    let limit = of_route.unwrap_or(shared.settings.handler_timeout);
    Some(limit).filter(|limit| !limit.is_zero() && !mutations::active(Mutation::NoHandlerTimeout))
}

/// Waits for the end of a delivery. A handler that takes longer is given up, and nobody knows what it has done.
async fn in_time(limit: Option<Duration>, sending: DeliveryFuture<'_>) -> DeliveryEnd {
    let Some(limit) = limit else { return sending.await };
    match Box::pin(tokio::time::timeout(limit, sending)).await {
        Ok(end) => end,
        Err(_) => DeliveryEnd::Outcome(Outcome::unknown(format!("the handler did not end within {limit:?}"))),
    }
}

async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context))).await
}

fn delivery_of(event: &Event, item: &Item) -> Delivery {
    Delivery {
        event: event.clone(),
        source: item.source,
        attempt: item.attempts.saturating_add(1),
        lane: item.lease.lane,
    }
}

/// One event on its way. What most events do not need is boxed: a future is as large as all that it could become, and is moved about; and
/// each `async` around another is polled through.
enum DeliveryFuture<'a> {
    /// Nothing stands between the event and its receiver.
    Plainly(SendOne<'a>),
    Otherwise(BoxFuture<'a, DeliveryEnd>),
}

impl Future for DeliveryFuture<'_> {
    type Output = DeliveryEnd;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<DeliveryEnd> {
        match &mut *self {
            Self::Plainly(sending) => Pin::new(sending).poll(context).map(DeliveryEnd::Outcome),
            Self::Otherwise(sending) => sending.as_mut().poll(context),
        }
    }
}

fn deliver_one<'a>(
    shared: &'a Shared,
    receiver: Option<ReceiverId>,
    item: &Item,
    permit: SendPermit,
) -> DeliveryFuture<'a> {
    let Ok(event) = &item.content else {
        return DeliveryFuture::Otherwise(Box::pin(std::future::ready(DeliveryEnd::Undecodable)));
    };
    let (delivery, context) = (delivery_of(event, item), event.trace_context());
    if shared.interceptors.is_empty()
        && context.is_none()
        && let Some(receiver) = receiver
        && let Some(sink) = shared.routes.sink(receiver)
        && shared.routes.traits(receiver).send_timeout.is_none()
    {
        return DeliveryFuture::Plainly(SendOne::new(sink, delivery));
    }
    DeliveryFuture::Otherwise(match context {
        Some(context) => Box::pin(trace::scope(context, intercepted(shared, receiver, delivery, permit))),
        None => Box::pin(intercepted(shared, receiver, delivery, permit)),
    })
}

async fn intercepted(
    shared: &Shared,
    receiver: Option<ReceiverId>,
    delivery: Delivery,
    permit: SendPermit,
) -> DeliveryEnd {
    if let Err((passed, outcome)) = before(shared, &delivery).await {
        after(shared, &delivery, &outcome, passed).await;
        return DeliveryEnd::Intercepted(outcome);
    }
    // Interceptors take their time.
    if !permit.holds(shared) {
        after(shared, &delivery, &Outcome::deferred(Duration::ZERO), shared.interceptors.len()).await;
        return DeliveryEnd::NotSent;
    }
    let end = ask(shared, receiver, delivery.clone()).await;
    let passed = shared.interceptors.len();
    match &end {
        DeliveryEnd::Outcome(outcome) => after(shared, &delivery, outcome, passed).await,
        _ => after(shared, &delivery, &Outcome::rejected(unroutable(&delivery)), passed).await,
    }
    end
}

async fn ask(shared: &Shared, receiver: Option<ReceiverId>, delivery: Delivery) -> DeliveryEnd {
    let Some((receiver, sink)) = receiver.and_then(|id| Some((id, shared.routes.sink(id)?))) else {
        return DeliveryEnd::Unroutable;
    };
    DeliveryEnd::Outcome(send_one(sink, shared.routes.traits(receiver).send_timeout, delivery).await)
}

/// A batch for a sink. Interceptors run for each event; those that one of them fails are left out.
async fn deliver_batch(assignment: &mut ActiveAssignment<'_>, receiver: ReceiverId) {
    let shared = assignment.shared;
    let Some(sink) = shared.routes.sink(receiver) else { return };
    let mut batch = Vec::with_capacity(assignment.len());
    let mut sent: Vec<Item> = Vec::with_capacity(assignment.len());
    let mut ended = Vec::new();
    let mut order = KeyOrderInBatch::default();
    while let Some(item) = assignment.next() {
        let Some(item) = order.keeps(item) else { continue };
        let Ok(event) = &item.content else {
            order.stops(&item);
            ended.push((item, DeliveryEnd::Undecodable));
            continue;
        };
        let delivery = delivery_of(event, &item);
        match before(shared, &delivery).await {
            Ok(()) => {
                batch.push(delivery);
                sent.push(item);
            }
            Err((passed, outcome)) => {
                after(shared, &delivery, &outcome, passed).await;
                order.stops(&item);
                ended.push((item, DeliveryEnd::Intercepted(outcome)));
            }
        }
    }
    // Interceptors take their time.
    if !assignment.permit().holds(shared) {
        for delivery in std::mem::take(&mut batch) {
            after(shared, &delivery, &Outcome::deferred(Duration::ZERO), shared.interceptors.len()).await;
        }
        assignment.take_back(std::mem::take(&mut sent));
    }
    assignment.put_back_rest();
    assignment.requeue_followers(order.untried);
    for (item, end) in ended {
        conclude(assignment, item, end).await;
    }
    if batch.is_empty() {
        return;
    }
    let outcomes = send(sink, shared.routes.traits(receiver).send_timeout, &batch).await;
    let outcomes = match outcomes {
        // It was not sent, so it never counts; and to come again at once would help nobody.
        outcomes if was_nothing_sent(&outcomes) => {
            vec![Outcome::unavailable("nothing was sent"); outcomes.len()]
        }
        outcomes if failed_as_a_whole(&outcomes) && !mutations::active(Mutation::BatchFailsEach) => {
            outcomes.into_iter().map(as_a_whole).collect()
        }
        outcomes => outcomes,
    };
    let mut outcomes = outcomes.into_iter();
    let (mut failed, mut isolation) = (Vec::new(), Vec::new());
    let mut order = KeyOrderInBatch::default();
    for (item, delivery) in sent.into_iter().zip(&batch) {
        let outcome = outcomes.next().unwrap_or_else(|| missing(batch.len()));
        after(shared, delivery, &outcome, shared.interceptors.len()).await;
        if outcome == Outcome::Delivered {
            assignment.delivered(item);
        } else if let Some(item) = order.keeps(item) {
            order.stops(&item);
            match outcome {
                outcome @ Outcome::BatchFailed { .. } if batch.len() > 1 && !assignment.counted => {
                    batch_failed(assignment, &item, &outcome);
                    isolation.push(item);
                }
                outcome => failed.push((item, outcome)),
            }
        }
    }
    assignment.requeue_followers(order.untried);
    if !isolation.is_empty() {
        debug!(events = batch.len(), "a batch failed as a whole: its events are sent apart");
        assignment.part(isolation);
    }
    // What was delivered beside them says whether the receiver was there for the others.
    for (item, outcome) in failed {
        conclude(assignment, item, DeliveryEnd::Outcome(outcome)).await;
    }
}

/// Whether the sink says of all events that they were not sent because of another: then there is a reason that it does not know.
fn was_nothing_sent(outcomes: &[Outcome]) -> bool {
    let not_sent = |outcome: &Outcome| matches!(outcome, Outcome::Deferred { after } if after.is_zero());
    !outcomes.is_empty() && outcomes.iter().all(not_sent)
}

/// Whether all events of a batch failed for the same reason, and none got through: then any of them may be the reason.
fn failed_as_a_whole(outcomes: &[Outcome]) -> bool {
    let failed = |outcome: &Outcome| match outcome {
        Outcome::Retry { error, .. } | Outcome::Unknown { error } | Outcome::Later { error, .. } => {
            Some(error.clone())
        }
        _ => None,
    };
    let first = outcomes.first().and_then(failed);
    outcomes.len() > 1 && first.is_some() && outcomes.iter().all(|outcome| failed(outcome) == first)
}

/// What an event got that the sink forgot. Beside others it was not named, so that nobody knows whether it is the reason.
fn missing(events: usize) -> Outcome {
    if events > 1 { as_a_whole(Outcome::missing()) } else { Outcome::missing() }
}

fn as_a_whole(outcome: Outcome) -> Outcome {
    Outcome::batch_failed(outcome.error().unwrap_or_default())
}

/// Keeps the order of keys within a batch: once an event of a key has failed, those behind it have not been tried.
#[derive(Default)]
struct KeyOrderInBatch {
    /// Keys that an event of has failed, by their numbers.
    stopped: Vec<u64>,
    untried: Vec<Item>,
}

impl KeyOrderInBatch {
    fn stops(&mut self, item: &Item) {
        self.stopped.push(item.key_number);
    }

    /// The event, unless it stands behind one that has failed.
    fn keeps(&mut self, item: Item) -> Option<Item> {
        if item.batched_with_head
            && self.stopped.contains(&item.key_number)
            && !mutations::active(Mutation::BehindFails)
        {
            self.untried.push(item);
            return None;
        }
        Some(item)
    }
}

pub(crate) fn unroutable(event: &Event) -> String {
    format!(
        "unroutable: no handler for the event type {:?} of the aggregate type {:?}",
        event.event_type(),
        event.aggregate_type()
    )
}

/// Runs the interceptors in order; an error is a failed attempt, with the number of those that had passed.
async fn before(shared: &Shared, delivery: &Delivery) -> Result<(), (usize, Outcome)> {
    for (passed, interceptor) in shared.interceptors.iter().enumerate() {
        let error = match catch(pin!(async { interceptor.before(delivery).await })).await {
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
        let error = match catch(pin!(async { interceptor.after(delivery, outcome).await })).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => postrider_core::sink::error_chain(&*error),
            Err(panic) => panic,
        };
        warn!(event = %delivery.id(), %error, "an interceptor failed after delivery: the outcome stands");
    }
}
