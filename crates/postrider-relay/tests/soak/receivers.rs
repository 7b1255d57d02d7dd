//! The HTTP receivers: one takes an event a request at a path for each tenant, the other takes arrays.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, Uri, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use tokio::{net::TcpListener, task::JoinHandle};

use crate::{
    Failure,
    board::Mode,
    ledger::{Arrival, Number, Rejection, RelayId},
    stage::Shared,
    time::pass,
    world::{ANSWER, BATCH, Destination},
};

/// The header that says which relay sends.
pub(crate) const RELAY_HEADER: &str = "x-relay";
pub(crate) const HEALTH: &str = "/health";

/// What an event holds.
#[derive(Debug, Deserialize)]
struct Payload {
    no: Number,
    #[serde(default)]
    poison: bool,
}

/// A receiver. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

pub(crate) async fn hooks(shared: Arc<Shared>) -> Result<Receiver, Failure> {
    serve(Router::new().fallback(take_one).with_state(shared)).await
}

pub(crate) async fn batches(shared: Arc<Shared>) -> Result<Receiver, Failure> {
    serve(Router::new().fallback(take_batch).with_state(shared)).await
}

async fn serve(router: Router) -> Result<Receiver, Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(async move { _ = axum::serve(listener, router).await });
    Ok(Receiver { address, serving })
}

async fn take_one(State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    if uri.path() == HEALTH {
        return health(shared.board.are_healthy(Destination::tenants()));
    }
    let tenant = uri.path().strip_prefix("/t/").and_then(Destination::of_tenant);
    let (Some(tenant), Ok(payload)) = (tenant, serde_json::from_slice::<Payload>(&body)) else {
        shared.problem(format!("a webhook nobody wrote: {} {body:?}", uri.path()));
        return StatusCode::NOT_FOUND.into_response();
    };
    let events = [payload];
    receive(&shared, tenant, relay(&headers), &events).await
}

async fn take_batch(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if uri.path() == HEALTH {
        return health(shared.board.are_healthy(std::iter::once(BATCH)));
    }
    let Ok(events) = serde_json::from_slice::<Vec<Payload>>(&body) else {
        shared.problem(format!("a batch nobody wrote: {} {body:?}", uri.path()));
        return StatusCode::NOT_FOUND.into_response();
    };
    receive(&shared, BATCH, relay(&headers), &events).await
}

fn health(is_well: bool) -> Response {
    if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }.into_response()
}

fn relay(headers: &HeaderMap) -> RelayId {
    let said = headers.get(RELAY_HEADER).and_then(|value| value.to_str().ok());
    said.and_then(|value| value.parse().ok()).unwrap_or(RelayId::MAX)
}

async fn receive(shared: &Shared, destination: Destination, by: RelayId, events: &[Payload]) -> Response {
    let arrived = |events: &[Payload], acknowledged: bool| {
        let at = shared.clock.now();
        for event in events {
            shared.arrived(event.no, Arrival { at, by, acknowledged }, destination);
        }
    };
    match shared.board.ask(destination) {
        Mode::Well => {
            // A whole request fails because of one event. What stands before that event is taken every second time.
            if let Some(poison) = events.iter().position(|event| event.poison) {
                let first = events.first().map_or(0, |event| event.no);
                if first.is_multiple_of(2) {
                    arrived(events.get(..poison).unwrap_or_default(), false);
                }
                return StatusCode::INTERNAL_SERVER_ERROR.into_response();
            }
            arrived(events, true);
            StatusCode::OK.into_response()
        }
        Mode::Unavailable => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Mode::Failing => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Mode::HangsBefore => hang().await,
        Mode::HangsAfter => {
            let poison = events.iter().position(|event| event.poison).unwrap_or(events.len());
            arrived(events.get(..poison).unwrap_or_default(), false);
            hang().await
        }
        Mode::Limited => (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "1")]).into_response(),
        Mode::Rejects => {
            let at = shared.clock.now();
            events.iter().for_each(|event| shared.ledger.rejected(Rejection { number: event.no, by, at }));
            StatusCode::BAD_REQUEST.into_response()
        }
    }
}

/// Anyone who asked has given up before this ends.
async fn hang() -> Response {
    pass(ANSWER * 4).await;
    StatusCode::SERVICE_UNAVAILABLE.into_response()
}
