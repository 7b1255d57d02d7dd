//! The receiver of requests: its URL, headers, timeouts and TLS.

use std::{borrow::Cow, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use postrider_core::{ConfigError, Event, format::Destination};
use postrider_net::{TlsFiles, destination::varies};
use reqwest::{
    Url,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
};
use secrecy::{ExposeSecret, SecretString};

use crate::limits;

/// Headers that HTTP or this sink sets. Neither events nor the configuration can set them.
pub(crate) const OWN_HEADERS: [&str; 15] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "webhook-signature",
    "webhook-timestamp",
];

/// The receiver of requests, and what every request carries. `Debug` shows no secrets; the URL counts as one, because some receivers identify
/// senders by it.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// `http://` or `https://`, host, port, and the beginning of the path. A user and password in it become basic authentication.
    pub url: SecretString,
    /// What an event appends to the path of the URL. Values of the event are escaped. Default nothing.
    pub path: Option<Destination>,
    /// A bearer token.
    pub token: Option<SecretString>,
    /// Additional headers of every request.
    pub headers: Vec<(String, SecretString)>,
    /// A path below the URL for health checks by `GET`: 2xx means that the receiver is up. Without it, a check only finds out whether the
    /// receiver responds at all.
    pub health_path: Option<String>,
    /// Timeout of a connection, TLS included. Default [`limits::CONNECT_TIMEOUT`].
    pub connect_timeout: Duration,
    /// Timeout of a request, connection and response included. Default [`limits::REQUEST_TIMEOUT`].
    pub request_timeout: Duration,
    /// TLS settings.
    pub tls: TlsFiles,
}

impl Endpoint {
    /// An endpoint at this URL.
    pub fn new(url: impl Into<SecretString>) -> Self {
        Self {
            url: url.into(),
            path: None,
            token: None,
            headers: Vec::new(),
            health_path: None,
            connect_timeout: limits::CONNECT_TIMEOUT,
            request_timeout: limits::REQUEST_TIMEOUT,
            tls: TlsFiles::default(),
        }
    }

    /// Appends this to the path of the URL, by event.
    pub fn path(mut self, path: Destination) -> Self {
        self.path = Some(path);
        self
    }

    /// Sends this bearer token.
    pub fn token(mut self, token: impl Into<SecretString>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sends this header with every request.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<SecretString>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Checks the receiver's health at this path.
    pub fn health_path(mut self, path: impl Into<String>) -> Self {
        self.health_path = Some(path.into());
        self
    }

    /// Sets the timeouts of a connection and of a whole request.
    pub fn timeouts(mut self, connect: Duration, request: Duration) -> Self {
        (self.connect_timeout, self.request_timeout) = (connect, request);
        self
    }

    /// Sets the TLS files.
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = files;
        self
    }

    /// Checks the settings, without reading files.
    pub fn check(&self) -> Result<(), ConfigError> {
        let base = Base::parse(&self.url)?;
        self.fixed_headers(&base)?;
        for path in self.path.iter().flat_map(Destination::fixed) {
            base.url(path)
                .map_err(|error| ConfigError::out_of_range("path", path, format!("a path: {error}")))?;
        }
        for (setting, value) in
            [("connect_timeout", self.connect_timeout), ("request_timeout", self.request_timeout)]
        {
            if value.is_zero() {
                return Err(ConfigError::out_of_range(setting, "0", "longer than nothing"));
            }
        }
        if self.connect_timeout > self.request_timeout {
            let (connect, request) = (self.connect_timeout, self.request_timeout);
            let allowed = format!("at most request_timeout, which is {request:?} and includes it");
            return Err(ConfigError::out_of_range("connect_timeout", format!("{connect:?}"), allowed));
        }
        Ok(())
    }

