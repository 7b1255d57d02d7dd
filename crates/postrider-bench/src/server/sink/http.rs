//! The bare HTTP client, and a server that answers at once.

use std::sync::Arc;

use axum::{Router, body::Bytes, http::StatusCode};
use postrider::{BoxFuture, Event};
use postrider_net::TlsFiles;
use postrider_relay::Failure;
use reqwest::redirect::Policy;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

use super::{Receiver, by_batches, failed};

/// The largest request that the server reads.
const BODY_MAX: usize = 16 << 20;

pub(super) struct Place {
    url: String,
    client: reqwest::Client,
    server: Option<JoinHandle<()>>,
}

/// A client without retries, redirects and proxies.
pub(crate) fn client() -> Result<reqwest::Client, Failure> {
    let tls = TlsFiles::default().client_config().map_err(postrider::Error::from)?;
    let client =
        reqwest::Client::builder().tls_backend_preconfigured(tls).redirect(Policy::none()).no_proxy().build();
    client.map_err(|error| failed("be made")(&error))
}

impl Place {
    pub(super) fn at(url: &str) -> Result<Self, Failure> {
        Ok(Self { url: url.to_owned(), client: client()?, server: None })
    }

    /// A server that reads a request and answers at once.
    pub(super) async fn own() -> Result<Self, Failure> {
        let cannot = |error: std::io::Error| Failure::unreachable("no server can be started", &error);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(cannot)?;
        let url = format!("http://{}/", listener.local_addr().map_err(cannot)?);
        let router = Router::new()
            .fallback(async |_: Bytes| StatusCode::NO_CONTENT)
            .layer(axum::extract::DefaultBodyLimit::max(BODY_MAX));
        let server = tokio::spawn(async move {
            // It ends with the process, or when connections fail, which the clients report.
            _ = axum::serve(listener, router).await;
        });
        Ok(Self { server: Some(server), ..Self::at(&url)? })
    }
}

impl Receiver for Place {
    fn section(&self) -> Value {
        json!({ "http": { "url": self.url } })
    }

    fn produce(&self, events: Arc<Vec<Event>>) -> BoxFuture<'_, Result<(), Failure>> {
        let (url, client) = (self.url.clone(), self.client.clone());
        let send = move |events: Arc<Vec<Event>>, range: std::ops::Range<usize>| {
            let (url, client) = (url.clone(), client.clone());
            let sent: BoxFuture<'static, _> = Box::pin(async move {
                let mut body = Vec::new();
                for event in events.get(range).into_iter().flatten() {
                    body.push(if body.is_empty() { b'[' } else { b',' });
                    body.extend_from_slice(event.payload().as_bytes());
                }
                body.push(b']');
                let request = client.post(&url).header("content-type", "application/json").body(body);
                let answer = request.send().await.map_err(|error| failed("post")(&error))?;
                answer.error_for_status().map(|_| ()).map_err(|error| failed("post")(&error))
            });
            sent
        };
        Box::pin(async move { by_batches(&events, send).await })
    }

    fn clear(&self) -> BoxFuture<'_, Result<(), Failure>> {
        if let Some(server) = &self.server {
            server.abort();
        }
        Box::pin(std::future::ready(Ok(())))
    }
}
