//! An HTTP server that answers as it is told, keeps what it answered, and can go away and come back.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
};
use serde_json::Value;
use tokio::{runtime::Runtime, sync::watch};

/// A request and the status that it was answered with.
#[derive(Debug, Clone)]
pub(crate) struct Answered {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) status: u16,
}

/// Status and body for a path and a body.
type Rule = dyn Fn(&str, &Value) -> (u16, String) + Send + Sync;

/// What the server and its test share.
struct Desk {
    rule: Box<Rule>,
    answered: Mutex<Vec<Answered>>,
    /// While it is shut requests wait for their answers.
    gate: watch::Sender<bool>,
    waiting: Mutex<usize>,
}

/// The server, on a runtime of its own: when that ends, the listener and every connection are gone, as with a process.
pub(crate) struct Endpoint {
    address: SocketAddr,
    desk: Arc<Desk>,
    running: Option<Runtime>,
}

impl Endpoint {
    pub(crate) fn start(rule: impl Fn(&str, &Value) -> (u16, String) + Send + Sync + 'static) -> Self {
        let desk = Desk {
            rule: Box::new(rule),
            answered: Mutex::default(),
            gate: watch::Sender::new(true),
            waiting: Mutex::default(),
        };
        let mut endpoint = Self { address: ([127, 0, 0, 1], 0).into(), desk: desk.into(), running: None };
        endpoint.come_back();
        endpoint
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends it. Requests that are under way are never answered.
    pub(crate) fn go_away(&mut self) {
        if let Some(runtime) = self.running.take() {
            runtime.shutdown_background();
            *self.desk.waiting.lock().unwrap() = 0;
        }
    }

    /// Starts it again, at the same address.
    pub(crate) fn come_back(&mut self) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (address, desk) = (self.address, Arc::clone(&self.desk));
        let (bound, listening) = std::sync::mpsc::sync_channel(1);
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::bind(address).await.unwrap();
            bound.send(listener.local_addr().unwrap()).unwrap();
            axum::serve(listener, Router::new().fallback(answer).with_state(desk)).await
        });
        self.address = listening.recv().unwrap();
        self.running = Some(runtime);
    }

    /// Makes requests wait for their answers, or lets them go on.
    pub(crate) fn hold(&self, hold: bool) {
        self.desk.gate.send_replace(!hold);
    }

    /// How many requests wait.
    pub(crate) fn waiting(&self) -> usize {
        *self.desk.waiting.lock().unwrap()
    }

    pub(crate) fn answered(&self) -> Vec<Answered> {
        self.desk.answered.lock().unwrap().clone()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.go_away();
    }
}

async fn answer(
    State(desk): State<Arc<Desk>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    // Not a request with an event: somebody asks how it is.
    let Ok(body) = serde_json::from_slice::<Value>(&body) else { return (StatusCode::OK, String::new()) };
    *desk.waiting.lock().unwrap() += 1;
    _ = desk.gate.subscribe().wait_for(|open| *open).await;
    *desk.waiting.lock().unwrap() -= 1;
    let path = uri.path().to_owned();
    let (status, text) = (desk.rule)(&path, &body);
    desk.answered.lock().unwrap().push(Answered { path, headers, body, status });
    (StatusCode::from_u16(status).unwrap(), text)
}
