//! A server that does as it is told, and remembers what it was asked.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| std::str::from_utf8(value.as_bytes()).unwrap())
    }
}

/// What is done about a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Says {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: String,
    },
    /// No answer at all.
    Stalls,
    /// The connection ends.
    Cuts,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self::Says { status, headers: Vec::new(), body: String::new() }
    }

    pub(crate) fn body(status: u16, body: impl Into<String>) -> Self {
        Self::Says { status, headers: Vec::new(), body: body.into() }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        if let Self::Says { headers, .. } = &mut self {
            headers.push((name, value.into()));
        }
        self
    }

    fn is_good(&self) -> bool {
        matches!(self, Self::Says { status: 200..=299, .. })
    }
}

type Rule = Arc<dyn Fn(&Asked) -> Reply + Send + Sync>;

struct State {
    rule: Mutex<Rule>,
    asked: Mutex<Vec<Asked>>,
    /// Only what was answered with 2xx.
    took: Mutex<Vec<Asked>>,
    stalled: Notify,
    keep_alive: bool,
    tls: Option<TlsAcceptor>,
}

pub(crate) struct Server {
    address: SocketAddr,
    state: Arc<State>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    /// Answers everything with 200.
    pub(crate) async fn start() -> Self {
        Self::with(true, None).await
    }

    pub(crate) async fn with(keep_alive: bool, tls: Option<TlsAcceptor>) -> Self {
        let state = Arc::new(State {
            rule: Mutex::new(Arc::new(|_| Reply::status(200))),
            asked: Mutex::default(),
            took: Mutex::default(),
            stalled: Notify::new(),
            keep_alive,
            tls,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listening = Mutex::new(Some(tokio::spawn(listen(listener, state.clone()))));
        Self { address, state, listening }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn answers(&self, rule: impl Fn(&Asked) -> Reply + Send + Sync + 'static) {
        *self.state.rule.lock().unwrap() = Arc::new(rule);
    }

    pub(crate) fn asked(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.state.asked.lock().unwrap()
    }

    pub(crate) fn took(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.state.took.lock().unwrap()
    }

    pub(crate) async fn stalled(&self) {
        self.state.stalled.notified().await;
    }

    /// Nobody listens, and every connection is over.
    pub(crate) async fn stop(&self) {
        let listening = self.listening.lock().unwrap().take();
        if let Some(listening) = listening {
            listening.abort();
            let _ = listening.await;
        }
    }

    /// Listens again, where it did before.
    pub(crate) async fn resume(&self) {
        if self.listening.lock().unwrap().is_none() {
            let listener = TcpListener::bind(self.address).await.unwrap();
            let listening = tokio::spawn(listen(listener, self.state.clone()));
            *self.listening.lock().unwrap() = Some(listening);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(listening) = self.listening.lock().unwrap().take() {
            listening.abort();
        }
    }
}

async fn listen(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let state = state.clone();
        connections.spawn(async move {
            match state.tls.clone() {
                None => serve(TokioIo::new(stream), state).await,
                Some(tls) => serve_tls(tls, stream, state).await,
            }
        });
    }
}

async fn serve_tls(tls: TlsAcceptor, stream: TcpStream, state: Arc<State>) {
    // A client that does not trust the certificate ends here.
    if let Ok(stream) = tls.accept(stream).await {
        serve(TokioIo::new(stream), state).await;
    }
}

async fn serve<I: hyper::rt::Read + hyper::rt::Write + Unpin>(io: I, state: Arc<State>) {
    let keep_alive = state.keep_alive;
    let answer = service_fn(|request| answer(request, state.clone()));
    let _ = http1::Builder::new().keep_alive(keep_alive).serve_connection(io, answer).await;
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<State>,
) -> Result<Response<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes().to_vec();
    let path = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let asked = Asked { method: parts.method, path, headers: parts.headers, body };
    let rule = state.rule.lock().unwrap().clone();
    let reply = rule(&asked);
    state.asked.lock().unwrap().push(asked.clone());
    if reply.is_good() && asked.method == Method::POST {
        state.took.lock().unwrap().push(asked);
    }
    match reply {
        Reply::Says { status, headers, body } => {
            let mut response = Response::new(Full::new(Bytes::from(body)));
            *response.status_mut() = StatusCode::from_u16(status)?;
            for (name, value) in headers {
                response.headers_mut().insert(name, value.parse()?);
            }
            Ok(response)
        }
        Reply::Stalls => {
            state.stalled.notify_one();
            std::future::pending::<Result<_, Infallible>>().await.map_err(Into::into)
        }
        Reply::Cuts => Err("cut".into()),
    }
}
