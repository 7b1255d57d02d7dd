//! Sends one HTTP request and reads the response.

use std::{
    error::Error,
    fmt, io,
    time::{Duration, Instant},
};

use postrider_core::{ConfigError, sink::error_chain};
use reqwest::{
    Method, RequestBuilder, Response, StatusCode, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER},
    redirect::Policy,
};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::timeout;

use crate::{Endpoint, endpoint::Base, hold_off::retry_after, limits};

/// The result of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The receiver responded.
    Received(Received),
    /// No connection, so nothing was sent.
    NotSent(String),
    /// The request was sent, and no response came.
    Lost(String),
}

/// A response.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<Duration>,
    /// The body up to a limit, and whether that is all of it.
    pub(crate) body: Vec<u8>,
    pub(crate) whole: bool,
}

/// The parts of a request.
pub(crate) struct Request {
    pub(crate) url: Url,
    pub(crate) content_type: HeaderValue,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// How many bytes of the response are needed.
    pub(crate) answer_bytes: usize,
}

/// The connections to one endpoint, and what every request carries.
pub(crate) struct Client {
    http: reqwest::Client,
    /// A client that keeps no connections.
    anew: reqwest::Client,
    request_timeout: Duration,
    pub(crate) base: Base,
    pub(crate) fixed_headers: HeaderMap,
    secrets: Vec<SecretString>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("origin", &self.base.origin()).finish_non_exhaustive()
    }
}

impl Client {
    /// Does not connect; the first request does.
    pub(crate) fn new(endpoint: &Endpoint) -> Result<Self, ConfigError> {
        endpoint.check()?;
        let base = Base::parse(&endpoint.url)?;
        let fixed_headers = endpoint.fixed_headers(&base)?;
        let tls = endpoint.tls.client_config()?;
        let connections = |kept: usize| {
            reqwest::Client::builder()
                .tls_backend_preconfigured(tls.clone())
                .default_headers(fixed_headers.clone())
                .user_agent(concat!("postrider/", env!("CARGO_PKG_VERSION")))
                // A redirect is a mistake of the receiver or an attack; events and secrets do not follow it.
                .redirect(Policy::none())
                .no_proxy()
                .referer(false)
                .connect_timeout(endpoint.connect_timeout)
                .timeout(endpoint.request_timeout)
                .pool_idle_timeout(limits::IDLE_CONNECTION)
                .pool_max_idle_per_host(kept)
                .build()
                .map_err(|error| {
                    let reason = error_chain(&error.without_url());
                    ConfigError::out_of_range("tls", "set up wrongly", format!("possible: {reason}"))
                })
        };
        let (http, anew, request_timeout) =
            (connections(usize::MAX)?, connections(0)?, endpoint.request_timeout);
        let secrets = endpoint.secrets(&base);
        Ok(Self { http, anew, request_timeout, base, fixed_headers, secrets })
    }

    pub(crate) async fn post(&self, request: Request) -> Answer {
        let Request { url, content_type, headers, body, answer_bytes } = request;
        let sending = self.http.post(url).headers(headers).header(CONTENT_TYPE, content_type).body(body);
        self.ask(sending, answer_bytes).await
    }

    /// A request without a body.
    pub(crate) async fn look(&self, method: Method, url: Url) -> Answer {
        self.ask(self.http.request(method, url), limits::ANSWER_BYTES_MAX).await
    }

    async fn ask(&self, request: RequestBuilder, answer_bytes: usize) -> Answer {
        match self.send(request).await {
            Ok(response) => Answer::Received(read(response, answer_bytes).await),
            Err(error) => {
                let nothing_sent = error.is_connect() || error.is_builder();
                let reason = self.clean(&error_chain(&error.without_url()));
                let error = format!("{}: {reason}", self.base.origin());
                if nothing_sent { Answer::NotSent(error) } else { Answer::Lost(error) }
            }
        }
    }

    /// Sends a request. If its connection closes without a response, it is sent once more on a new one: most often the receiver closed an idle
    /// connection just as the request came, which says nothing about the request.
    async fn send(&self, request: RequestBuilder) -> reqwest::Result<Response> {
        let began = Instant::now();
        let request = request.build()?;
        let again = request.try_clone();
        let error = match self.http.execute(request).await {
            Err(error) if is_closed(&error) => error,
            ended => return ended,
        };
        let (Some(mut again), left) = (again, self.request_timeout.saturating_sub(began.elapsed())) else {
            return Err(error);
        };
        if left.is_zero() {
            return Err(error);
        }
        *again.timeout_mut() = Some(left);
        self.anew.execute(again).await
    }

    /// The response for an error message: short, on one line, and without our own secrets, which some receivers repeat.
    pub(crate) fn describe(&self, received: &Received) -> String {
        let text = self.clean(&String::from_utf8_lossy(&received.body));
        let colon = if text.is_empty() { "" } else { ": " };
        format!("{} answered {}{colon}{text}", self.base.origin(), received.status)
    }

    /// A text from outside for an error message.
    pub(crate) fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret.expose_secret(), "[hidden]");
        }
        let mut clean = String::new();
        let words = text.split(|char: char| char.is_whitespace() || char.is_control());
        for word in words.filter(|word| !word.is_empty()) {
            if !clean.is_empty() {
                clean.push(' ');
            }
            clean.push_str(word);
            if clean.chars().count() > limits::ERROR_ANSWER_CHARS_MAX {
                return clean.chars().take(limits::ERROR_ANSWER_CHARS_MAX).chain(['…']).collect();
            }
        }
        clean
    }
}

/// Whether the connection closed after the request was sent and before a response began.
fn is_closed(error: &reqwest::Error) -> bool {
    let closed = |cause: &(dyn Error + 'static)| {
        let by_http = cause.downcast_ref::<hyper::Error>();
        let by_tcp = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        by_http.is_some_and(|error| error.is_incomplete_message() || error.is_canceled() || error.is_closed())
            || matches!(by_tcp, Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe))
    };
    let mut cause = error.source();
    while let Some(found) = cause {
        if closed(found) {
            return !error.is_connect() && !error.is_timeout();
        }
        cause = found.source();
    }
    false
}

/// Reads the needed part of a response. Its status is known already, so no failure here is an error.
async fn read(mut response: Response, bytes_max: usize) -> Received {
    let status = response.status();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(retry_after);
    let mut received = Received { status, retry_after, body: Vec::new(), whole: false };
    let reading = async {
        while let Ok(chunk) = response.chunk().await {
            let Some(chunk) = chunk else {
                received.whole = true;
                return;
            };
            let room = bytes_max.saturating_sub(received.body.len());
            received.body.extend(chunk.iter().take(room));
            if chunk.len() > room {
                return;
            }
        }
    };
    if bytes_max > limits::ANSWER_BYTES_MAX {
        // The body matters here; the request's own timeout ends this.
        reading.await;
    } else {
        let _ = timeout(limits::REST_OF_ANSWER, reading).await;
    }
    received
}
