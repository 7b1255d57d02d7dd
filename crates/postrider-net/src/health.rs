//! The health check of a sink with a connection.

use std::future::Future;

use postrider_core::Health;

/// Asks a server for its health, and once more after a failure, because the connection may have ended while it was idle.
pub async fn ask_twice<F>(ask: impl Fn() -> F) -> Health
where
    F: Future<Output = Result<(), String>>,
{
    let answer = match ask().await {
        Ok(()) => Ok(()),
        Err(_) => ask().await,
    };
    answer.map_or_else(|error| Health::Down { error }, |()| Health::Up)
}
