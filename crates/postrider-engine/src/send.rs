//! One call of a sink: its time is limited, and a panic in it is an outcome.

use std::sync::Arc;

use postrider_core::{Delivery, Outcome, Sink};

use crate::catch::catch;

/// Sends a batch; a panic fails every attempt in it, a time-out leaves every outcome unknown.
pub(crate) async fn send(sink: &Arc<dyn Sink>, batch: &[Delivery]) -> Vec<Outcome> {
    let all = |outcome: Outcome| vec![outcome; batch.len()];
    // The call itself is inside, since it too can panic.
    let sending = catch(async { sink.send(batch).await });
    let result = match sink.traits().send_timeout {
        None => sending.await,
        Some(limit) => match tokio::time::timeout(limit, sending).await {
            Ok(result) => result,
            Err(_) => return all(Outcome::unknown(format!("no answer within {limit:?}"))),
        },
    };
    result.unwrap_or_else(|panic| all(Outcome::retry(format!("the handler {panic}"))))
}

/// What an event got that the sink forgot.
pub(crate) fn no_outcome() -> Outcome {
    Outcome::unknown("the sink returned no outcome for this event")
}
