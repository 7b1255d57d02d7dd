//! Calls a sink once, with a time limit. A panic in it is an outcome.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use postrider_core::{BoxFuture, Delivery, Outcome, Sink};

use crate::{
    catch::{catch, message},
    mutations::{self, Mutation},
};

/// Sends one event.
pub(crate) async fn send_one(sink: &Arc<dyn Sink>, timeout: Option<Duration>, delivery: Delivery) -> Outcome {
    limited(timeout, SendOne::new(sink, delivery)).await.unwrap_or_else(no_answer)
}

/// One event on its way to its sink. Every event goes through here, so it is one state machine instead of
/// nested futures.
pub(crate) enum SendOne<'a> {
    Begin(&'a dyn Sink, Delivery),
    UnderWay(BoxFuture<'a, Outcome>),
    /// Ended, or in the middle of a step.
    Ended,
}

impl<'a> SendOne<'a> {
    pub(crate) fn new(sink: &'a Arc<dyn Sink>, delivery: Delivery) -> Self {
        Self::Begin(&**sink, delivery)
    }
}

impl Future for SendOne<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let step = std::mem::replace(&mut *self, Self::Ended);
        // After a panic the future is dropped, so nobody sees its half-done state. The call itself is inside,
        // since it can panic too.
        let polled = catch_unwind(AssertUnwindSafe(move || {
            let mut sending = match step {
                Self::Begin(sink, delivery) => sink.send_one(delivery),
                Self::UnderWay(sending) => sending,
                Self::Ended => return Err(Outcome::unknown("asked again after its end")),
            };
            match sending.as_mut().poll(context) {
                Poll::Ready(outcome) => Err(outcome),
                Poll::Pending => Ok(sending),
            }
        }));
        match polled {
            Ok(Ok(sending)) => {
                *self = Self::UnderWay(sending);
                Poll::Pending
            }
            Ok(Err(outcome)) => Poll::Ready(outcome),
            Err(panic) => Poll::Ready(panicked(&message(&*panic))),
        }
    }
}

/// Sends a batch. After a panic or a timeout it is unknown which event is the cause.
pub(crate) async fn send(
    sink: &Arc<dyn Sink>,
    timeout: Option<Duration>,
    batch: &[Delivery],
) -> Vec<Outcome> {
    let all = |outcome: Outcome| vec![outcome; batch.len()];
    let as_a_whole = |outcome: Outcome| match batch.len() {
        1 => outcome,
        _ => Outcome::batch_failed(outcome.error().unwrap_or_default()),
    };
    let sending = pin!(async { sink.send(batch).await });
    match limited(timeout, catch(sending)).await {
        Ok(Ok(outcomes)) => outcomes,
        Ok(Err(panic)) => all(as_a_whole(panicked(&panic))),
        Err(limit) => all(as_a_whole(no_answer(limit))),
    }
}

async fn limited<F: Future>(timeout: Option<Duration>, sending: F) -> Result<F::Output, Duration> {
    match timeout.filter(|_| !mutations::active(Mutation::SendsWithoutDeadline)) {
        None => Ok(sending.await),
        // A timer is large and handlers have none. Boxed, it is not moved with every event.
        Some(limit) => Box::pin(tokio::time::timeout(limit, sending)).await.map_err(|_| limit),
    }
}

fn panicked(panic: &str) -> Outcome {
    Outcome::retry(format!("the handler {panic}"))
}

fn no_answer(limit: Duration) -> Outcome {
    Outcome::unknown(format!("no answer within {limit:?}"))
}
