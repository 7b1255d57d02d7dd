//! The operators' endpoint: `/health/live`, `/health/ready`, `/metrics`.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header::AUTHORIZATION},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;
use subtle::ConstantTimeEq;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::port;
use crate::{
    config::{Operations, Secret},
    failure::Failure,
    relay::Seen,
};

/// The running endpoint.
pub(crate) struct Server {
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

/// What the endpoint shows, and the token that it requires.
struct Shown {
    seen: Seen,
    token: Option<Secret>,
}

impl Server {
    /// Starts to listen, if enabled.
    pub(crate) async fn start(operations: &Operations, seen: Seen) -> Result<Self, Failure> {
        let stop = CancellationToken::new();
        if !operations.enabled {
            return Ok(Self { stop, task: None });
        }
        let cannot = |error: &std::io::Error| {
            Failure::unreachable(format!("`operations` cannot listen on {}", operations.listen), error)
                .hint("choose another port with `operations.listen`, or switch it off with `operations.enabled: false`")
        };
        let listener = TcpListener::bind(operations.listen).await.map_err(|error| cannot(&error))?;
        let listens = listener.local_addr().map_err(|error| cannot(&error))?;
        info!(address = %listens, "health and metrics endpoint listening");
        let shown = Arc::new(Shown { seen, token: operations.token.clone() });
        let task = tokio::spawn(port::serve(listener, router(shown), stop.clone()));
        Ok(Self { stop, task: Some(task) })
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if let Some(task) = self.task {
            _ = task.await;
        }
    }
}

fn router(shown: Arc<Shown>) -> Router {
    let guarded = Router::new()
        .route("/metrics", get(metrics))
        .route_layer(middleware::from_fn_with_state(shown.clone(), authorised));
    Router::new()
        .route("/health/live", get(async || Json(json!({ "status": "alive" }))))
        .route("/health/ready", get(ready))
        .merge(guarded)
        .with_state(shown)
}

/// Answers 200 if ready, or 503 with the reasons. Without the token only the names of unready sources are shown, because an error may name
/// hosts. Sinks that are down are named but leave the relay ready: a restart would not help, and other sinks work.
async fn ready(State(shown): State<Arc<Shown>>, headers: HeaderMap) -> Response {
    let (reasons, down) = (shown.seen.states.reasons(), shown.seen.instruments.meters.breakers().down());
    if reasons.is_empty() {
        let sources: Vec<_> = shown.seen.states.all().into_keys().collect();
        return Json(json!({ "status": "ready", "sources": sources, "sinks_down": down })).into_response();
    }
    let reasons = match shown.admits(&headers) {
        true => json!(reasons),
        false => json!(reasons.keys().collect::<Vec<_>>()),
    };
    (
        StatusCode::SERVICE_UNAVAILABLE,
        Json(json!({ "status": "not ready", "reasons": reasons, "sinks_down": down })),
    )
        .into_response()
}

async fn metrics(State(shown): State<Arc<Shown>>) -> Response {
    let Seen { instruments, lags, gauges, .. } = &shown.seen;
    let text = instruments.meters.render() + &lags.render() + &gauges.render().await;
    ([("content-type", "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

async fn authorised(State(shown): State<Arc<Shown>>, request: Request, next: Next) -> Response {
    if shown.admits(request.headers()) {
        next.run(request).await
    } else {
        (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")], "a bearer token is needed\n")
            .into_response()
    }
}

impl Shown {
    /// Whether a request carries the required token.
    fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let given = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        given.is_some_and(|given| given.ct_eq(token.expose().as_bytes()).into())
    }
}
