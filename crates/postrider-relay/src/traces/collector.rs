//! Sends spans to a collector, one request at a time.

use std::time::Duration;

use postrider::{ConfigError, sink::error_chain};
use reqwest::{
    Client, StatusCode, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    redirect::Policy,
};
use serde_json::{Value, json};

use super::span::{Span, text};
use crate::config::Traces;

const PATH: &str = "/v1/traces";
const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Collector {
    client: Client,
    url: Url,
    service: String,
}

/// Why spans were not accepted.
pub(super) struct Refused {
    pub(super) reason: String,
    /// Whether a retry may succeed.
    pub(super) again: bool,
}

impl Collector {
    /// Does not connect; the first request does.
    pub(super) fn new(config: &Traces) -> Result<Self, ConfigError> {
        let bad_url = |allowed: String| {
            ConfigError::out_of_range("operations.traces.endpoint", config.endpoint.shown(), allowed)
        };
        let mut url = Url::parse(config.endpoint.expose())
            .map_err(|error| bad_url(format!("a URL such as http://localhost:4318 ({error})")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad_url("a URL that begins with http:// or https://".to_owned()));
        }
        let path = url.path().trim_end_matches('/').to_owned();
        if !path.ends_with(PATH) {
            url.set_path(&format!("{path}{PATH}"));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            let bad = |allowed: &str| ConfigError::out_of_range("operations.traces.headers", name, allowed);
            let header =
                HeaderName::try_from(name.as_str()).map_err(|_| bad("a header with a valid name"))?;
            let mut value =
                HeaderValue::try_from(value.expose()).map_err(|_| bad("a header with a valid value"))?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        let client = Client::builder()
            .tls_backend_preconfigured(config.tls.client_config()?)
            .default_headers(headers)
            .user_agent(concat!("postrider/", env!("CARGO_PKG_VERSION")))
            .timeout(config.timeout.map_or(TIMEOUT, |span| span.0))
            // Following a redirect would send tokens elsewhere.
            .redirect(Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| bad_url(format!("usable ({})", error_chain(&error))))?;
        let service = config.service.clone().unwrap_or_else(|| "postrider".to_owned());
        Ok(Self { client, url, service })
    }

    /// Sends spans.
    pub(super) async fn send(&self, spans: &[Span]) -> Result<(), Refused> {
        let body = self.body(spans).to_string();
        let request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json").body(body);
        match request.send().await {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => {
                let status = answer.status();
                let again = matches!(
                    status,
                    StatusCode::TOO_MANY_REQUESTS
                        | StatusCode::BAD_GATEWAY
                        | StatusCode::SERVICE_UNAVAILABLE
                        | StatusCode::GATEWAY_TIMEOUT
                );
                Err(Refused { reason: format!("the collector answered {status}"), again })
            }
            // The URL of the error may contain a password.
            Err(error) => Err(Refused { reason: error_chain(&error.without_url()), again: true }),
        }
    }

    fn body(&self, spans: &[Span]) -> Value {
        json!({
            "resourceSpans": [{
                "resource": { "attributes": [text("service.name", &self.service)] },
                "scopeSpans": [{
                    "scope": { "name": "postrider", "version": env!("CARGO_PKG_VERSION") },
                    "spans": spans.iter().map(Span::to_json).collect::<Vec<_>>(),
                }],
            }],
        })
    }
}
