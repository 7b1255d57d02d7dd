//! Delivers: runs the interceptors, then the handler or sink that the route names.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use postrider_core::{BoxFuture, Delivery, Event, Outcome};
use tracing::{debug, warn};

use crate::{
    assignment::{ActiveAssignment, SendPermit},
    buffer::Item,
    catch::catch,
    delivery_end::{DeliveryEnd, unroutable},
    failure_warnings::batch_failed,
    mutations::{self, Mutation},
    outcome_policy::conclude,
    routes::ReceiverId,
    send::{SendOne, send, send_one},
    shared::Shared,
    trace,
};

/// Delivers an assignment. Returns whether it is time to settle.
pub(crate) async fn deliver(mut assignment: ActiveAssignment<'_>) -> bool {
    let shared = assignment.shared;
    let batching = assignment.receiver().filter(|id| shared.routes.traits(*id).batch_max > 1);
    match batching {
        Some(receiver) => deliver_batch(&mut assignment, receiver).await,
        None => deliver_each(&mut assignment).await,
    }
    assignment.end()
}

/// Delivers one event after the other, while each ends at once. The first one that does not makes the rest go
/// to other workers.
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

/// Returns the time limit of a handler in this process. Outside systems have limits of their own.
fn handler_timeout(shared: &Shared, receiver: Option<ReceiverId>, item: &Item) -> Option<Duration> {
    receiver.filter(|id| shared.routes.traits(*id).in_process)?;
    let of_route = shared.routes.settings(item.route()).and_then(|route| route.handler_timeout);
    let limit = of_route.unwrap_or(shared.settings.handler_timeout);
    Some(limit).filter(|limit| !limit.is_zero() && !mutations::active(Mutation::NoHandlerTimeout))
}

/// Waits for a delivery up to a limit. It is unknown what a handler that takes longer has done.
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

/// A delivery under way. Parts that most events do not need are boxed: a future is as large as its largest
/// state and is moved with every event, and each `async` layer is polled through.
enum DeliveryFuture<'a> {
    /// Without interceptors, trace or time limit.
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
    // Interceptors take time.
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

/// Delivers a batch to a sink. Events that an interceptor fails are left out.
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
    // Interceptors take time.
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
        // It was not sent, so it does not count. Trying again at once would not help.
        outcomes if was_nothing_sent(&outcomes) => {
            vec![Outcome::unavailable("nothing was sent"); outcomes.len()]
        }
        outcomes if failed_as_a_whole(&outcomes) && !mutations::active(Mutation::BatchFailureCountsEach) => {
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
        debug!(events = batch.len(), "batch failed as a whole: sending its events separately");
        assignment.split_batch(isolation);
    }
    // Deliveries beside them show whether the receiver was up.
    for (item, outcome) in failed {
        conclude(assignment, item, DeliveryEnd::Outcome(outcome)).await;
    }
}

/// Whether the sink says of all events that another one kept them from being sent, so that none of them is the
/// reason.
fn was_nothing_sent(outcomes: &[Outcome]) -> bool {
    let not_sent = |outcome: &Outcome| matches!(outcome, Outcome::Deferred { after } if after.is_zero());
    !outcomes.is_empty() && outcomes.iter().all(not_sent)
}

/// Whether all events of a batch failed for the same reason, so that any of them may be the cause.
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

/// Returns the outcome of an event that the sink left out. In a batch it is unknown whether that event is the
/// cause.
fn missing(events: usize) -> Outcome {
    if events > 1 { as_a_whole(Outcome::missing()) } else { Outcome::missing() }
}

fn as_a_whole(outcome: Outcome) -> Outcome {
    Outcome::batch_failed(outcome.error().unwrap_or_default())
}

/// Keeps the order of keys within a batch: after an event of a key has failed, the later ones count as not
/// tried.
#[derive(Default)]
struct KeyOrderInBatch {
    /// The numbers of keys that had a failed event.
    stopped: Vec<u64>,
    untried: Vec<Item>,
}

impl KeyOrderInBatch {
    fn stops(&mut self, item: &Item) {
        self.stopped.push(item.key_number);
    }

    /// Returns the event, unless an earlier one of its key has failed.
    fn keeps(&mut self, item: Item) -> Option<Item> {
        if item.batched_with_head
            && self.stopped.contains(&item.key_number)
            && !mutations::active(Mutation::FollowersFailToo)
        {
            self.untried.push(item);
            return None;
        }
        Some(item)
    }
}

/// Runs the interceptors in order. An error is a failed attempt; the number of interceptors that passed comes
/// with it.
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

/// Runs the first `passed` interceptors in reverse order. Errors in them are logged.
async fn after(shared: &Shared, delivery: &Delivery, outcome: &Outcome, passed: usize) {
    for interceptor in shared.interceptors.iter().take(passed).rev() {
        let error = match catch(pin!(async { interceptor.after(delivery, outcome).await })).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => postrider_core::sink::error_chain(&*error),
            Err(panic) => panic,
        };
        warn!(event_id = %delivery.id(), %error, "interceptor failed after delivery: the outcome stands");
    }
}