    /// The headers of every request, marked as sensitive.
    pub(crate) fn fixed_headers(&self, base: &Base) -> Result<HeaderMap, ConfigError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let parsed = HeaderName::from_bytes(name.as_bytes());
            let parsed = parsed.map_err(|_| {
                ConfigError::out_of_range("headers", name, "made of letters, digits and -, as HTTP says")
            })?;
            if OWN_HEADERS.contains(&parsed.as_str()) {
                return Err(ConfigError::out_of_range(
                    "headers",
                    name,
                    "none that HTTP or this sink says itself",
                ));
            }
            let value = secret_value("headers", value.expose_secret())?;
            if headers.insert(parsed, value).is_some() {
                return Err(ConfigError::out_of_range("headers", name, "given once"));
            }
        }
        let basic = base.basic.as_ref().map(|pair| format!("Basic {}", BASE64_STANDARD.encode(pair)));
        let bearer = self.token.as_ref().map(|token| format!("Bearer {}", token.expose_secret()));
        for token in [basic, bearer].into_iter().flatten() {
            if headers.insert(AUTHORIZATION, secret_value("token", &token)?).is_some() {
                let allowed =
                    "one of: token, a user in the url, or a header of that name, as a request has one";
                return Err(ConfigError::out_of_range("authorization", "given twice", allowed));
            }
        }
        Ok(headers)
    }

    /// All secrets as they are sent and as JSON escapes them, to be removed from responses.
    pub(crate) fn secrets(&self, base: &Base) -> Vec<SecretString> {
        let headers = self.headers.iter().map(|(_, value)| value.clone());
        let basic = base.basic.as_ref().map(|pair| BASE64_STANDARD.encode(pair));
        let password = base.basic.as_ref().and_then(|pair| Some(pair.split_once(':')?.1.to_owned()));
        let query = base.query.clone();
        let hidden = [basic, password, query].into_iter().flatten().map(SecretString::from);
        let sent: Vec<SecretString> = headers.chain(self.token.clone()).chain(hidden).collect();
        let in_json = sent.iter().filter_map(|secret| {
            let text = serde_json::Value::from(secret.expose_secret()).to_string();
            text.strip_prefix('"')?.strip_suffix('"').map(SecretString::from)
        });
        in_json.chain(sent.iter().cloned()).filter(|secret| !secret.expose_secret().is_empty()).collect()
    }

    /// The path that the event adds, or why it has none.
    pub(crate) fn path_of<'a>(&'a self, event: &'a Event) -> Result<Cow<'a, str>, String> {
        match &self.path {
            None => Ok(Cow::Borrowed("")),
            Some(path) => path.resolve_with(event, escape),
        }
    }

    /// The destination of the event: its path below the URL, which is left out because it may be a secret.
    pub(crate) fn destination(&self, event: &Event) -> Option<String> {
        let path = self.path.as_ref().filter(|path| varies(path))?;
        path.resolve_with(event, escape).ok().map(Cow::into_owned)
    }
}

