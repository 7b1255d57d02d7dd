//! The configuration of the Redis sink.

use std::ops::RangeInclusive;

use postrider_core::{
    ConfigError,
    format::{Destination, Format, METADATA},
};
use postrider_net::{Address, Limits, Scheme, TlsFiles};

/// The schemes of a server's URL.
pub const SCHEMES: &[Scheme] =
    &[Scheme { name: "redis", port: 6379, tls: false }, Scheme { name: "rediss", port: 6379, tls: true }];

/// The valid sizes of a batch.
pub const BATCH_MAX: RangeInclusive<usize> = 1..=10_000;
/// The field with the payload's media type.
pub const CONTENT_TYPE: &str = "content-type";
/// The largest database number that Redis can be configured to have.
const DATABASE_MAX: i64 = i32::MAX as i64;

/// Where events go, and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RedisConfig {
    /// The server and the credentials.
    pub address: Address,
    /// The TLS files, used with `rediss://`.
    pub tls: TlsFiles,
    /// The stream of an event.
    pub stream: Destination,
    /// The format of an entry.
    pub format: Format,
    /// The field with the payload.
    pub payload_field: String,
    /// The approximate length of a stream. Redis drops the oldest entries in whole nodes, so somewhat more stay. `None` keeps all.
    pub stream_len_max: Option<u64>,
    /// The batch size and timeouts.
    pub limits: Limits,
}

impl RedisConfig {
    /// A server by its URL, `redis://[user][:password]@host[:port][/database]` or `rediss://…` for TLS, and the template of the
    /// stream's name.
    pub fn new(url: &str, stream: &str) -> Result<Self, ConfigError> {
        let config = Self {
            address: Address::parse("url", url, SCHEMES)?,
            tls: TlsFiles::default(),
            stream: Destination::new(stream)?,
            format: Format::default(),
            payload_field: "payload".to_owned(),
            stream_len_max: None,
            limits: Limits::new(100),
        };
        config.database()?;
        Ok(config)
    }

    /// Sets the TLS files.
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = files;
        self
    }

    /// Sets the stream of an event.
    pub fn stream(mut self, stream: Destination) -> Self {
        self.stream = stream;
        self
    }

    /// Sets the format of an entry.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Sets the field with the payload. Default `payload`.
    pub fn payload_field(mut self, name: impl Into<String>) -> Self {
        self.payload_field = name.into();
        self
    }

    /// Sets the approximate length of a stream.
    pub fn stream_len_max(mut self, entries: u64) -> Self {
        self.stream_len_max = Some(entries);
        self
    }

    postrider_net::limit_setters!(100);

    /// Checks the configuration.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.database()?;
        self.limits.check(&BATCH_MAX)?;
        if self.stream_len_max == Some(0) {
            return Err(ConfigError::out_of_range(
                "stream_len_max",
                0,
                "at least 1; leave it out to keep every entry",
            ));
        }
        let taken = METADATA.contains(&self.payload_field.as_str()) || self.payload_field == CONTENT_TYPE;
        if taken || self.payload_field.is_empty() {
            let value = format_args!("{:?}", self.payload_field);
            return Err(ConfigError::out_of_range(
                "payload_field",
                value,
                "a name that no other field of an entry has",
            ));
        }
        Ok(())
    }

    /// The database number in the path of the URL.
    pub(crate) fn database(&self) -> Result<i64, ConfigError> {
        let Some(path) = &self.address.path else { return Ok(0) };
        let number = path.parse().ok().filter(|number| (0..=DATABASE_MAX).contains(number));
        number.ok_or_else(|| {
            ConfigError::out_of_range(
                "url",
                format_args!("with the database {path:?}"),
                "with the number of a database, or without",
            )
        })
    }
}
