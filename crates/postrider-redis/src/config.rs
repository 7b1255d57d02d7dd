//! What can be set.

use std::{ops::RangeInclusive, time::Duration};

use postrider_core::{
    ConfigError,
    format::{Destination, Format, METADATA},
};
use postrider_net::{Address, Scheme, TlsFiles};

/// Ways to write the URL of a Redis server.
pub const SCHEMES: &[Scheme] =
    &[Scheme { name: "redis", port: 6379, tls: false }, Scheme { name: "rediss", port: 6379, tls: true }];

/// How many events one `send` may take.
pub const BATCH_MAX: RangeInclusive<usize> = 1..=10_000;
/// The field that the payload's media type goes into.
pub const CONTENT_TYPE: &str = "content-type";
/// The number of a database, as far as Redis can be configured to have them.
const DATABASE_MAX: i64 = i32::MAX as i64;

/// Where events go, and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RedisConfig {
    /// The server, and who signs in.
    pub address: Address,
    /// The files that TLS needs; used with a URL of `rediss://` alone.
    pub tls: TlsFiles,
    /// The stream that an event goes to.
    pub stream: Destination,
    /// How an event is put into an entry.
    pub format: Format,
    /// The field that the payload goes into.
    pub payload_field: String,
    /// How long a stream may become, about: Redis then drops its oldest entries in whole nodes, so some more stay. None keeps all.
    pub stream_len_max: Option<u64>,
    /// Most events in one `send`.
    pub batch_max: usize,
    /// How long a connection may take until it is ready.
    pub connect_timeout: Duration,
    /// How long a `send` may take before its outcome is unknown.
    pub send_timeout: Duration,
}

impl RedisConfig {
    /// A server by its URL, `redis://[user][:password]@host[:port][/database]` or `rediss://…` for TLS, and the template of a
    /// stream's name.
    pub fn new(url: &str, stream: &str) -> Result<Self, ConfigError> {
        let config = Self {
            address: Address::parse("url", url, SCHEMES)?,
            tls: TlsFiles::default(),
            stream: Destination::new(stream)?,
            format: Format::default(),
            payload_field: "payload".to_owned(),
            stream_len_max: None,
            batch_max: 100,
            connect_timeout: Duration::from_secs(10),
            send_timeout: Duration::from_secs(120),
        };
        config.database()?;
        Ok(config)
    }

    /// The files that TLS needs.
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = files;
        self
    }

    /// The stream that an event goes to.
    pub fn stream(mut self, stream: Destination) -> Self {
        self.stream = stream;
        self
    }

    /// How an event is put into an entry.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// The field that the payload goes into; `payload` if it is not set.
    pub fn payload_field(mut self, name: impl Into<String>) -> Self {
        self.payload_field = name.into();
        self
    }

    /// How long a stream may become, about.
    pub fn stream_len_max(mut self, entries: u64) -> Self {
        self.stream_len_max = Some(entries);
        self
    }

    /// Most events in one `send`; 100 if it is not set.
    pub fn batch_max(mut self, events: usize) -> Self {
        self.batch_max = events;
        self
    }

    /// How long a connection may take until it is ready; 10 s if it is not set.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// How long a `send` may take before its outcome is unknown; 120 s if it is not set.
    pub fn send_timeout(mut self, limit: Duration) -> Self {
        self.send_timeout = limit;
        self
    }

    /// What is wrong with it, if something is.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.database()?;
        if !BATCH_MAX.contains(&self.batch_max) {
            let allowed = format!("from {} to {}", BATCH_MAX.start(), BATCH_MAX.end());
            return Err(wrong("batch_max", self.batch_max, allowed));
        }
        for (setting, limit) in
            [("connect_timeout", self.connect_timeout), ("send_timeout", self.send_timeout)]
        {
            if limit.is_zero() {
                return Err(wrong(setting, format_args!("{limit:?}"), "longer than nothing"));
            }
        }
        if self.stream_len_max == Some(0) {
            return Err(wrong("stream_len_max", 0, "at least 1; leave it out to keep every entry"));
        }
        let taken = METADATA.contains(&self.payload_field.as_str()) || self.payload_field == CONTENT_TYPE;
        if taken || self.payload_field.is_empty() {
            let value = format_args!("{:?}", self.payload_field);
            return Err(wrong("payload_field", value, "a name that no other field of an entry has"));
        }
        Ok(())
    }

    /// The number of the database, from the path of the URL.
    pub(crate) fn database(&self) -> Result<i64, ConfigError> {
        let Some(path) = &self.address.path else { return Ok(0) };
        let number = path.parse().ok().filter(|number| (0..=DATABASE_MAX).contains(number));
        number.ok_or_else(|| {
            wrong(
                "url",
                format_args!("with the database {path:?}"),
                "with the number of a database, or without",
            )
        })
    }
}

fn wrong(setting: &'static str, value: impl std::fmt::Display, allowed: impl Into<String>) -> ConfigError {
    ConfigError::OutOfRange { setting, value: value.to_string(), allowed: allowed.into() }
}
