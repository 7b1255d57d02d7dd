//! One call of a sink: its time is limited, and a panic in it is an outcome.

use std::{pin::pin, sync::Arc, time::Duration};

use postrider_core::{Delivery, Outcome, Sink};

use crate::catch::catch;

/// Sends one event.
pub(crate) async fn send_one(sink: &Arc<dyn Sink>, timeout: Option<Duration>, delivery: Delivery) -> Outcome {
    // The call itself is inside, since it too can panic.
    let sending = pin!(async { sink.send_one(delivery).await });
    match limited(timeout, catch(sending)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => panicked(&panic),
        Err(limit) => no_answer(limit),
    }
}

/// Sends a batch; a panic fails every attempt in it, a time-out leaves every outcome unknown.
pub(crate) async fn send(
    sink: &Arc<dyn Sink>,
    timeout: Option<Duration>,
    batch: &[Delivery],
) -> Vec<Outcome> {
    let all = |outcome: Outcome| vec![outcome; batch.len()];
    let sending = pin!(async { sink.send(batch).await });
    match limited(timeout, catch(sending)).await {
        Ok(Ok(outcomes)) => outcomes,
        Ok(Err(panic)) => all(panicked(&panic)),
        Err(limit) => all(no_answer(limit)),
    }
}

async fn limited<F: Future>(timeout: Option<Duration>, sending: F) -> Result<F::Output, Duration> {
    match timeout {
        None => Ok(sending.await),
        // A timer takes much room, and handlers have none: boxed, it is not moved about with every event.
        Some(limit) => Box::pin(tokio::time::timeout(limit, sending)).await.map_err(|_| limit),
    }
}

fn panicked(panic: &str) -> Outcome {
    Outcome::retry(format!("the handler {panic}"))
}

fn no_answer(limit: Duration) -> Outcome {
    Outcome::unknown(format!("no answer within {limit:?}"))
}
