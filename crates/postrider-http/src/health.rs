//! Checks the receiver's health without sending an event.

use postrider_core::Health;
use reqwest::{Method, StatusCode};

use crate::client::{Answer, Client};

/// Asks the health path, if set. Otherwise any response shows that a server is there, but not that it would accept an event.
pub(crate) async fn ask(client: &Client, health_path: Option<&str>) -> Health {
    let method = if health_path.is_some() { Method::GET } else { Method::OPTIONS };
    let url = match client.base.url(health_path.unwrap_or_default()) {
        Ok(url) => url,
        Err(error) => return Health::Down { error },
    };
    match client.look(method, url).await {
        Answer::NotSent(error) | Answer::Lost(error) => Health::Down { error },
        Answer::Received(received) if health_path.is_some() && received.status.is_success() => Health::Up,
        Answer::Received(received) if health_path.is_some() || says_no(received.status) => {
            Health::Down { error: client.describe(&received) }
        }
        Answer::Received(_) => Health::Unknown,
    }
}

/// Statuses that no healthy receiver returns for any request: a gateway without its backend, or failed authentication.
fn says_no(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 403 | 407 | 429 | 502..=504)
}