/// A header value that `Debug` does not show and errors do not repeat.
fn secret_value(setting: &'static str, value: &str) -> Result<HeaderValue, ConfigError> {
    let parsed = HeaderValue::from_str(value);
    let mut value = parsed.map_err(|_| {
        ConfigError::out_of_range(setting, "not a value of a header", "made of visible ASCII characters")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Escapes everything that RFC 3986 does not allow in any part of a URL, so that a value of the event stays in its segment.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

fn escape(value: &str) -> Result<Cow<'_, str>, String> {
    // Segments of one or two dots lead elsewhere, escaped or not, and several values together may form one.
    if value.chars().all(|char| char == '.') {
        return Err("dots alone lead to another path".to_owned());
    }
    Ok(utf8_percent_encode(value, ESCAPED).into())
}

/// The parsed URL.
#[derive(Clone)]
pub(crate) struct Base {
    /// Without user, query and fragment. The path ends with a slash only if nothing is appended to it.
    url: Url,
    query: Option<String>,
    /// `user:password`.
    basic: Option<String>,
}

impl Base {
    // Errors do not repeat the text, which may contain a secret.
    pub(crate) fn parse(url: &SecretString) -> Result<Self, ConfigError> {
        let wrong = |value: &str| {
            ConfigError::out_of_range(
                "url",
                value,
                "a URL such as https://host/path or http://host:8080/path",
            )
        };
        let mut url =
            Url::parse(url.expose_secret()).map_err(|error| wrong(&format!("not a URL ({error})")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("of another kind of server"));
        }
        if url.fragment().is_some() {
            return Err(wrong("with a # in it"));
        }
        let decode = |text: &str| {
            let decoded = percent_decode_str(text).decode_utf8();
            decoded.map(String::from).map_err(|_| wrong("with % signs that are no UTF-8"))
        };
        let password = decode(url.password().unwrap_or_default())?;
        let user = decode(url.username())?;
        let basic = (!user.is_empty() || !password.is_empty()).then(|| format!("{user}:{password}"));
        let query = url.query().map(str::to_owned);
        url.set_query(None);
        // These fail only for a URL without a host, which an HTTP URL always has.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        Ok(Self { url, query, basic })
    }

    /// Scheme, host and port, which may be shown.
    pub(crate) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// The URL of a path below this one.
    pub(crate) fn url(&self, path: &str) -> Result<Url, String> {
        let mut text = self.url.to_string();
        if !path.is_empty() {
            text.truncate(text.trim_end_matches('/').len());
            text.push('/');
            text.push_str(path.strip_prefix('/').unwrap_or(path));
        }
        if let Some(query) = &self.query {
            text.push(if path.contains('?') { '&' } else { '?' });
            text.push_str(query);
        }
        // The error names the kind of mistake without quoting the text.
        Url::parse(&text).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(base: &str, path: &str) -> Result<String, ConfigError> {
        let url = Base::parse(&base.into())?.url(path);
        Ok(url.map_or_else(|error| error, String::from))
    }

    #[test]
    fn a_path_is_added_to_that_of_the_url() -> Result<(), ConfigError> {
        for (base, path, expected) in [
            ("http://host", "", "http://host/"),
            ("http://host", "/events", "http://host/events"),
            ("http://host/api/", "events/batch", "http://host/api/events/batch"),
            ("http://host/api", "", "http://host/api"),
            ("http://host/api/", "", "http://host/api/"),
            ("https://u:p@host:8443/api?key=1", "/x", "https://host:8443/api/x?key=1"),
            ("https://host/api?key=1", "/x?tenant=2", "https://host/api/x?tenant=2&key=1"),
        ] {
            assert_eq!(url(base, path)?, expected, "{base} {path}");
        }
        Ok(())
    }

    #[test]
    fn what_an_event_says_cannot_leave_its_place_in_the_path() -> Result<(), Box<dyn std::error::Error>> {
        let endpoint =
            Endpoint::new("http://host/api").path(Destination::new("/t/{tenant_id}/{event_type}")?);
        let of = |tenant: &str| Event::json_text("Placed", "{}").tenant(tenant).build();
        for (tenant, path) in [
            ("acme", "/t/acme/Placed"),
            ("a/../b", "/t/a%2F..%2Fb/Placed"),
            ("a?b#c", "/t/a%3Fb%23c/Placed"),
            ("é", "/t/%C3%A9/Placed"),
            ("%2e%2e", "/t/%252e%252e/Placed"),
        ] {
            let event = of(tenant)?;
            let resolved = endpoint.path_of(&event)?;
            assert_eq!(resolved, path);
            assert_eq!(Base::parse(&endpoint.url)?.url(&resolved)?.path(), format!("/api{path}"));
        }
        for dots in [".", "..", "..."] {
            let event = of(dots)?;
            assert!(endpoint.path_of(&event).is_err_and(|error| error.contains("dots")), "{dots}");
        }
        Ok(())
    }

    #[test]
    fn what_is_wrong_is_said_with_what_to_do() {
        let good = || Endpoint::new("http://host");
        let seconds = Duration::from_secs;
        let cases = [
            (Endpoint::new("canary"), "url is not a URL"),
            (Endpoint::new("ftp://canary@host"), "of another kind"),
            (Endpoint::new("http://host/#canary"), "with a #"),
            (Endpoint::new("http://u:canary%ff@host/"), "no UTF-8"),
            (good().token("canary\n"), "token is not a value of a header"),
            (good().header("x y", "canary"), "letters, digits"),
            (good().header("Content-Type", "canary"), "this sink says itself"),
            (good().header("x", "canary\n"), "visible ASCII"),
            (good().header("x", "canary").header("X", "canary"), "given once"),
            (good().token("canary").header("authorization", "canary"), "given twice"),
            (Endpoint::new("http://u:canary@host").token("canary"), "given twice"),
            (good().timeouts(seconds(0), seconds(1)), "connect_timeout is 0"),
            (good().timeouts(seconds(1), seconds(0)), "request_timeout is 0"),
            (good().timeouts(seconds(31), seconds(30)), "at most request_timeout"),
        ];
        for (endpoint, why) in cases {
            let error = endpoint.check().err().map_or_else(String::new, |error| error.to_string());
            assert!(error.contains(why) && !error.contains("canary"), "{why}: {error}");
            assert!(!format!("{endpoint:?}").contains("canary"));
        }
    }
}
